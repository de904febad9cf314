"""Messages as the protobuf library makes them: what ``message_bytes`` of the v5 front is held against."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pyarrow as pa

from tarry.fronts.rocketmq.common.properties import (
    BORN_HOST,
    KEYS,
    TRACE_CONTEXT,
    born_ms_of,
    deliver_ms_of,
    split_keys,
    user_properties,
)
from tarry.fronts.rocketmq.common.stubs import definition
from tarry.fronts.rocketmq.v5.handles import receipt_handle
from tarry.fronts.rocketmq.v5.message_bytes import DEAD_TOPIC, digest, type_of
from tarry.fronts.rocketmq.v5.resources import copy_of
from tarry.message.options import ORDER_KEY
from tarry.message.receipt import id_of

_COLUMNS = ("seq", "due_ms", "id", "tag", "properties", "body", "born_ms", "offset")


def messages_of(batch: pa.RecordBatch, asked_topic: Any, host: str, topic: str = "") -> Iterator[Any]:
    """Rows of :data:`tarry.api.row_schemas.DELIVERY`, or of :data:`tarry.api.row_schemas.QUEUED` for who leases
    nothing, as ``Message``, bodies as the producer meant them.

    Args:
        asked_topic: the topic's ``Resource`` as the client named it.
        host: what the broker calls itself.
        topic: their topic's name, where the one that was asked for stands for several.
    """
    resource = copy_of(asked_topic)
    columns = [batch.column(name).to_pylist() for name in _COLUMNS]
    leased = "lease" in batch.schema.names
    leases, attempts = ((batch.column(name).to_pylist() if leased else repeat(None)) for name in ("lease", "attempt"))
    for seq, due_ms, id, tag, properties, body, born_ms, offset, lease, attempt in zip(*columns, leases, attempts):  # noqa: B905  repeat() has no end
        stored = dict(properties) if properties else {}
        deliver_ms = due_ms if due_ms > born_ms else deliver_ms_of(stored)
        system = definition.SystemProperties(
            message_id=id or id_of(seq),
            body_digest=definition.Digest(type=definition.DigestType.MD5, checksum=digest(body)),
            body_encoding=definition.Encoding.IDENTITY,
            message_type=type_of(stored, deliver_ms is not None),
            born_host=stored.get(BORN_HOST, host),
            store_host=host,
            queue_offset=offset,
            receipt_handle=None if lease is None else receipt_handle(lease, offset, topic),
            delivery_attempt=attempt,
        )
        _set_timestamp(system.born_timestamp, born_ms_of(stored, born_ms))
        _set_timestamp(system.store_timestamp, born_ms)
        if deliver_ms is not None:
            _set_timestamp(system.delivery_timestamp, deliver_ms)
        if tag is not None:
            system.tag = tag
        if stored:
            _fill(system, stored, id or id_of(seq))
        yield definition.Message(
            topic=resource, user_properties=user_properties(stored), system_properties=system, body=body
        )


def _fill(system: Any, stored: dict[str, str], id: str) -> None:
    if (keys := stored.get(KEYS)) is not None:
        system.keys.extend(split_keys(keys))
    if (group := stored.get(ORDER_KEY)) is not None:
        system.message_group = group
    if (trace := stored.get(TRACE_CONTEXT)) is not None:
        system.trace_context = trace
    if (topic := stored.get(DEAD_TOPIC)) is not None:
        system.dead_letter_queue.topic = topic
        system.dead_letter_queue.message_id = id


def _set_timestamp(field: Any, ms: int) -> None:
    field.seconds, field.nanos = ms // 1000, ms % 1000 * 1_000_000
