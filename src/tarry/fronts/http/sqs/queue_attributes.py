"""Attributes of queues: which there are, what is allowed, and what they mean here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tarry.fronts.http.sqs.errors import SqsError, invalid
from tarry.fronts.http.sqs.names import is_fifo, name_of_arn

DELAY_S_MAX = 900
"""Longest delay where the setting ``http_sqs_strict`` is on: that of AWS."""
MESSAGE_BYTES_MAX = 1 << 20
VISIBILITY_S_MAX = 43_200
WAIT_S_MAX = 20
POLICY_CHARS_MAX = 64 << 10

DEFAULTS: Mapping[str, str] = {
    "DelaySeconds": "0",
    "MaximumMessageSize": str(MESSAGE_BYTES_MAX),
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "VisibilityTimeout": "30",
}
FIFO_DEFAULTS: Mapping[str, str] = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}
RANGES: Mapping[str, tuple[int, int]] = {
    "MaximumMessageSize": (1024, MESSAGE_BYTES_MAX),
    "MessageRetentionPeriod": (60, 1_209_600),
    "ReceiveMessageWaitTimeSeconds": (0, WAIT_S_MAX),
    "VisibilityTimeout": (0, VISIBILITY_S_MAX),
}
WORDS: Mapping[str, tuple[str, ...]] = {
    "FifoQueue": ("true",),
    "ContentBasedDeduplication": ("true", "false"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
    "SqsManagedSseEnabled": ("false",),
}
_FIFO_ONLY = frozenset(FIFO_DEFAULTS)
_KMS = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds")
TOLD = (
    *("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"),
    *("CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"),
)
"""Attributes that cannot be set."""
KNOWN = frozenset((*DEFAULTS, *FIFO_DEFAULTS, *WORDS, *_KMS, *TOLD, "Policy", "RedrivePolicy", "RedriveAllowPolicy"))


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it was made; its messages are those of its topic."""

    name: str
    given: Mapping[str, str]
    """The attributes that were set."""
    tags: Mapping[str, str]
    created_ms: int
    modified_ms: int
    visibility_s: int = field(init=False)
    delay_s: int = field(init=False)
    wait_s: int = field(init=False)
    bytes_max: int = field(init=False)
    retention_s: int = field(init=False)
    receives_max: int = field(init=False)
    """Number of times that a message is handed out before it goes to the dead-letter queue.

    0: there is none.
    """
    dead_letter_queue: str | None = field(init=False)

    def __post_init__(self) -> None:
        def number(name: str) -> int:
            return int(self.given.get(name, DEFAULTS[name]))

        redrive = json.loads(self.given.get("RedrivePolicy") or "{}")
        for name, value in (
            ("visibility_s", number("VisibilityTimeout")),
            ("delay_s", number("DelaySeconds")),
            ("wait_s", number("ReceiveMessageWaitTimeSeconds")),
            ("bytes_max", number("MaximumMessageSize")),
            ("retention_s", number("MessageRetentionPeriod")),
            ("receives_max", int(redrive.get("maxReceiveCount", 0))),
            ("dead_letter_queue", name_of_arn(redrive.get("deadLetterTargetArn"))),
        ):
            object.__setattr__(self, name, value)

    @property
    def is_fifo(self) -> bool:
        return is_fifo(self.name)

    @property
    def dedupes_content(self) -> bool:
        """True if a message without a deduplication id has its body's digest as one."""
        return self.given.get("ContentBasedDeduplication") == "true"

    @property
    def dedupes_by_group(self) -> bool:
        """True if the same deduplication id in two message groups is two messages."""
        return self.given.get("DeduplicationScope") == "messageGroup"

    @property
    def attributes(self) -> dict[str, str]:
        """All attributes that can be set, and have a value."""
        fifo = FIFO_DEFAULTS if self.is_fifo else {}
        return {**DEFAULTS, "SqsManagedSseEnabled": "false", **fifo, **self.given}

    def allows_redrive_of(self, source_arn: str) -> bool:
        """Return whether another queue may have this one as its dead-letter queue."""
        policy = json.loads(self.given.get("RedriveAllowPolicy") or "{}")
        way = policy.get("redrivePermission", "allowAll")
        return way == "allowAll" or (way == "byQueue" and source_arn in policy.get("sourceQueueArns", ()))


