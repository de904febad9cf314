"""Dead-letter copies under way: messages of a group, until their copies are durable.

They are settled in the group only then. A copy that was refused is retried later. A crash before the settling may make
a second copy, and loses none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tarry.base.types import Int32s, Int64s
from tarry.groups.states import State, StateEvent, move

ROWS_MAX = 1000
"""Messages copied at once."""
RETRY_MS = 1000
"""Wait after a refused copy before the next try, in milliseconds."""


@dataclass(slots=True, eq=False)
class CopyBatch:
    """Messages that become dead letters for one ``cause``.

    The arrays have an entry for each message; ``offsets`` ascend, and ``attempts`` are the tries that would come next.
    """

    offsets: Int64s
    attempts: Int32s
    cause: str
    state: State
    not_before_ms: int = 0
    under_way: bool = False


class CopiesUnderWay:
    """Guarded by the group's lock."""

    def __init__(self) -> None:
        self._batches: list[CopyBatch] = []

    def __iter__(self) -> Iterator[CopyBatch]:
        return iter(self._batches)

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def rows(self) -> int:
        """Number of messages on their way to the dead letters."""
        return sum(len(batch.offsets) for batch in self._batches)

    @property
    def is_copying(self) -> bool:
        """True if a copy is being made; the group cannot seek meanwhile."""
        return any(batch.state is State.BURYING for batch in self._batches)

    @property
    def next_ms(self) -> int | None:
        """Time of the next copy; None if none waits."""
        return min((batch.not_before_ms for batch in self._batches if not batch.under_way), default=None)

    def add(self, offsets: Int64s, attempts: Int32s, cause: str) -> None:
        """Messages that are BURYING from now on; a row each, ``offsets`` ascend."""
        for start in range(0, len(offsets), ROWS_MAX):
            part = slice(start, start + ROWS_MAX)
            self._batches.append(CopyBatch(offsets[part], attempts[part], cause, State.BURYING))

    def begin(self, now_ms: int) -> CopyBatch | None:
        """Return the next batch to copy; it is under way until :meth:`finish` or :meth:`fail`."""
        batch = next((b for b in self._batches if not b.under_way and b.not_before_ms <= now_ms), None)
        if batch is not None:
            if batch.state is State.WAITING:
                batch.state = move(batch.state, StateEvent.EXHAUST)
            batch.under_way = True
        return batch

    def shorten(self, batch: CopyBatch, rows: int) -> None:
        """Copy only the first ``rows`` of ``batch`` now; the others become a batch of their own."""
        self.add(batch.offsets[rows:], batch.attempts[rows:], batch.cause)
        batch.offsets, batch.attempts = batch.offsets[:rows], batch.attempts[:rows]

    def finish(self, batch: CopyBatch) -> None:
        """Note that the copy is durable."""
        batch.state = move(batch.state, StateEvent.BURIED)
        self._batches.remove(batch)

    def fail(self, batch: CopyBatch, now_ms: int) -> None:
        """There is no copy; it waits to be tried again."""
        batch.state = move(batch.state, StateEvent.BURY_FAILED)
        batch.under_way, batch.not_before_ms = False, now_ms + RETRY_MS

    def clear(self) -> None:
        """Forget the copies that wait for a retry, because the group seeks. None may be under way."""
        for batch in self._batches:
            move(batch.state, StateEvent.SEEK_BACK)
        self._batches.clear()
