"""Pages of series: the pending occurrence of each, in due order, found by the registry.

However many other messages are pending, none of them is looked at. The registry knows all series. Its entries are
checked against the cut: an occurrence that is cancelled or was delivered is not pending.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tarry.api.views import Page
from tarry.base.delay import INT64_MAX
from tarry.base.types import Key
from tarry.broker.queries import cursor as cursors
from tarry.broker.queries.cursor import Cursor
from tarry.broker.queries.cut import Cut
from tarry.broker.queries.listing import PAGE_BYTES_MAX, Listing
from tarry.broker.queries.messages import MessageFinder
from tarry.message.schema import SCHEMA
from tarry.names import NameEntry

READ_S = 0.8
"""Time for searching for occurrences of a topic among those of others.

If each that is read is on the page, the page's length is bound enough.
"""
READ_ROWS = 128


def list_series(cut: Cut, finder: MessageFinder, listing: Listing) -> Page:
    """Return one page of series; ``listing`` asks for nothing but a topic and times.

    Raises:
        CorruptError: a file is damaged.
    """
    end_s = time.monotonic() + READ_S
    rows: list[pa.RecordBatch] = []
    size, others, cursor = 0, 0, None
    columns = [name for name in SCHEMA.names if listing.bodies or name != "body"]
    for key, row in _rows(cut, finder, listing, columns):
        is_late = row is None and others and time.monotonic() >= end_s
        if len(rows) == listing.limit or size >= PAGE_BYTES_MAX or is_late:
            cursor = cursors.encode(Cursor(listing.start.step, key))
            break
        if row is not None and listing.wanted.mask(row)[0]:
            rows.append(row)
            size += row.nbytes
        elif row is not None:
            others += 1
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    page = pa.concat_batches(rows) if rows else pa.RecordBatch.from_pylist([], schema=schema)
    if not listing.bodies:
        none = pa.array([b""] * page.num_rows, pa.binary())
        page = page.add_column(SCHEMA.get_field_index("body"), SCHEMA.field("body"), none)
    return Page(page, cursor)


def _rows(
    cut: Cut, finder: MessageFinder, listing: Listing, columns: Sequence[str]
) -> Iterator[tuple[Key, pa.RecordBatch | None]]:
    """Yield pending occurrences with their places, in order.

    Before some are read, yields the place of the first with None.
    """
    for instant in _by_instant(cut, listing):
        for start in range(0, len(instant), READ_ROWS):
            part = instant[start : start + READ_ROWS]
            yield Key(part[0].due_ms, part[0].seq), None
            found = finder.find(part, columns)
            yield from ((Key(e.due_ms, e.seq), found[e.seq]) for e in part if e.seq in found)


def _by_instant(cut: Cut, listing: Listing) -> Iterator[list[NameEntry]]:
    """Pending occurrences from the listing's start on, in order: at least all of an instant at a time."""
    start, until = max(listing.start.key, cut.fired), listing.until
    waiting: list[NameEntry] = []
    for entries in cut.registry.series_from(start.due_ms, min(until.due_ms, INT64_MAX - 1) + 1):
        # The registry has those of an instant by series; they are complete when one of a later instant comes.
        waiting += entries
        last_ms = max((entry.due_ms for entry in waiting), default=0)
        yield _pending(cut, [e for e in waiting if e.due_ms < last_ms], start, until)
        waiting = [e for e in waiting if e.due_ms == last_ms]
    yield _pending(cut, waiting, start, until)


def _pending(cut: Cut, entries: list[NameEntry], start: Key, until: Key) -> list[NameEntry]:
    unique = {Key(e.due_ms, e.seq): e for e in entries}
    within = [unique[key] for key in sorted(unique) if start <= key < until]
    if not within:
        return []
    due, seq = np.array([e.due_ms for e in within], np.int64), np.array([e.seq for e in within], np.int64)
    pending = cut.alive(due, seq)
    return [entry for entry, is_pending in zip(within, pending.tolist(), strict=True) if is_pending]
