"""Answers with messages for consumers, encoded as the protobuf library would encode them.

Every message that is handed out is encoded here, and the library takes four times as long; a property test checks that
it writes the same bytes.

Source: ``GrpcConverter`` of apache/rocketmq's proxy; ``SystemProperties`` and ``Message`` of apache/rocketmq-apis'
``definition.proto``. A field begins with its number and wire type in a varint; fields stand in the order of their
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import md5
from itertools import repeat
from typing import Any

import pyarrow as pa

from tarry.base.protobuf import varint
from tarry.fronts.rocketmq.common.properties import (
    BORN_HOST,
    KEYS,
    TRACE_CONTEXT,
    TRANSACTION,
    born_ms_of,
    deliver_ms_of,
    split_keys,
    user_properties,
)
from tarry.fronts.rocketmq.common.stubs import definition
from tarry.fronts.rocketmq.v5.answer_bytes import text
from tarry.fronts.rocketmq.v5.handles import receipt_handle
from tarry.fronts.rocketmq.v5.resources import copy_of
from tarry.message.options import ORDER_KEY
from tarry.message.receipt import id_of
from tarry.message.reserved import DEAD_TOPIC

_TYPE = definition.MessageType
_NORMAL, _FIFO, _DELAY, _TRANSACTION = int(_TYPE.NORMAL), int(_TYPE.FIFO), int(_TYPE.DELAY), int(_TYPE.TRANSACTION)
_COLUMNS = ("seq", "due_ms", "id", "tag", "properties", "body", "born_ms", "offset")


def answers_of(
    batch: pa.RecordBatch, asked_topic: Any, host: str, topic: str = "", *, pushed: bool = False
) -> Iterator[bytes]:
    """Yield a ``ReceiveMessageResponse`` or a ``PullMessageResponse`` for each row of a batch.

    The rows are those of :data:`tarry.api.row_schemas.DELIVERY`, or of :data:`tarry.api.row_schemas.QUEUED` for
    consumers that lease nothing. Bodies are as the producer meant them.

    Args:
        asked_topic: the topic's ``Resource`` as the client named it.
        host: what the broker calls itself.
        topic: their topic's name, where the one that was asked for stands for several.
        pushed: they are for a push consumer.
    """
    packed = copy_of(asked_topic).SerializeToString()
    resource = b"\x0a%b%b" % (varint(len(packed)), packed)
    place = text(b"\x52", host)
    columns = [batch.column(name).to_pylist() for name in _COLUMNS]
    leased = "lease" in batch.schema.names
    leases, attempts = ((batch.column(name).to_pylist() if leased else repeat(None)) for name in ("lease", "attempt"))
    for seq, due_ms, id, tag, properties, body, born_ms, offset, lease, attempt in zip(*columns, leases, attempts):  # noqa: B905  repeat() has no end
        stored = dict(properties) if properties else {}
        name = id or id_of(seq)
        deliver_ms = due_ms if due_ms > born_ms else deliver_ms_of(stored)
        system = b"".join(
            (
                b"" if tag is None else text(b"\x0a", tag),
                b"".join(text(b"\x12", key) for key in split_keys(stored[KEYS])) if KEYS in stored else b"",
                text(b"\x1a", name),
                b"\x22\x24\x08\x02\x12\x20%b\x28\x01" % digest(body).encode(),
                b"\x30%b\x3a" % varint(type_of(stored, deliver_ms is not None)),
                _timestamp(born_ms_of(stored, born_ms)),
                text(b"\x42", stored.get(BORN_HOST, host)),
                b"\x4a",
                _timestamp(born_ms),
                place,
                b"" if deliver_ms is None else b"\x5a" + _timestamp(deliver_ms),
                b"" if lease is None else text(b"\x62", receipt_handle(lease, offset, topic, pushed=pushed)),
                b"\x70%b" % varint(offset),
                b"" if attempt is None else b"\x80\x01%b" % varint(attempt),
                _rare_fields(stored, name) if stored else b"",
            )
        )
        users = b"".join([_entry(name, value) for name, value in user_properties(stored).items()])
        message = b"%b%b\x1a%b%b" % (resource, users, varint(len(system)), system)
        if body:
            message = b"%b\x22%b%b" % (message, varint(len(body)), body)
        yield b"\x12%b%b" % (varint(len(message)), message)


def _rare_fields(stored: dict[str, str], id: str) -> bytes:
    """Encode fields that few messages have: message group, trace, and a dead letter's origin."""
    fields = text(b"\x8a\x01", stored[ORDER_KEY]) if ORDER_KEY in stored else b""
    if TRACE_CONTEXT in stored:
        fields += text(b"\x92\x01", stored[TRACE_CONTEXT])
    if DEAD_TOPIC in stored:
        dead_letter = text(b"\x0a", stored[DEAD_TOPIC]) + text(b"\x12", id)
        fields += b"\xa2\x01%b%b" % (varint(len(dead_letter)), dead_letter)
    return fields


def digest(body: bytes) -> str:
    """Return a body's MD5 in upper case, the digest that all clients agree on.

    Some clients leave out the leading zeros of a CRC-32.
    """
    return md5(body, usedforsecurity=False).hexdigest().upper()


def type_of(stored: dict[str, str], delayed: bool) -> int:
    """Return the ``MessageType`` of a message with these properties."""
    if stored.get(TRANSACTION) == "true":
        return _TRANSACTION
    if delayed:
        return _DELAY
    return _FIFO if ORDER_KEY in stored else _NORMAL


def _entry(name: str, value: str) -> bytes:
    """Encode an entry of ``user_properties``."""
    pair = text(b"\x0a", name) + text(b"\x12", value)
    return b"\x12%b%b" % (varint(len(pair)), pair)


@lru_cache(maxsize=4096)
def _timestamp(ms: int) -> bytes:
    """Encode a ``Timestamp`` with its length. Cached, since the messages of a batch share few times."""
    seconds, nanos = ms // 1000, ms % 1000 * 1_000_000
    stamp = (b"\x08" + varint(seconds) if seconds else b"") + (b"\x10" + varint(nanos) if nanos else b"")
    return varint(len(stamp)) + stamp
