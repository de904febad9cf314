"""Late messages: which of those that would be handed out have expired, and what is to become of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tarry.api.groups import TopicSettings
from tarry.base.delay import INT64_MAX
from tarry.base.message import LATE, LATE_WAYS, SCHEMA
from tarry.base.reserved import values_of
from tarry.base.types import Mask

EXPIRE_COLUMN = SCHEMA.get_field_index("expire_ms")
_DELIVER, _DROP, _DEAD = range(len(LATE_WAYS))


def overdue(batch: pa.RecordBatch, now_ms: int, settings: TopicSettings | None) -> tuple[Mask, Mask] | None:
    """Which rows are to be dropped, and which go to the dead letters; None for none.

    A message's own expiry counts before the topic's, and so does what it says should become of it.
    """
    limit = -1 if settings is None else settings.lateness_ms_max
    own = batch.column(EXPIRE_COLUMN)
    if own.null_count == batch.num_rows and limit < 0:
        return None
    expire = own.fill_null(INT64_MAX).to_numpy()
    if limit >= 0:
        # Beyond the limit: a message that is late by just that much is delivered.
        by_topic = batch.column("due_ms").to_numpy() + (limit + 1)
        expire = np.where(own.is_null().to_numpy(zero_copy_only=False), by_topic, expire)
    late = expire <= now_ms
    if not late.any():
        return None
    default = settings.late if settings is not None and settings.late else "drop"
    ways = np.full(batch.num_rows, LATE_WAYS.index(default), np.int8)
    own_ways = values_of(batch.column("properties"), LATE)
    if own_ways is not None:
        rows, texts = own_ways
        ways[rows] = [LATE_WAYS.index(t if t in LATE_WAYS else default) for t in texts.to_pylist()]
    return late & (ways == _DROP), late & (ways == _DEAD)
