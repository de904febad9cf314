"""A checked message of a producer, and the checks that all protocols share.

Checks, codes and their order are RocketMQ's (``SendMessageActivity`` and ``GrpcValidator`` of apache/rocketmq's proxy;
``HookUtils.handleScheduleMessage`` for the order of delays), with two exceptions. The longest delay is the broker's.
Properties that name a delay are refused by RocketMQ from gRPC clients; here they count as those of its other clients do
there.

Each check raises a Refusal with RocketMQ's code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import NamedTuple

from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.delay import DelayLevel, check_due, due_after, due_from_delay, parse_levels
from tarry.base.errors import InvalidArgumentError
from tarry.fronts.rocketmq.common.properties import DELAYS, DELIVER_MS, RESERVED_NAMES, SPREAD, START_DELIVER
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.message.spreading import offset_ms
from tarry.message.topics import RESERVED
from tarry.repeat import SPREAD_MS_MAX

PROPERTIES_MAX = 128
PROPERTIES_BYTES_MAX = 16 << 10
"""Limit of what a v5 client's user sets: properties, tag and keys together.

Fields that the client sets itself do not count.
"""
GROUP_BYTES_MAX = 64
ID_BYTES_MAX = 255
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class DraftRules(NamedTuple):
    """The broker's limits of a message."""

    body_bytes_max: int
    properties_bytes_max: int
    """Limit of all properties that are stored with it, including fields that have no column."""
    delay_ms_max: int
    levels: tuple[int, ...]
    """The delays of the delay levels, in milliseconds."""

    @classmethod
    def of(cls, config: Config, properties_bytes_max: int = sys.maxsize) -> DraftRules:
        """Return the rules of the broker's settings, for a protocol with room for so many bytes of properties."""
        properties_bytes_max = min(config.properties_bytes_max, properties_bytes_max)
        return cls(config.body_bytes_max, properties_bytes_max, config.delay_ms_max, parse_levels(config.delay_levels))


class Draft(NamedTuple):
    """One message that was checked, but is not accepted yet."""

    topic: str
    due_ms: int
    body: bytes
    id: str
    """Empty: the broker makes an id, and does not deduplicate the message."""
    tag: str | None
    properties: list[tuple[str, str]]
    order_key: str | None
    half: bool
    """True if it belongs to a transaction that is not decided."""
    recovery_ms: int | None
    """Time that its transaction may stay undecided before its producer is asked."""
    delayed: bool


def check_body(body: bytes, bytes_max: int) -> None:
    """Check an unpacked body."""
    if not body:
        raise Refusal(Code.MESSAGE_BODY_EMPTY, "the message's body is empty; allowed: 1 byte and more")
    if len(body) > bytes_max:
        raise Refusal(Code.MESSAGE_BODY_TOO_LARGE, f"the message's body has {len(body)} bytes; allowed: {bytes_max}")


def check_properties(user: Mapping[str, str]) -> int:
    """Check the user's properties; return their size in bytes."""
    if len(user) > PROPERTIES_MAX:
        raise Refusal(
            Code.MESSAGE_PROPERTIES_TOO_LARGE, f"the message has {len(user)} properties; allowed: {PROPERTIES_MAX}"
        )
    size = 0
    for name, value in user.items():
        if name in RESERVED_NAMES or name.startswith(RESERVED):
            raise Refusal(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name!r:.300} is used by the system")
        if _CONTROL.search(name) or _CONTROL.search(value):
            raise Refusal(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name!r:.300} = {value!r:.300} has a control character"
            )
        size += len(name.encode()) + len(value.encode())
    return size


def check_tag(tag: str) -> str:
    """Check the tag, and return it; empty if there is none.

    Its bytes count with the properties, as in RocketMQ.
    """
    if not tag:
        return tag
    if not tag.strip() or "|" in tag or _CONTROL.search(tag):
        raise Refusal(Code.ILLEGAL_MESSAGE_TAG, f"tag {tag!r:.300}; allowed: not blank, no '|', no control characters")
    return tag


