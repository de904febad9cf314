"""Messages on their way out: rows of a delivery as the protocol's ``Message``."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5
from itertools import repeat
from typing import Any

import pyarrow as pa

from tarry.api.receipt import id_of
from tarry.base.message import ORDER_KEY
from tarry.fronts.rocketmq.handles import receipt_handle
from tarry.fronts.rocketmq.names import resource_of
from tarry.fronts.rocketmq.properties import (
    BORN_HOST,
    KEYS,
    TRACE_CONTEXT,
    TRANSACTION,
    born_ms_of,
    split_keys,
    user_properties,
)
from tarry.fronts.rocketmq.stubs import definition

_TYPE = definition.MessageType
_NORMAL, _FIFO, _DELAY, _TRANSACTION = int(_TYPE.NORMAL), int(_TYPE.FIFO), int(_TYPE.DELAY), int(_TYPE.TRANSACTION)
_COLUMNS = ("seq", "due_ms", "id", "tag", "properties", "body", "born_ms", "offset")
_NONE: dict[str, str] = {}
DEAD_TOPIC = "tarry.dead.topic"


def messages_of(batch: pa.RecordBatch, asked: Any, host: str, topic: str = "") -> Iterator[Any]:
    """Rows of :data:`tarry.api.views.DELIVERY`, or of :data:`tarry.api.views.QUEUED` for who leases nothing, as
    ``Message``, bodies as the producer meant them.

    Args:
        asked: the topic's ``Resource`` as the client named it.
        host: what the broker calls itself.
        topic: their topic's name, where the one that was asked for stands for several.
    """
    resource = resource_of(asked)
    columns = [batch.column(name).to_pylist() for name in _COLUMNS]
    held = "lease" in batch.schema.names
    leases, attempts = ((batch.column(name).to_pylist() if held else repeat(None)) for name in ("lease", "attempt"))
    for seq, due_ms, id, tag, properties, body, born_ms, offset, lease, attempt in zip(*columns, leases, attempts):  # noqa: B905  repeat() has no end
        own = dict(properties) if properties else _NONE
        system = definition.SystemProperties(
            message_id=id or id_of(seq),
            body_digest=definition.Digest(type=definition.DigestType.MD5, checksum=digest(body)),
            body_encoding=definition.Encoding.IDENTITY,
            message_type=type_of(own, due_ms > born_ms),
            born_host=own.get(BORN_HOST, host),
            store_host=host,
            queue_offset=offset,
            receipt_handle=None if lease is None else receipt_handle(lease, offset, topic),
            delivery_attempt=attempt,
        )
        _stamp(system.born_timestamp, born_ms_of(own, born_ms))
        _stamp(system.store_timestamp, born_ms)
        if due_ms > born_ms:
            _stamp(system.delivery_timestamp, due_ms)
        if tag is not None:
            system.tag = tag
        if own:
            _fill(system, own, id or id_of(seq))
        yield definition.Message(
            topic=resource, user_properties=user_properties(own), system_properties=system, body=body
        )


def _fill(system: Any, own: dict[str, str], id: str) -> None:
    if (keys := own.get(KEYS)) is not None:
        system.keys.extend(split_keys(keys))
    if (group := own.get(ORDER_KEY)) is not None:
        system.message_group = group
    if (trace := own.get(TRACE_CONTEXT)) is not None:
        system.trace_context = trace
    if (topic := own.get(DEAD_TOPIC)) is not None:
        system.dead_letter_queue.topic = topic
        system.dead_letter_queue.message_id = id


def digest(body: bytes) -> str:
    """A body's MD5, in upper case: the one that clients agree about. Of a CRC-32 some leave out zeros at the front."""
    return md5(body, usedforsecurity=False).hexdigest().upper()


def type_of(own: dict[str, str], delayed: bool) -> int:
    """The ``MessageType`` of a message with these properties."""
    if own.get(TRANSACTION) == "true":
        return _TRANSACTION
    if delayed:
        return _DELAY
    return _FIFO if ORDER_KEY in own else _NORMAL


def _stamp(field: Any, ms: int) -> None:
    field.seconds, field.nanos = _parts(ms)


def _parts(ms: int) -> tuple[int, int]:
    return ms // 1000, ms % 1000 * 1_000_000
