"""The trace that a message belongs to: its property ``traceparent``, by W3C's Trace Context.

https://www.w3.org/TR/trace-context/: ``00-TRACE-SPAN-FLAGS``, in lower-case hexadecimal digits. The broker hands it on
as it came: OpenTelemetry's conventions for messaging call it the message's creation context, which no intermediary
changes. The number of the broker's own span is made from it, so that consumers can compute it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.message.properties import entries_of

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
_FORM = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_SAMPLED = 0x01
_FEW_ENTRIES = 64
"""Up to here, a look at each takes less time than a kernel."""


class TraceContext(NamedTuple):
    """The producer's span: numbers of trace and span, neither 0; and whether spans are recorded."""

    trace_id: int
    span_id: int
    is_sampled: bool


def parse_traceparent(text: str) -> TraceContext | None:
    """Return what a ``traceparent`` says; None: it is not one, and there is no trace to belong to.

    Version 00 is exactly its four fields; of a later version more may follow, which is passed over.
    """
    found = _FORM.fullmatch(text)
    if found is None or (found[1] == "00" and found[5]):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(int(found[4], 16) & _SAMPLED))


def sampled_rows(properties: pa.Array) -> Iterator[tuple[int, TraceContext]]:
    """Yield the rows of a column of properties whose ``traceparent`` is sampled, each with what that says."""
    if properties.null_count == len(properties):
        return
    starts, low, keys, items = entries_of(properties)
    if len(keys) <= _FEW_ENTRIES:
        found = [at for at, key in enumerate(keys.to_pylist()) if key == TRACEPARENT]
    else:
        found = np.flatnonzero(pc.equal(keys, TRACEPARENT).to_numpy(zero_copy_only=False)).tolist()
    if not found:
        return
    last = -1
    for at, text in zip(found, items.take(pa.array(found)).to_pylist(), strict=True):
        context = parse_traceparent(text)
        if context is None or not context.is_sampled:
            continue
        row = int(np.searchsorted(starts, low + at, side="right")) - 1
        # A null row may span entries; and of a name that is there twice, the first that is sampled counts.
        if row != last and properties[row].is_valid:
            last = row
            yield row, context


def wait_span_id(producer: TraceContext, topic: str, group: str, seq: int) -> int:
    """Return the number of the broker's span of a message's wait for a group; the same for each hand-out."""
    text = f"{producer.trace_id:032x}{producer.span_id:016x} {topic} {group} {seq}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") or 1
