"""Due times of herds, spread: each message is moved by a part of a span, and never back.

The part follows from the message's id, or else from its key, so that the same message sent again has the same time. One
without either is moved by chance. It is chosen when the message is accepted: the due time in its receipt is final.
"""

from __future__ import annotations

from hashlib import blake2b
from secrets import randbelow

import numpy as np
import pyarrow as pa

from tarry.base.errors import InvalidMessageError
from tarry.message.columns import integers
from tarry.repeat import SPREAD_MS_MAX


def offset_ms(spread_ms: int, name: str | None) -> int:
    """Return by how much a message is moved: from 0 to below ``spread_ms``, by its name; None: by chance."""
    if spread_ms <= 1:
        return 0
    if name is None:
        return randbelow(spread_ms)
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) % spread_ms


def spread_of(column: pa.Array) -> pa.Array:
    """Return the column ``spread_ms``, checked.

    Raises:
        InvalidMessageError: names the row and what is allowed.
    """
    spans = integers(column, "spread_ms", pa.int64(), 0)
    for row, span_ms in enumerate(spans.to_pylist()):
        if span_ms is not None and span_ms > SPREAD_MS_MAX:
            raise InvalidMessageError(f"spread_ms is {span_ms}; allowed: up to {SPREAD_MS_MAX} (a day)", row=row)
    return spans


def offsets_of(spans: pa.Array, ids: pa.Array | None, keys: pa.Array | None) -> pa.Array:
    """Return by how much each message is moved, in milliseconds; ``spans``: of :func:`spread_of`."""
    nothing: list[str | None] = [None] * len(spans)
    by_id = nothing if ids is None else ids.to_pylist()
    by_key = nothing if keys is None else keys.to_pylist()
    found = [
        offset_ms(span_ms or 0, by_key[row] if name is None else name)
        for row, (span_ms, name) in enumerate(zip(spans.to_pylist(), by_id, strict=True))
    ]
    return pa.array(np.array(found, np.int64))