def check_keys(keys: list[str]) -> None:
    """Check the keys by which the user looks messages up."""
    for key in keys:
        if not key.strip() or _CONTROL.search(key):
            raise Refusal(Code.ILLEGAL_MESSAGE_KEY, f"key {key!r:.300}; allowed: not blank, no control characters")


def check_order_key(group: str) -> None:
    """Check an ordering key: a message group of v5, a sharding key of v4."""
    if not group.strip() or len(group.encode()) >= GROUP_BYTES_MAX or _CONTROL.search(group):
        raise Refusal(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"message group {group!r:.300}; allowed: not blank, below {GROUP_BYTES_MAX} bytes, no control characters",
        )


SECONDS_MIN = 10**9
"""Least due time in milliseconds that is taken as it is; below, a message is delivered at once.

As seconds it is a date of 2001: a time in milliseconds below it is one of January 1970.
"""


def due_ms_of(user: Mapping[str, str], timestamp_ms: int | None, clock: Clock, rules: DraftRules) -> int | None:
    """Return the due time by a message's properties, or else ``timestamp_ms``; None if it has no delay."""
    names = [name for name in DELAYS if name in user] if user else []
    if not names and timestamp_ms is None:
        return None
    now_ms, start_ms = clock.now_ms(), clock.start_ms()
    try:
        if "DELAY" in names:
            if (level := _number("DELAY", user)) > 0:
                return due_from_delay(DelayLevel(level), now_ms, rules.levels, start_ms=start_ms)
            names = names[1:]
            if not names and timestamp_ms is None:
                return None
        named = names[0] if names else None
        due_ms = _moment(named, user, now_ms, start_ms) if named else timestamp_ms or 0
        if due_ms < SECONDS_MIN:
            return now_ms  # as RocketMQ, which delivers at once: 0 and the like stand for "now"
        return check_due(due_ms, start_ms, rules.delay_ms_max)
    except InvalidArgumentError as error:
        raise Refusal(Code.ILLEGAL_DELIVERY_TIME, str(error)) from error


def spread_due_ms(
    user: Mapping[str, str], due_ms: int | None, id: str | None, clock: Clock, rules: DraftRules
) -> int | None:
    """Return the due time of a message within the span of its property :data:`SPREAD`, by its id.

    One without a delay is due within that time from now.
    """
    if SPREAD not in user:
        return due_ms
    text = user[SPREAD]
    if not (text.isdecimal() and text.isascii() and len(text) < 10 and int(text) <= SPREAD_MS_MAX):
        raise Refusal(
            Code.ILLEGAL_DELIVERY_TIME,
            f"property {SPREAD} is {text!r:.300}; allowed: 0 to {SPREAD_MS_MAX} ms",
        )
    if not int(text):
        return due_ms
    asked_ms = clock.start_ms() if due_ms is None else due_ms
    try:
        check_due(asked_ms + int(text) - 1, clock.start_ms(), rules.delay_ms_max)
    except InvalidArgumentError as error:
        raise Refusal(Code.ILLEGAL_DELIVERY_TIME, str(error)) from error
    return asked_ms + offset_ms(int(text), id)


def _moment(name: str, user: Mapping[str, str], now_ms: int, start_ms: int) -> int:
    """Return the due time that a property other than DELAY asks for."""
    number = _number(name, user)
    if name in (DELIVER_MS, START_DELIVER):
        return number
    return due_after(number * 1000 if name == "TIMER_DELAY_SEC" else number, now_ms, start_ms)


def _number(name: str, user: Mapping[str, str]) -> int:
    text = user[name]
    if text.isdecimal() and text.isascii() and len(text) < 19:
        return int(text)
    if not re.fullmatch("[+-]?[0-9]{1,18}", text):
        raise Refusal(Code.ILLEGAL_DELIVERY_TIME, f"property {name} is {text!r:.300}; allowed: a whole number")
    return int(text)
