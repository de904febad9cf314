"""Fields of a schedule as a client gives them, checked, and as they are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tarry.fronts.http.scheduler.errors import invalid
from tarry.fronts.http.scheduler.expressions import Expression, expression_of
from tarry.fronts.http.scheduler.names import schedule_arn
from tarry.fronts.http.scheduler.repeated import is_repeated
from tarry.fronts.http.sqs.names import name_of_arn

VERSION = 1
INPUT_BYTES_MAX = 256 << 10
DESCRIPTION_CHARS_MAX = 512
WINDOW_MINUTES_MAX = 1440
EVENT_AGE_S = (60, 86_400)
RETRIES = (0, 185)
RETRY = {"MaximumEventAgeInSeconds": EVENT_AGE_S, "MaximumRetryAttempts": RETRIES}
"""Bounds of a retry policy's fields; the upper one is the default."""
START_AGO_MS_MAX = 5 * 60_000
"""Longest time by which the start of a new schedule may be past."""
SECONDS_MAX = 253_402_300_799
"""The end of the year 9999."""
_GROUP_ID = re.compile(r"[!-~]{1,128}")
_OTHERS = (
    *("EcsParameters", "EventBridgeParameters", "EventBridgePutEventsV2Parameters"),
    *("EventBridgePutRawEventsParameters", "KinesisParameters", "SageMakerPipelineParameters"),
)
"""Parameters of targets that are no queues."""
_TEXTS = {"Description": DESCRIPTION_CHARS_MAX, "KmsKeyArn": 2048}


@dataclass(frozen=True, slots=True)
class Definition:
    """A schedule. ``given``: its fields as AWS names them, with dates in UTC milliseconds."""

    group: str
    name: str
    given: Mapping[str, Any]
    region: str
    created_ms: int
    modified_ms: int
    anchor_ms: int
    """The moment from which the intervals of ``rate`` are counted."""
    token: str | None = None
    """The client's token of its creation: who shows it again repeats a request, and asks for nothing new."""
    asked: str | None = None
    """Digest of what its creation asked for; None: it is not known, of a schedule of an older release."""

    @property
    def queue(self) -> str:
        """Name of the queue that is its target; its topic has the same."""
        name = name_of_arn(self.given["Target"]["Arn"])
        assert name is not None, "it was checked"
        return name

    @property
    def arn(self) -> str:
        """Its ARN."""
        return schedule_arn(self.group, self.name, self.region)

    @property
    def is_enabled(self) -> bool:
        """True if it has occurrences."""
        return bool(self.given["State"] == "ENABLED")

    @property
    def deletes_itself(self) -> bool:
        """True if it is gone after its last occurrence."""
        return bool(self.given["ActionAfterCompletion"] == "DELETE")

    @property
    def expression(self) -> Expression:
        """Its expression, read."""
        return expression_of(self.given["ScheduleExpression"], self.given["ScheduleExpressionTimezone"])

    @property
    def window_ms(self) -> int:
        """Width of its flexible window; 0: it has none."""
        return int(self.given["FlexibleTimeWindow"].get("MaximumWindowInMinutes", 0)) * 60_000

    def repeats(self, former: Definition) -> bool:
        """Return whether this is what the creation of ``former`` asked for, by the same token.

        Raises:
            SchedulerError: it is the same token, and something else is asked for.
        """
        return is_repeated(former.token, former.asked, self.token, self.asked)

    def to_bytes(self) -> bytes:
        """Return it as it is kept: see ``docs/formats.md``."""
        fields = {
            "version": VERSION,
            **{name: getattr(self, name) for name in _KEPT},
            "given": dict(self.given),
        }
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


_KEPT = ("group", "name", "region", "created_ms", "modified_ms", "anchor_ms", "token", "asked")


def read_definition(body: bytes) -> Definition:
    """Read what :meth:`Definition.to_bytes` has written."""
    fields = json.loads(body)
    return Definition(given=fields["given"], **{name: fields.get(name) for name in _KEPT})


def checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a schedule from a request, with defaults and without what is none of it.

    Whether its times are past is not looked at: a request that is repeated is the same later, too.

    Raises:
        SchedulerError: one is missing, or its value is not allowed.
    """
    given: dict[str, Any] = {
        "ScheduleExpression": fields.get("ScheduleExpression"),
        "ScheduleExpressionTimezone": "UTC" if (zone := fields.get("ScheduleExpressionTimezone")) is None else zone,
        "State": _choice(fields, "State", "ENABLED", "DISABLED"),
        "ActionAfterCompletion": _choice(fields, "ActionAfterCompletion", "NONE", "DELETE"),
        "FlexibleTimeWindow": _window(fields.get("FlexibleTimeWindow")),
        "Target": _target(fields.get("Target")),
    }
    if given["ScheduleExpression"] is None:
        raise invalid("ScheduleExpression is missing.")
    expression_of(given["ScheduleExpression"], given["ScheduleExpressionTimezone"])
    for name, chars_max in _TEXTS.items():
        if (text := fields.get(name)) is not None:
            if not isinstance(text, str) or len(text) > chars_max:
                raise invalid(f"{name} is {text!r:.80}; allowed: up to {chars_max} characters")
            given[name] = text
    for name in ("StartDate", "EndDate"):
        if (value := fields.get(name)) is not None:
            given[name] = _date_ms(name, value)
    return given


def check_end(given: Mapping[str, Any], now_ms: int) -> None:
    """Refuse a schedule whose ``EndDate`` is past, or before its ``StartDate``.

    Raises:
        SchedulerError: it is so.
    """
    end_ms = given.get("EndDate")
    if end_ms is not None and end_ms <= max(now_ms, given.get("StartDate", 0)):
        raise invalid("The EndDate you specify must be in the future, and after the StartDate.")


def check_start(given: Mapping[str, Any], now_ms: int) -> None:
    """Refuse a new schedule that recurs, and whose ``StartDate`` is long ago.

    Raises:
        SchedulerError: it is more than five minutes ago.
    """
    start_ms = given.get("StartDate")
    is_once = expression_of(given["ScheduleExpression"], given["ScheduleExpressionTimezone"]).at_ms is not None
    if start_ms is not None and not is_once and start_ms < now_ms - START_AGO_MS_MAX:
        raise invalid("The StartDate you specify cannot be earlier than 5 minutes ago.")


def _choice(fields: Mapping[str, Any], name: str, *allowed: str) -> str:
    value = fields.get(name)
    if value is None:
        return allowed[0]
    if value not in allowed:
        raise invalid(f"{name} is {value!r:.80}; allowed: {', '.join(allowed)}")
    return str(value)


def _window(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise invalid("FlexibleTimeWindow is missing.")
    mode = _choice(value, "Mode", "OFF", "FLEXIBLE") if "Mode" in value else None
    minutes = value.get("MaximumWindowInMinutes")
    if mode is None:
        raise invalid("FlexibleTimeWindow.Mode is missing.")
    if mode == "OFF":
        if minutes is not None:
            raise invalid("A maximum window is given, and the flexible time window's mode is OFF.")
        return {"Mode": mode}
    return {
        "Mode": mode,
        "MaximumWindowInMinutes": _whole("MaximumWindowInMinutes", minutes, 1, WINDOW_MINUTES_MAX),
    }


def _target(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise invalid("Target is missing.")
    arn, role = value.get("Arn"), value.get("RoleArn")
    if name_of_arn(arn) is None:
        raise invalid(
            f"Target.Arn is {arn!r:.200}; allowed: the ARN of a queue of SQS's API, as in "
            "arn:aws:sqs:us-east-1:000000000000:orders"
        )
    if not isinstance(role, str) or not role or len(role) > 1600:
        raise invalid(f"Target.RoleArn is {role!r:.80}; allowed: an ARN, which is kept and not acted upon")
    for name in _OTHERS:
        if value.get(name) is not None:
            raise invalid(f"Target.{name} is given, and the target is a queue; allowed: SqsParameters")
    target: dict[str, Any] = {"Arn": arn, "RoleArn": role}
    if (text := value.get("Input")) is not None:
        if not isinstance(text, str) or not text or len(text.encode(errors="replace")) > INPUT_BYTES_MAX:
            raise invalid(f"Target.Input is not a text of 1 to {INPUT_BYTES_MAX} bytes.")
        target["Input"] = text
    retry = _structure(value, "RetryPolicy") or {}
    target["RetryPolicy"] = {
        name: high if retry.get(name) is None else _whole(name, retry[name], low, high)
        for name, (low, high) in RETRY.items()
    }
    if (letters := _structure(value, "DeadLetterConfig")) is not None:
        if letters.get("Arn") is not None and name_of_arn(letters["Arn"]) is None:
            raise invalid(f"Target.DeadLetterConfig.Arn is {letters['Arn']!r:.200}; allowed: the ARN of a queue")
        target["DeadLetterConfig"] = {name: letters[name] for name in ("Arn",) if name in letters}
    if (sqs := _structure(value, "SqsParameters")) is not None:
        group = sqs.get("MessageGroupId")
        if group is not None and not (isinstance(group, str) and _GROUP_ID.fullmatch(group)):
            raise invalid(f"SqsParameters.MessageGroupId is {group!r:.128}; allowed: 1 to 128 of a-z A-Z 0-9 and signs")
        target["SqsParameters"] = {} if group is None else {"MessageGroupId": group}
    return target


def _structure(value: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found = value.get(name)
    if found is not None and not isinstance(found, Mapping):
        raise invalid(f"Target.{name} is {found!r:.80}; allowed: a structure")
    return found


def _whole(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise invalid(f"{name} is {value!r:.40}; allowed: {low} to {high}")
    return value


def _date_ms(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= SECONDS_MAX:
        raise invalid(f"{name} is {value!r:.40}; allowed: seconds since 1970, UTC")
    return int(value * 1000)


def shown(definition: Definition, region: str) -> dict[str, Any]:
    """Return a schedule as GetSchedule answers it."""
    given = dict(definition.given)
    for name in ("StartDate", "EndDate"):
        if name in given:
            given[name] /= 1000
    return {**_summary(definition, region), **given}


def summary(definition: Definition, region: str) -> dict[str, Any]:
    """Return a schedule as ListSchedules shows it."""
    target = {"Arn": definition.given["Target"]["Arn"]}
    return {**_summary(definition, region), "State": definition.given["State"], "Target": target}


def _summary(definition: Definition, region: str) -> dict[str, Any]:
    return {
        "Arn": schedule_arn(definition.group, definition.name, region),
        "GroupName": definition.group,
        "Name": definition.name,
        "CreationDate": definition.created_ms / 1000,
        "LastModificationDate": definition.modified_ms / 1000,
    }
