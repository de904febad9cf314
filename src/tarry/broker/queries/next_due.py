"""Next due time of each topic. Looked up when asked; nothing is kept for it.

The wheel answers for most topics. For the others, intake and store are gone through in due order, side by side: each
only as far as the answer, wherever that is.
"""

from __future__ import annotations

import time
from functools import partial

import pyarrow as pa

from tarry.base.types import Key
from tarry.broker.queries.cut import Cut, Places, look_at
from tarry.intake.index import Window
from tarry.message.schema import Kind
from tarry.store.due import COLUMNS, Firsts, note_firsts

BUDGET_S = 1.0
ROWS = 8192
_LAST = Key((1 << 63) - 1, 0)


def next_due_by_topic(places: Places, topics: set[str]) -> dict[str, int]:
    """Return the earliest pending due time of each of ``topics``.

    A topic whose time is not found within a time budget is left out.

    Raises as :func:`look_at` does.
    """
    return look_at(places, lambda cut: _next_due(cut, topics)) if topics else {}


def _next_due(cut: Cut, topics: set[str]) -> dict[str, int]:
    end = time.monotonic() + BUDGET_S
    firsts = _in_wheel(cut, topics)
    sources: list[Firsts | _Intake] = [Firsts(cut.snapshot, cut.safe, cut.alive), _Intake(cut)]
    sources += [Firsts(rows.snapshot, rows.low, partial(cut.alive_of, rows)) for rows in cut.unbrought]
    while True:
        soonest = min(sources, key=_frontier)
        frontier = _frontier(soonest)
        wanted = {t for t in topics if firsts.get(t, _LAST.due_ms) > frontier}
        if not wanted or frontier == _LAST.due_ms:
            return firsts
        if time.monotonic() > end:
            return {t: due for t, due in firsts.items() if t not in wanted}
        soonest.advance(wanted, firsts)


def _frontier(source: Firsts | _Intake) -> int:
    return _LAST.due_ms if source.frontier is None else source.frontier


def _in_wheel(cut: Cut, topics: set[str]) -> dict[str, int]:
    firsts: dict[str, int] = {}
    parts = [p.batch.select(COLUMNS).slice(0, p.below(cut.safe)) for p in cut.pieces]
    if parts:
        batch = pa.Table.from_batches(parts).combine_chunks().to_batches()
        for part in batch:
            note_firsts(part, Key(-_LAST.due_ms, 0), topics, cut.alive_in_wheel, firsts)
    return firsts


class _Intake:
    """The intake, in due order, so many rows at a time."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._after: Key | None = cut.safe

    @property
    def frontier(self) -> int | None:
        """Due time below which all messages were looked at; None: all were."""
        return None if self._after is None else self._after.due_ms

    def advance(self, wanted: set[str], firsts: dict[str, int]) -> None:
        """Look at the next rows; as :meth:`Firsts.advance`."""
        cut, after = self._cut, self._after
        assert after is not None
        window = Window(after, _LAST, cut.snapshot.committed_seq, cut.seq_max)
        due, seq, complete = cut.intake.select(window, ROWS)
        more = not complete or len(seq) > ROWS
        due, seq = due[:ROWS], seq[:ROWS]
        self._after = Key(int(due[-1]), int(seq[-1]) + 1) if more else None
        batch = cut.intake.read_columns(seq, [*COLUMNS, "kind"])
        messages = batch.column("kind").to_numpy() == Kind.MESSAGE
        note_firsts(batch.filter(pa.array(messages)), after, wanted, cut.alive, firsts)
