"""Checks of a protobuf ``Message`` that a producer sends.

See :mod:`tarry.fronts.rocketmq.common.draft`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from tarry.base.clock import Clock
from tarry.fronts.rocketmq.common.draft import (
    ID_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    Draft,
    DraftRules,
    check_body,
    check_keys,
    check_order_key,
    check_properties,
    check_tag,
    due_ms_of,
    spread_due_ms,
)
from tarry.fronts.rocketmq.common.half_messages import kept_properties
from tarry.fronts.rocketmq.common.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    DELAYS,
    DELIVER_MS,
    KEYS,
    TRACE_CONTEXT,
    TRANSACTION,
    asked_delay,
    join_keys,
)
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.stubs import definition
from tarry.fronts.rocketmq.common.unpacking import GZIP, Unpacker

RECOVERY_S_MAX = 3_600
"""Longest time that a producer may set before it is asked about an undecided transaction."""

_TYPE = definition.MessageType
# Plain numbers: looking up an enum's attribute takes as long as the rest of a check.
_UNSPECIFIED, _NORMAL, _FIFO = int(_TYPE.MESSAGE_TYPE_UNSPECIFIED), int(_TYPE.NORMAL), int(_TYPE.FIFO)
_DELAY, _TRANSACTION, _GZIP = int(_TYPE.DELAY), int(_TYPE.TRANSACTION), int(definition.Encoding.GZIP)
_NONE: Mapping[str, str] = {}
_CHARACTER_BYTES_MAX = 4
"""Bytes of a character in UTF-8, at most."""
_FREE_TYPES = frozenset((_UNSPECIFIED, _NORMAL, _TRANSACTION))
"""Types that a message may have whatever its other fields are."""
_TYPES = frozenset((_UNSPECIFIED, _NORMAL, _FIFO, _DELAY, _TRANSACTION))


def draft_of(message: Any, topic: str, clock: Clock, rules: DraftRules, peer: str, unpacker: Unpacker) -> Draft:
    """Check a ``Message``, and return its draft.

    ``topic``: its topic's name in the broker. ``peer``: the caller's address.

    Raises:
        Refusal: with the code that RocketMQ gives.
    """
    now_ms = clock.now_ms()
    system = message.system_properties
    body = message.body
    if system.body_encoding == _GZIP:
        body = unpacker.unpack(body, GZIP)
    check_body(body, rules.body_bytes_max)
    user: Mapping[str, str] = message.user_properties or _NONE
    size = check_properties(user) if user else 0
    tag = system.tag
    if tag:
        size += len(check_tag(tag).encode())
    keys = [key for key in named if key] if (named := system.keys) else []
    if keys:
        check_keys(keys)
        size += sum(len(key.encode()) for key in keys)
    if size > PROPERTIES_BYTES_MAX:
        raise Refusal(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"user properties, tag and keys have {size} bytes; allowed: {PROPERTIES_BYTES_MAX}",
        )
    id = system.message_id
    if not id.strip() or len(id.encode()) > ID_BYTES_MAX:
        raise Refusal(Code.ILLEGAL_MESSAGE_ID, f"message_id {id!r:.300}; allowed: 1 to {ID_BYTES_MAX} bytes, not blank")
    kind = system.message_type
    timestamp_ms = ceil_ms(system.delivery_timestamp) if system.HasField("delivery_timestamp") else None
    due_ms = due_ms_of(user, timestamp_ms, clock, rules)
    if user:
        due_ms = spread_due_ms(user, due_ms, id, clock, rules)
    order_key = system.message_group or None
    if order_key is not None:
        check_order_key(order_key)
    if kind not in _FREE_TYPES:
        _check_type(kind, delayed=due_ms is not None, grouped=order_key is not None)
    properties = _properties(system, user, keys, peer)
    asked = asked_delay(user, due_ms, now_ms, len(rules.levels)) if due_ms is not None else []
    # A half message keeps its time of delivery in any case.
    properties += [pair for pair in asked if kind != _TRANSACTION or pair[0] != DELIVER_MS]
    draft = Draft(
        topic,
        now_ms if due_ms is None else due_ms,
        body,
        id,
        tag or None,
        properties,
        order_key,
        kind == _TRANSACTION,
        _recovery_ms(system) if kind == _TRANSACTION else None,
        due_ms is not None,
    )
    _check_stored(draft, rules.properties_bytes_max)
    return draft


def _check_stored(draft: Draft, bytes_max: int) -> None:
    """Check that all properties that the broker would store are within its own limit."""
    if not draft.half and _CHARACTER_BYTES_MAX * sum(map(len, chain.from_iterable(draft.properties))) <= bytes_max:
        return  # the usual case: known without encoding any text
    properties = draft.properties + kept_properties(draft) if draft.half else draft.properties
    size = sum(len(name.encode()) + len(value.encode()) for name, value in properties)
    if size > bytes_max:
        raise Refusal(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, keys, host and trace have {size} bytes as they are stored; "
            f"allowed: {bytes_max} (properties_bytes_max)",
        )


def _check_type(kind: int, *, delayed: bool, grouped: bool) -> None:
    if kind not in _TYPES:
        has_name = kind in _TYPE.values()
        raise Refusal(Code.UNSUPPORTED, f"message type {_TYPE.Name(kind) if has_name else kind} is not supported")
    if kind == _DELAY and not delayed:
        raise Refusal(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "a message of type DELAY needs a delivery timestamp")
    if kind == _FIFO and not grouped:
        raise Refusal(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "a message of type FIFO needs a message group")


def ceil_ms(timestamp: Any) -> int:
    """Return a ``Timestamp`` or a ``Duration`` in milliseconds, rounded up: never early."""
    return int(timestamp.seconds * 1000 - (-timestamp.nanos // 1_000_000))


def _recovery_ms(system: Any) -> int | None:
    if not system.HasField("orphaned_transaction_recovery_duration"):
        return None
    recovery = system.orphaned_transaction_recovery_duration
    if not 0 <= recovery.seconds <= RECOVERY_S_MAX:
        raise Refusal(
            Code.BAD_REQUEST,
            f"orphaned_transaction_recovery_duration is {recovery.seconds} s; allowed: 0 to {RECOVERY_S_MAX}",
        )
    return ceil_ms(recovery)


def _properties(system: Any, user: Mapping[str, str], keys: list[str], peer: str) -> list[tuple[str, str]]:
    # One without a name is left out, as RocketMQ does when it reads messages (string2messageProperties).
    properties = [(name, value) for name, value in user.items() if name and name not in DELAYS] if user else []
    if keys:
        properties.append((KEYS, join_keys(keys)))
    if system.HasField("trace_context"):
        properties.append((TRACE_CONTEXT, system.trace_context))
    properties.append((BORN_HOST, system.born_host or peer))
    if system.HasField("born_timestamp"):
        born = system.born_timestamp
        properties.append((BORN_TIMESTAMP, str(born.seconds * 1000 + born.nanos // 1_000_000)))
    if system.message_type == _TRANSACTION:
        properties.append((TRANSACTION, "true"))
    return properties
