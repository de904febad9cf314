"""A message that a producer sends: what it is once it is checked, and the checks that no protocol has for itself.

Checks, codes and their order are RocketMQ's (``SendMessageActivity`` and ``GrpcValidator`` of apache/rocketmq's proxy;
``HookUtils.handleScheduleMessage`` for the order of delays), but for the longest delay, which is the broker's, and for
properties that name a delay: RocketMQ refuses them from gRPC clients, and here they count as they do there from its
other clients.

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
from tarry.fronts.rocketmq.common.properties import DELAYS, DELIVER_MS, RESERVED_NAMES, START_DELIVER
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.message.schema import RESERVED

PROPERTIES_MAX = 128
PROPERTIES_BYTES_MAX = 16 << 10
"""Of what a v5 client's user gives: properties, tag and keys together. What a client says of itself does not count."""
GROUP_BYTES_MAX = 64
ID_BYTES_MAX = 255
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class DraftRules(NamedTuple):
    """What the broker allows of a message."""

    body_bytes_max: int
    properties_bytes_max: int
    """Of all properties that are stored with it: what it has no column for is among them."""
    delay_ms_max: int
    levels: tuple[int, ...]
    """What the delay levels mean, in milliseconds."""

    @classmethod
    def of(cls, config: Config, properties_bytes_max: int = sys.maxsize) -> DraftRules:
        """Those of the broker's settings, and of a protocol that has room for so many bytes of properties."""
        properties_bytes_max = min(config.properties_bytes_max, properties_bytes_max)
        return cls(config.body_bytes_max, properties_bytes_max, config.delay_ms_max, parse_levels(config.delay_levels))


class Draft(NamedTuple):
    """One message, checked, and not accepted yet."""

    topic: str
    due_ms: int
    body: bytes
    id: str
    """Empty: the broker gives it one, and no other message is taken for the same."""
    tag: str | None
    properties: list[tuple[str, str]]
    order_key: str | None
    half: bool
    """It belongs to a transaction that is not decided."""
    recovery_ms: int | None
    """How long its transaction may stay undecided before its producer is asked."""
    delayed: bool


def check_body(body: bytes, bytes_max: int) -> None:
    """Check a body, which is unpacked."""
    if not body:
        raise Refusal(Code.MESSAGE_BODY_EMPTY, "the message's body is empty; allowed: 1 byte and more")
    if len(body) > bytes_max:
        raise Refusal(Code.MESSAGE_BODY_TOO_LARGE, f"the message's body has {len(body)} bytes; allowed: {bytes_max}")


def check_properties(user: Mapping[str, str]) -> int:
    """Check the user's properties; how many bytes they have."""
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
    """Check the tag, and give it back; empty: there is none. Its bytes count with the properties, as in RocketMQ."""
    if not tag:
        return tag
    if not tag.strip() or "|" in tag or _CONTROL.search(tag):
        raise Refusal(Code.ILLEGAL_MESSAGE_TAG, f"tag {tag!r:.300}; allowed: not blank, no '|', no control characters")
    return tag


def check_keys(keys: list[str]) -> None:
    """Check the keys that the user looks messages up by."""
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
"""As seconds, from 2001 on: what names an instant of 1970 in milliseconds from here on is one of today in seconds."""


def due_ms_of(user: Mapping[str, str], timestamp_ms: int | None, clock: Clock, rules: DraftRules) -> int | None:
    """When a message is due by its properties, or else at ``timestamp_ms``; None: no delay is asked for."""
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
            return now_ms  # as the original, which delivers at once: 0 and the like stand for "now"
        return check_due(due_ms, start_ms, rules.delay_ms_max)
    except InvalidArgumentError as error:
        raise Refusal(Code.ILLEGAL_DELIVERY_TIME, str(error)) from error


def _moment(name: str, user: Mapping[str, str], now_ms: int, start_ms: int) -> int:
    """The due time that a property other than DELAY asks for."""
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
