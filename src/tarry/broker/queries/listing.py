"""Pages of pending messages by due time: each message once, whatever moves meanwhile.

A page is the next part of that order, found in a :class:`Cut`. As each cut has every pending message in one place, and
pages are parts of the order that do not overlap, a message that is pending all the time is on exactly one page.

Work is bounded by time. A page has the rows found by then, and its cursor is the place up to which all were found.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tarry.api.bounds import PAGE
from tarry.api.operations import ListPending
from tarry.api.views import Page
from tarry.base.errors import InvalidArgumentError
from tarry.base.types import Int64s, Key, count_before
from tarry.broker.queries import cursor as cursors
from tarry.broker.queries.cursor import Cursor
from tarry.broker.queries.cut import CUTS, Cut, Places, look_at
from tarry.broker.queries.sources import InIntake, InJobs, InStore, InWheel, Source
from tarry.message.criteria import Criteria, derived_seq
from tarry.message.schema import SCHEMA
from tarry.message.topics import check_topic
from tarry.names import name_of_key
from tarry.store.scan import Found

FIND_S = 0.4
"""Time for finding rows, and then, as long again, for reading them."""
READ_S = 0.8
PAGE_BYTES_MAX = 16 << 20
"""A page ends where its messages are more than this; a message may be larger."""
_LAST_MS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Listing:
    """A checked request for a page."""

    wanted: Criteria
    first: Key
    start: Cursor
    until: Key
    limit: int
    bodies: bool

    @classmethod
    def of(cls, request: ListPending) -> Listing:
        """Check a request.

        Raises:
            InvalidArgumentError: names the argument, its value and what is allowed.
        """
        topic, key, id, tag = request.topic, request.key, request.id, request.tag
        after_ms, until_ms, limit, cursor = request.after_ms, request.until_ms, request.limit, request.cursor
        if topic is not None:
            check_topic(topic)
        for name, value in (("key", key), ("id", id), ("tag", tag)):
            if value is not None and not isinstance(value, str):
                raise InvalidArgumentError(f"{name} is {value!r:.80}; allowed: a text")
        for name, moment in (("after_ms", after_ms), ("until_ms", until_ms)):
            if moment is not None and not _is_int64(moment):
                raise InvalidArgumentError(f"{name} is {moment!r:.80}; allowed: UTC milliseconds, 64 bits")
        PAGE.check("limit", limit)
        if after_ms is not None and until_ms is not None and after_ms > until_ms:
            raise InvalidArgumentError(f"after_ms is {after_ms}, until_ms {until_ms}; allowed: after_ms up to until_ms")
        first = Key(-_LAST_MS if after_ms is None else after_ms, -_LAST_MS)
        start = Cursor(0, first) if cursor is None else cursors.decode(cursor)
        start = Cursor(start.step, max(start.key, first))
        until = Key(_LAST_MS if until_ms is None else until_ms, -_LAST_MS)
        wanted = Criteria(topic, key, id, tag, repeating=bool(request.repeating))
        return cls(wanted, first, start, until, limit, request.bodies)

    def within(self, place: tuple[Key, Key]) -> Listing:
        """Return the same listing, cut to ``place``: from its first key to before its second."""
        start = self.start._replace(key=max(self.start.key, place[0]))
        return replace(self, start=start, until=min(self.until, place[1]))


_NOWHERE = (Key(_LAST_MS, 0), Key(_LAST_MS, 0))


def list_pending(places: Places, listing: Listing) -> Page:
    """Return one page; raises as :func:`look_at` does."""
    for _ in range(CUTS):
        place = _place_of_key(places, listing.wanted)
        asked = listing if place is None else listing.within(place)
        page = look_at(places, lambda cut, asked=asked: _page(cut, asked))  # type: ignore[misc]
        if place == _place_of_key(places, listing.wanted):
            break
    return page


def _place_of_key(places: Places, wanted: Criteria) -> tuple[Key, Key] | None:
    """Return the place of the message that is pending under a key in a topic; None if no key is given.

    The message may be replaced while it is looked for. A search that finds it at the same place before and after has
    seen all there was.
    """
    if wanted.topic is None or wanted.key is None:
        return None
    [entry] = places.registry.get([name_of_key(wanted.topic, wanted.key)])
    if entry is None:
        return _NOWHERE
    return Key(entry.due_ms, entry.seq), Key(entry.due_ms, entry.seq + 1)


def _page(cut: Cut, listing: Listing) -> Page:
    began = time.monotonic()
    wanted, start = listing.wanted, listing.start
    seq = None if wanted.id is None or start.step else derived_seq(wanted.id)
    if seq is not None:
        # An id that looks like the broker's own is first looked for as that, which takes no search through all there
        # is; a producer may have given one of that form, too.
        page = _look(cut, replace(wanted, id=None, seq=seq), Cursor(0, start.key), listing, began)
        if page.rows.num_rows or page.cursor is not None:
            return Page(page.rows, None if page.rows.num_rows else page.cursor)
        start = Cursor(1, listing.first)
    return _look(cut, wanted, start, listing, began)


def _look(cut: Cut, wanted: Criteria, start: Cursor, listing: Listing, began: float) -> Page:
    after, until = start.key, listing.until
    sources: list[Source] = []
    parts: list[Found] = []
    count = 0
    early: list[Source] = [InWheel(cut, wanted), *(InJobs(cut, wanted, rows) for rows in cut.unbrought)]
    for source in (*early, InStore(cut, wanted), InIntake(cut, wanted)):
        # The wheel has what comes first, as a rule: often that is enough.
        if len(sources) == len(early) and count > listing.limit:
            break
        sources.append(source)
        parts.append(source.find(after, until, listing.limit + 1, began + FIND_S))
        count += count_before(parts[-1].due_ms, parts[-1].seq, cut.safe)
    return _Rows(sources, parts).page(listing, start.step, began + READ_S)


class _Rows:
    """Rows that all sources found, merged in the order of (due time, seq)."""

    def __init__(self, sources: list[Source], parts: list[Found]) -> None:
        reached = min((Key(*f.reached) for f in parts if f.reached is not None), default=None)
        due = np.concatenate([f.due_ms for f in parts])
        seq = np.concatenate([f.seq for f in parts])
        order = np.lexsort((seq, due))
        if reached is not None:
            below = (due < reached.due_ms) | ((due == reached.due_ms) & (seq < reached.seq))
            order = order[below[order]]
        self._sources = sources
        self._reached = reached
        self._due, self._seq = due[order], seq[order]
        self._origin = np.repeat(np.arange(len(parts)), [len(f.seq) for f in parts])[order]
        self._place = np.concatenate([f.place for f in parts])[order]

    def page(self, listing: Listing, step: int, deadline_s: float) -> Page:
        columns = [name for name in SCHEMA.names if listing.bodies or name != "body"]
        rows = min(listing.limit, len(self._seq))
        batch = self._read(rows, columns, deadline_s)
        if batch.num_rows < len(self._seq):
            at = batch.num_rows
            reached: Key | None = Key(int(self._due[at]), int(self._seq[at]))
        else:
            reached = self._reached
        if not listing.bodies:
            none = pa.array([b""] * batch.num_rows, pa.binary())
            batch = batch.add_column(SCHEMA.get_field_index("body"), SCHEMA.field("body"), none)
        return Page(batch, None if reached is None else cursors.encode(Cursor(step, reached)))

    def _read(self, rows: int, columns: Sequence[str], deadline_s: float) -> pa.RecordBatch:
        """Return the first ``rows`` rows; fewer if time or memory is used up before."""
        units = self._units(rows)
        parts: list[pa.RecordBatch] = []
        read: list[Int64s] = []
        done: set[tuple[int, int]] = set()
        size = 0
        for at in range(rows):
            unit = int(units[at, 0]), int(units[at, 1])
            if unit in done:
                continue
            if parts and (size >= PAGE_BYTES_MAX or time.monotonic() >= deadline_s):
                rows = at
                break
            done.add(unit)
            rows_of_unit = np.flatnonzero((units == unit).all(axis=1))
            part = self._sources[unit[0]].read(self._place[rows_of_unit], columns)
            parts.append(part)
            read.append(rows_of_unit)
            size += part.nbytes
        if not parts:
            return pa.RecordBatch.from_pylist([], schema=pa.schema([SCHEMA.field(name) for name in columns]))
        order = np.argsort(np.concatenate(read))[:rows]
        return pa.concat_batches(parts).take(pa.array(order, pa.int64()))

    def _units(self, rows: int) -> Int64s:
        """Return source and unit number of each of the first ``rows`` rows: shape (rows, 2)."""
        units = np.zeros((rows, 2), np.int64)
        units[:, 0] = self._origin[:rows]
        for number, source in enumerate(self._sources):
            chosen = np.flatnonzero(self._origin[:rows] == number)
            units[chosen, 1] = source.units(self._place[chosen])
        return units


def _is_int64(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63
