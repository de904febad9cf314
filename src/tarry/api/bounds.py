"""Allowed values of requests' fields: one table, for the checks and for the HTTP API's description.

Bounds that depend on a broker's settings, or on other fields, are not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tarry.api.settings import QUEUES_MAX
from tarry.api.views import UNITS_MS
from tarry.base.delay import DUE_MS_MIN, INT64_MAX
from tarry.base.errors import InvalidArgumentError
from tarry.message.topics import RESERVED, TOPIC_PATTERN

Schema = dict[str, Any]
"""Words of JSON Schema."""


@dataclass(frozen=True, slots=True)
class Range:
    """Whole numbers from ``low`` on, up to ``high`` where there is an end."""

    low: int
    high: int | None = None

    def check(self, name: str, value: object) -> None:
        """Check a value.

        Raises:
            InvalidArgumentError: it is not allowed.
        """
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number or not self.low <= value or (self.high is not None and value > self.high):  # type: ignore[operator]
            to = " or more" if self.high is None else f" to {self.high}"
            raise InvalidArgumentError(f"{name} is {value!r:.80}; allowed: {self.low}{to}")

    @property
    def schema(self) -> Schema:
        return {"minimum": self.low} if self.high is None else {"minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Name:
    """Texts of ``bytes_min`` to ``bytes_max`` bytes of UTF-8 that match ``pattern``, if there is one.

    JSON Schema counts characters; there ``bytes_max`` is an upper bound.
    """

    bytes_max: int
    pattern: str | None = None
    bytes_min: int = 1

    def fits(self, value: object) -> bool:
        """Return whether the text's length is allowed."""
        return isinstance(value, str) and self.bytes_min <= len(value.encode(errors="replace")) <= self.bytes_max

    @property
    def schema(self) -> Schema:
        schema: Schema = {"minLength": self.bytes_min, "maxLength": self.bytes_max}
        return schema if self.pattern is None else {**schema, "pattern": self.pattern}


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of some texts."""

    values: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        return {"enum": list(self.values)}


INT32_MAX = (1 << 31) - 1
YEAR_MS = 366 * 86_400_000

TOPIC = Name(255, TOPIC_PATTERN)
GROUP = Name(255, f"^(?!{RESERVED.replace('.', '[.]')})")
KEY = Name(255)
JOB = Name(200)
NAME = Name(255, bytes_min=0)
"""A message's id, key, tag and order key."""
PREFETCH = MESSAGES = Range(1)
LEASE_MS = Range(1, YEAR_MS)
WAIT_MS = Range(0)
PAGE = Range(1, 1000)
UNIT = Choice(tuple(UNITS_MS))
TRIES = Range(1, INT32_MAX)
DUE_MS = Range(DUE_MS_MIN, INT64_MAX)
DELAY_MS = Range(0)
SOME_MS = Range(1, 1 << 50)
GROUP_TRIES = INFLIGHT = Range(0, INT32_MAX)
"""0: no limit."""
GROUP_LEASE_MS = Range(0, YEAR_MS)
"""0: the broker's."""
LATENESS_MS = Range(-1, 1 << 50)
"""-1: none."""
TOPIC_QUEUES = Range(0, QUEUES_MAX)
"""0: as many as the broker's setting says."""
TOKEN_USES = Range(0, 1 << 53)
"""0: any number of times."""
TOKEN_INTERVAL_MS = Range(1, 86_400_000)

Bound = Range | Name | Choice

FIELDS: Mapping[str, Bound] = {
    "topic": TOPIC,
    "group": GROUP,
    "key": KEY,
    "prefetch": PREFETCH,
    "lease_ms": LEASE_MS,
    "max_messages": MESSAGES,
    "wait_ms": WAIT_MS,
    "unit": UNIT,
}
"""Bounds of fields that mean the same in all operations."""
_LOOKUPS = ("ListDeadLetters", "Purge", "FindMessage", "DiscardMessage")
OWN: Mapping[tuple[str, str], Bound | None] = {
    ("ListPending", "key"): None,
    ("ListPushSubscriptions", "topic"): None,
    ("HasTopic", "topic"): None,
    ("ListGroups", "topic"): None,
    ("GetHistory", "topic"): None,
    **{(each, name): None for each in _LOOKUPS for name in ("topic", "group")},
    ("ListPending", "limit"): PAGE,
    ("Peek", "limit"): PAGE,
    ("ListPushAttempts", "limit"): PAGE,
    ("Respawn", "limit"): Range(1),
    ("Respawn", "tries"): TRIES,
    ("Respawn", "ttl_ms"): SOME_MS,
    ("SetGroup", "tries"): GROUP_TRIES,
    ("SetGroup", "inflight_max"): INFLIGHT,
    ("SetGroup", "max_per_second"): INFLIGHT,
    ("SetTopic", "max_per_second"): INFLIGHT,
    ("SetGroup", "lease_ms"): GROUP_LEASE_MS,
    ("SetTopic", "lateness_ms_max"): LATENESS_MS,
    ("SetTopic", "queues"): TOPIC_QUEUES,
    **{(each, "reads_max"): TOKEN_USES for each in ("CreateToken", "LimitToken")},
    **{(each, "writes_max"): TOKEN_USES for each in ("CreateToken", "LimitToken")},
    **{(each, "interval_ms"): TOKEN_INTERVAL_MS for each in ("CreateToken", "LimitToken")},
}
"""Bounds of fields of one operation.

None: a query may look for any value; it finds nothing for one that is not allowed.
"""
SETTINGS = ("SetGroup", "SetTopic", "SetPushSubscription")
"""Operations in which a field of such a name is a setting, for which 0 and others mean something else."""


def bound_of(operation: str, field: str) -> Bound | None:
    """Return the bound of a field; None: the table has none."""
    if (operation, field) in OWN:
        return OWN[operation, field]
    if operation in SETTINGS and field not in ("topic", "group"):
        return None
    return FIELDS.get(field)


def with_bound(schema: Schema, bound: Bound | None) -> Schema:
    """Return the schema of a field, narrowed from all that can be carried to the values that are allowed."""
    if bound is None:
        return schema
    if "anyOf" in schema:
        kept = [one if one.get("type") == "null" else with_bound(one, bound) for one in schema["anyOf"]]
        return {**schema, "anyOf": kept}
    carried = {"minimum", "maximum", "exclusiveMaximum", "exclusiveMinimum"}
    if isinstance(bound, Range) and bound.high is None:
        carried = {"minimum"}
    return {**{word: value for word, value in schema.items() if word not in carried}, **bound.schema}
