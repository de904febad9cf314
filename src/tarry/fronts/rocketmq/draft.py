"""A message that a producer sends: what is checked of it, and what it is as a row.

Checks, codes and their order are the original's (``SendMessageActivity`` and ``GrpcValidator`` of apache/rocketmq's
proxy; ``HookUtils.handleScheduleMessage`` for the order of delays), but for the longest delay, which is the broker's,
and for properties that name a delay: the original refuses them from gRPC clients, and here they count as they do there
from its other clients.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from tarry.base.delay import DelayLevel, check_due, due_from_delay
from tarry.base.errors import DelayTooLongError, InvalidArgumentError
from tarry.base.message import RESERVED
from tarry.fronts.rocketmq.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    DELAYS,
    KEYS,
    RESERVED_NAMES,
    TRACE_CONTEXT,
    TRANSACTION,
    join_keys,
)
from tarry.fronts.rocketmq.refusal import Code, Refusal
from tarry.fronts.rocketmq.stubs import definition

PROPERTIES_MAX = 128
PROPERTIES_BYTES_MAX = 16 << 10
GROUP_BYTES_MAX = 64
ID_BYTES_MAX = 255
RECOVERY_S_MAX = 3_600
"""The longest wait before an undecided transaction is asked about that a producer may want."""

_TYPE = definition.MessageType
# As plain numbers: an enum's attribute takes as long to look up as the rest of a check.
_UNSPECIFIED, _NORMAL, _FIFO = int(_TYPE.MESSAGE_TYPE_UNSPECIFIED), int(_TYPE.NORMAL), int(_TYPE.FIFO)
_DELAY, _TRANSACTION, _GZIP = int(_TYPE.DELAY), int(_TYPE.TRANSACTION), int(definition.Encoding.GZIP)
_TYPES = frozenset((_UNSPECIFIED, _NORMAL, _FIFO, _DELAY, _TRANSACTION))
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class Rules(NamedTuple):
    """What the broker allows."""

    body_bytes_max: int
    properties_bytes_max: int
    """Of properties, tag, keys, host and trace together; not above :data:`PROPERTIES_BYTES_MAX`."""
    delay_ms_max: int
    levels: tuple[int, ...]
    """What the delay levels mean, in milliseconds."""


class Draft(NamedTuple):
    """One message, checked."""

    topic: str
    due_ms: int
    body: bytes
    id: str
    tag: str | None
    properties: list[tuple[str, str]]
    order_key: str | None
    half: bool
    """It belongs to a transaction that is not decided."""
    recovery_ms: int | None
    """How long its transaction may stay undecided before its producer is asked."""
    delayed: bool


def draft_of(message: Any, topic: str, now_ms: int, rules: Rules, peer: str) -> Draft:
    """Check a ``Message``. ``topic``: its topic's name in the broker. ``peer``: the caller's address.

    Raises:
        Refusal: with the code that the original gives.
    """
    system = message.system_properties
    body = _body(message.body, system.body_encoding, rules.body_bytes_max)
    user = message.user_properties
    size = _check_properties(user) if user else 0
    tag = _tag(system.tag)
    keys = [key for key in system.keys if key]
    if keys:
        _check_keys(keys)
        size += sum(len(key.encode()) for key in keys)
    size += len(tag.encode()) + _bytes_of_others(system)
    if size > rules.properties_bytes_max:
        raise Refusal(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, tag, keys, host and trace have {size} bytes; allowed: {rules.properties_bytes_max}",
        )
    id = system.message_id
    if not id.strip() or len(id.encode()) > ID_BYTES_MAX:
        raise Refusal(Code.ILLEGAL_MESSAGE_ID, f"message_id {id!r:.300}; allowed: 1 to {ID_BYTES_MAX} bytes, not blank")
    kind = system.message_type
    due_ms = _due_ms(system, user, now_ms, rules)
    order_key = system.message_group or None
    if order_key is not None:
        _check_group(order_key)
    _check_type(kind, delayed=due_ms is not None, grouped=order_key is not None)
    return Draft(
        topic,
        now_ms if due_ms is None else due_ms,
        body,
        id,
        tag or None,
        _properties(system, user, keys, peer),
        order_key,
        kind == _TRANSACTION,
        _recovery_ms(system) if kind == _TRANSACTION else None,
        due_ms is not None,
    )


def _body(body: bytes, encoding: int, bytes_max: int) -> bytes:
    if encoding == _GZIP:
        body = _unpacked(body, bytes_max)
    if not body:
        raise Refusal(Code.MESSAGE_BODY_EMPTY, "the message's body is empty; allowed: 1 byte and more")
    if len(body) > bytes_max:
        raise Refusal(Code.MESSAGE_BODY_TOO_LARGE, f"the message's body has {len(body)} bytes; allowed: {bytes_max}")
    return body


def _unpacked(body: bytes, bytes_max: int) -> bytes:
    """Of gzip, or of zlib, which some clients send under gzip's name; bounded, for a bomb says nothing of its size."""
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = unpack.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise Refusal(Code.MESSAGE_CORRUPTED, f"the body's encoding is GZIP, and it is none: {error}") from error
    if len(plain) <= bytes_max and not unpack.eof:
        raise Refusal(Code.MESSAGE_CORRUPTED, f"the body is {len(body)} bytes of gzip that ends too early")
    return plain


