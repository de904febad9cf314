"""The headers by which any Kafka client schedules a record, and their meaning.

Everything here depends on the record alone, and on ``now_ms`` only for a record without a timestamp: a replayed batch
must decide the same for each record, or it would send one on twice or never.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from tarry.base.delay import DUE_MS_MIN, datetime_ms, format_ms, parse_duration_ms
from tarry.base.errors import InvalidArgumentError

PREFIX = "tarry-"
"""Prefix of header names that belong to the relay."""

DUE, DUE_MS, DELAY, DELAY_MS = "tarry-due", "tarry-due-ms", "tarry-delay", "tarry-delay-ms"
TOPIC, CANCEL = "tarry-topic", "tarry-cancel"
WHEN = (DUE, DUE_MS, DELAY, DELAY_MS)
READ = frozenset((*WHEN, TOPIC, CANCEL))
_ONLY_DUE_MS = {DUE_MS}

SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET = "tarry-source-topic", "tarry-source-partition", "tarry-source-offset"
SOURCE_TIMESTAMP, DUE_AT, REASON = "tarry-source-timestamp-ms", "tarry-was-due-ms", "tarry-dead-reason"
WRITTEN = frozenset((SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET, SOURCE_TIMESTAMP, DUE_AT, REASON))
"""Headers that the relay adds.

On an incoming record they are an earlier relay's, and are replaced.
"""

KAFKA_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DIGITS_MAX = 18

Header = tuple[str, bytes | None]


class RecordAction(IntEnum):
    """The relay's action on a record."""

    PASS = 0
    """Send it on at once."""
    AT = 1
    """Send it on when it is due."""
    CANCEL = 2
    """Cancel the pending records of a key."""
    DEAD = 3
    """Make a dead letter of it, as it cannot be scheduled."""


@dataclass(frozen=True, slots=True)
class TopicRule:
    """Rule of a source topic: the target of its records, and the delay of those without a header for it."""

    target: str
    delay_ms: int | None = None


class Decision(NamedTuple):
    """A decision on a record.

    ``target`` and ``due_ms`` are for PASS and AT, ``key`` for CANCEL, ``reason`` for DEAD. ``headers`` are the
    producer's own.
    """

    action: RecordAction
    headers: Sequence[Header] = ()
    target: str = ""
    due_ms: int = 0
    key: bytes = b""
    reason: str = ""


def decide(
    rule: TopicRule,
    headers: Sequence[Header] | None,
    key: bytes | None,
    tombstone: bool,
    timestamp_ms: int | None,
    now_ms: int,
    delay_ms_max: int,
) -> Decision:
    """Decide what to do with a record.

    A delay counts from the record's timestamp; from ``now_ms`` if it has none.
    """
    if not headers:
        orders: dict[str, bytes | None] = {}
        own: Sequence[Header] = ()
    else:
        orders, own = {}, []
        for name, value in headers:
            if name in READ:
                if name in orders:
                    return _dead(headers, f"header {name!r} is there twice; allowed: once")
                orders[name] = value
            elif not name.startswith(PREFIX):
                own.append((name, value))
            elif name not in WRITTEN:
                return _dead(headers, f"header {name!r} is unknown; allowed: {', '.join(sorted(READ))}")
        if CANCEL in orders:
            return _cancel(headers, orders, own, key, tombstone)
    born_ms = now_ms if timestamp_ms is None else timestamp_ms
    if not orders and rule.delay_ms is None:
        return Decision(RecordAction.PASS, own, rule.target, born_ms)
    try:
        target = _target(orders, rule)
        due_ms = _due_ms(orders, rule, born_ms)
        if due_ms is None:
            return Decision(RecordAction.PASS, own, target, born_ms)
        if due_ms < DUE_MS_MIN <= now_ms:
            raise InvalidArgumentError(f"due is {due_ms}, before 2000; allowed: later (seconds for milliseconds?)")
        if due_ms - born_ms > delay_ms_max:
            raise InvalidArgumentError(f"due {format_ms(due_ms)} is beyond the longest delay of {delay_ms_max} ms")
    except InvalidArgumentError as error:
        return _dead(headers or (), str(error))
    return Decision(RecordAction.AT, own, target, due_ms)


def _dead(headers: Sequence[Header], reason: str) -> Decision:
    # All of its headers, so that the dead letter shows what was wrong.
    return Decision(RecordAction.DEAD, headers, reason=reason)


def _cancel(
    headers: Sequence[Header],
    orders: dict[str, bytes | None],
    own: Sequence[Header],
    key: bytes | None,
    tombstone: bool,
) -> Decision:
    if not tombstone:
        return _dead(headers, f"a record with {CANCEL!r} has a value; allowed: a null value")
    if len(orders) > 1:
        return _dead(headers, f"{', '.join(sorted(orders))} together; allowed: {CANCEL!r} alone")
    named = orders[CANCEL] or key
    if named is None:
        return _dead(headers, f"{CANCEL!r} names no key, and the record has none; allowed: one of them")
    return Decision(RecordAction.CANCEL, own, key=named)


def _target(orders: dict[str, bytes | None], rule: TopicRule) -> str:
    if TOPIC not in orders:
        return rule.target
    target = _text(orders, TOPIC)
    if not KAFKA_TOPIC.fullmatch(target) or target in (".", ".."):
        raise InvalidArgumentError(f"{TOPIC} {target[:300]!r} is no topic name; allowed: {KAFKA_TOPIC.pattern}")
    return target


def _due_ms(orders: dict[str, bytes | None], rule: TopicRule, born_ms: int) -> int | None:
    if orders.keys() == _ONLY_DUE_MS:  # most records have only this, and take this short way
        return _number(DUE_MS, _text(orders, DUE_MS), "milliseconds since 1970")
    given = [name for name in WHEN if name in orders]
    if len(given) > 1:
        raise InvalidArgumentError(f"{' and '.join(given)} are both there; allowed: one of them")
    if not given:
        return None if rule.delay_ms is None else born_ms + rule.delay_ms
    text = _text(orders, given[0])
    match given[0]:
        case "tarry-due-ms":
            return _number(DUE_MS, text, "milliseconds since 1970")
        case "tarry-delay-ms":
            return born_ms + _number(DELAY_MS, text, "milliseconds, 0 or more")
        case "tarry-delay":
            try:
                return born_ms + parse_duration_ms(text)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"{DELAY}: {error}") from error
        case _:
            return _instant(text)


def _instant(text: str) -> int:
    if _is_number(text):
        return int(text)
    try:
        due_ms = datetime_ms(datetime.fromisoformat(text))
    except (ValueError, InvalidArgumentError) as error:
        allowed = "ISO 8601 with an offset, as in 2030-01-01T06:00:00Z"
        raise InvalidArgumentError(f"{DUE} {text[:100]!r} is not an instant; allowed: {allowed}") from error
    if due_ms < 0:
        raise InvalidArgumentError(f"{DUE} {text!r} is before 1970; allowed: 1970 or later")
    return due_ms


def _number(name: str, text: str, allowed: str) -> int:
    if not _is_number(text):
        raise InvalidArgumentError(f"{name} {text[:100]!r} is no number; allowed: {allowed}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isdigit() and text.isascii() and len(text) <= _DIGITS_MAX


def _text(orders: dict[str, bytes | None], name: str) -> str:
    value = orders[name]
    try:
        return (value or b"").decode().strip()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{name} {value!r} is no text; allowed: UTF-8") from error