def checked(name: str, given: Any, delay_s_max: int) -> dict[str, str]:
    """Return attributes that are to be set of the queue ``name``; an empty text takes one away.

    Raises:
        SqsError: one is not allowed.
    """
    if not isinstance(given, Mapping):
        raise invalid("Attributes must be a map.")
    fifo = is_fifo(name)
    if not fifo:
        given = {key: value for key, value in given.items() if (key, str(value).lower()) != ("FifoQueue", "false")}
    return {key: _checked(key, value, fifo=fifo, delay_s_max=delay_s_max) for key, value in given.items()}


def _checked(name: str, given: Any, *, fifo: bool, delay_s_max: int) -> str:
    value = given if isinstance(given, str) else str(given)
    if name not in KNOWN or name in TOLD:
        raise SqsError("InvalidAttributeName", f"Unknown Attribute {name!s:.60}.")
    if name in _KMS:
        raise SqsError(
            "InvalidAttributeValue",
            f"{name} is not supported: the broker does not encrypt messages. Encrypt its disk, or the bodies.",
        )
    if name in _FIFO_ONLY and not fifo:
        raise SqsError("InvalidAttributeName", f"Unknown Attribute {name}: only for queues whose names end in .fifo.")
    if name == "DelaySeconds":
        return _number(name, value, 0, delay_s_max)
    if (bounds := RANGES.get(name)) is not None:
        return _number(name, value, *bounds)
    if (words := WORDS.get(name)) is not None:
        if value.lower() not in {word.lower() for word in words}:
            raise _bad(name, f"allowed: {', '.join(words)}")
        return next(word for word in words if word.lower() == value.lower())
    return "" if not value else _POLICIES[name](value)


def _number(name: str, value: str, low: int, high: int) -> str:
    if not (value.isascii() and value.isdecimal() and len(value) < 12 and low <= int(value) <= high):
        raise _bad(name, f"allowed: {low} to {high}")
    return str(int(value))


def _bad(name: str, why: str = "") -> SqsError:
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}." + (f" {why}" if why else ""))


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text) if len(text) <= POLICY_CHARS_MAX else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _bad(name, "It must be a JSON object.")
    return value


def _redrive(text: str) -> str:
    given = _json("RedrivePolicy", text)
    unknown = given.keys() - {"deadLetterTargetArn", "maxReceiveCount"}
    if unknown or len(given) != 2:
        raise invalid(
            f"Value {text:.200} for parameter RedrivePolicy is invalid. "
            "Reason: Redrive policy must have deadLetterTargetArn and maxReceiveCount, and nothing else."
        )
    count = str(given["maxReceiveCount"])
    if not (count.isascii() and count.isdecimal() and len(count) < 12 and 1 <= int(count) <= 1000):
        raise invalid(
            f"Value {text:.200} for parameter RedrivePolicy is invalid. Reason: Invalid value for maxReceiveCount: "
            f"{count:.20}, valid values are from 1 to 1000 both inclusive."
        )
    if name_of_arn(given["deadLetterTargetArn"]) is None:
        raise invalid(f"Value {text:.200} for parameter RedrivePolicy is invalid. Reason: the ARN is of no queue.")
    # A number that came as a text is told as a number, as by AWS: declared infrastructure is compared with that.
    return text if isinstance(given["maxReceiveCount"], int) else json.dumps({**given, "maxReceiveCount": int(count)})


def _redrive_allow(text: str) -> str:
    given = _json("RedriveAllowPolicy", text)
    way, arns = given.get("redrivePermission"), given.get("sourceQueueArns")
    is_good = way in ("allowAll", "denyAll") and arns is None
    is_list = way == "byQueue" and isinstance(arns, list) and 1 <= len(arns) <= 10 and all(map(name_of_arn, arns))
    if not (is_good or is_list) or given.keys() - {"redrivePermission", "sourceQueueArns"}:
        raise _bad("RedriveAllowPolicy", "allowed: redrivePermission allowAll, denyAll, or byQueue with 1 to 10 ARNs")
    return text


def _policy(text: str) -> str:
    statements = _json("Policy", text).get("Statement", [])
    for statement in statements if isinstance(statements, list) else [statements]:
        if not isinstance(statement, Mapping) or statement.get("Effect") != "Allow":
            raise _bad(
                "Policy",
                "Policies are kept and not acted upon: rights are those of the broker's identities. "
                "So statements that deny are refused.",
            )
    return text


_POLICIES: Mapping[str, Callable[[str], str]] = {
    "RedrivePolicy": _redrive,
    "RedriveAllowPolicy": _redrive_allow,
    "Policy": _policy,
}