def _check_properties(user: Mapping[str, str]) -> int:
    """How many bytes they have."""
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


def _bytes_of_others(system: Any) -> int:
    """Of what a client says of itself, which is kept with the properties."""
    trace = system.trace_context if system.HasField("trace_context") else ""
    return len(system.born_host.encode()) + len(trace.encode())


def _tag(tag: str) -> str:
    if not tag:
        return tag
    if not tag.strip() or "|" in tag or _CONTROL.search(tag):
        raise Refusal(Code.ILLEGAL_MESSAGE_TAG, f"tag {tag!r:.300}; allowed: not blank, no '|', no control characters")
    if len(tag.encode()) > ID_BYTES_MAX:
        raise Refusal(Code.ILLEGAL_MESSAGE_TAG, f"the tag has {len(tag.encode())} bytes; allowed: {ID_BYTES_MAX}")
    return tag


def _check_keys(keys: list[str]) -> None:
    for key in keys:
        if not key.strip() or _CONTROL.search(key):
            raise Refusal(Code.ILLEGAL_MESSAGE_KEY, f"key {key!r:.300}; allowed: not blank, no control characters")


def _check_group(group: str) -> None:
    if not group.strip() or len(group.encode()) >= GROUP_BYTES_MAX or _CONTROL.search(group):
        raise Refusal(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"message group {group!r:.300}; allowed: not blank, below {GROUP_BYTES_MAX} bytes, no control characters",
        )


def _check_type(kind: int, *, delayed: bool, grouped: bool) -> None:
    if kind not in _TYPES:
        known = kind in _TYPE.values()
        raise Refusal(Code.UNSUPPORTED, f"message type {_TYPE.Name(kind) if known else kind} is not supported")
    if kind == _DELAY and not delayed:
        raise Refusal(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "a message of type DELAY needs a delivery timestamp")
    if kind == _FIFO and not grouped:
        raise Refusal(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "a message of type FIFO needs a message group")


def _due_ms(system: Any, user: Mapping[str, str], now_ms: int, rules: Rules) -> int | None:
    """When it is due; None: no delay is asked for."""
    named = next((name for name in DELAYS if name in user), None) if user else None
    if named is None and not system.HasField("delivery_timestamp"):
        return None
    try:
        if named == "DELAY" and (level := _number(named, user)) > 0:
            return due_from_delay(DelayLevel(level), now_ms, rules.levels)
        named = next((name for name in DELAYS[1:] if name in user), None)
        due_ms = _moment(named, user, now_ms) if named else ceil_ms(system.delivery_timestamp)
        return check_due(max(due_ms, 0), now_ms, rules.delay_ms_max)
    except DelayTooLongError as error:
        raise Refusal(Code.ILLEGAL_DELIVERY_TIME, str(error)) from error
    except InvalidArgumentError as error:
        raise Refusal(Code.ILLEGAL_DELIVERY_TIME, str(error)) from error


def _moment(name: str, user: Mapping[str, str], now_ms: int) -> int:
    number = _number(name, user)
    if name == "TIMER_DELIVER_MS":
        return number
    return now_ms + max(0, number * 1000 if name == "TIMER_DELAY_SEC" else number)


def _number(name: str, user: Mapping[str, str]) -> int:
    text = user[name]
    if not re.fullmatch("[+-]?[0-9]{1,18}", text):
        raise Refusal(Code.ILLEGAL_DELIVERY_TIME, f"property {name} is {text!r:.300}; allowed: a whole number")
    return int(text)


def ceil_ms(timestamp: Any) -> int:
    """Milliseconds of a ``Timestamp`` or a ``Duration``, rounded up: a due time must not come early."""
    return int(timestamp.seconds * 1000 - (-timestamp.nanos // 1_000_000))


def _recovery_ms(system: Any) -> int | None:
    if not system.HasField("orphaned_transaction_recovery_duration"):
        return None
    wanted = system.orphaned_transaction_recovery_duration
    if not 0 <= wanted.seconds <= RECOVERY_S_MAX:
        raise Refusal(
            Code.BAD_REQUEST,
            f"orphaned_transaction_recovery_duration is {wanted.seconds} s; allowed: 0 to {RECOVERY_S_MAX}",
        )
    return ceil_ms(wanted)


def _properties(system: Any, user: Mapping[str, str], keys: list[str], peer: str) -> list[tuple[str, str]]:
    found = [(name, value) for name, value in user.items() if name not in DELAYS] if user else []
    if keys:
        found.append((KEYS, join_keys(keys)))
    if system.HasField("trace_context"):
        found.append((TRACE_CONTEXT, system.trace_context))
    found.append((BORN_HOST, system.born_host or peer))
    if system.HasField("born_timestamp"):
        born = system.born_timestamp
        found.append((BORN_TIMESTAMP, str(born.seconds * 1000 + born.nanos // 1_000_000)))
    if system.message_type == _TRANSACTION:
        found.append((TRANSACTION, "true"))
    return found
