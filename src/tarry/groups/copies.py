"""Dead-letter copies under way: messages of a group on their way to the dead letters, until the copy is durable.

They are settled in the group only then. A copy that was refused is tried again later; a crash before it is settled may
make a second one, and loses none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tarry.base.types import Int32s, Int64s
from tarry.groups.states import State, StateEvent, move

ROWS_MAX = 1000
"""Messages copied at once."""
RETRY_MS = 1000
"""How long after a copy was refused it is tried again."""


@dataclass(slots=True, eq=False)
class CopyBatch:
    """Messages that become dead letters for one ``cause``. The arrays have a row a message; ``offsets`` ascend, and
    ``attempts`` is the try that each would be next.
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
        """How many messages are on their way to the dead letters."""
        return sum(len(batch.offsets) for batch in self._batches)

    @property
    def is_copying(self) -> bool:
        """Whether a copy is being made: the group cannot seek meanwhile."""
        return any(batch.state is State.BURYING for batch in self._batches)

    @property
    def next_ms(self) -> int | None:
        """When the next copy is to be made; None where nothing waits for it."""
        return min((batch.not_before_ms for batch in self._batches if not batch.under_way), default=None)

    def add(self, offsets: Int64s, attempts: Int32s, cause: str) -> None:
        """Messages that are BURYING from now on; a row each, ``offsets`` ascend."""
        for start in range(0, len(offsets), ROWS_MAX):
            part = slice(start, start + ROWS_MAX)
            self._batches.append(CopyBatch(offsets[part], attempts[part], cause, State.BURYING))

    def begin(self, now_ms: int) -> CopyBatch | None:
        """The next to be copied; it is under way until :meth:`finish` or :meth:`fail`."""
        batch = next((b for b in self._batches if not b.under_way and b.not_before_ms <= now_ms), None)
        if batch is not None:
            if batch.state is State.WAITING:
                batch.state = move(batch.state, StateEvent.EXHAUST)
            batch.under_way = True
        return batch

    def shorten(self, batch: CopyBatch, rows: int) -> None:
        """Only its first ``rows`` are copied now; the others are a batch of their own."""
        self.add(batch.offsets[rows:], batch.attempts[rows:], batch.cause)
        batch.offsets, batch.attempts = batch.offsets[:rows], batch.attempts[:rows]

    def finish(self, batch: CopyBatch) -> None:
        """The copy is durable."""
        batch.state = move(batch.state, StateEvent.BURIED)
        self._batches.remove(batch)

    def fail(self, batch: CopyBatch, now_ms: int) -> None:
        """There is no copy; it waits to be tried again."""
        batch.state = move(batch.state, StateEvent.BURY_FAILED)
        batch.under_way, batch.not_before_ms = False, now_ms + RETRY_MS

    def clear(self) -> None:
        """The group seeks: forget the copies that wait to be tried again. None may be under way."""
        for batch in self._batches:
            move(batch.state, StateEvent.SEEK_BACK)
        self._batches.clear()
