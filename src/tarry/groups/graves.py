"""What a group is burying: messages on their way to the dead letters, until the copy is durable.

They are settled in the group only then. A copy that was refused is tried again later; a crash before it is settled may
make a second one, and loses none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tarry.base.types import Int32s, Int64s
from tarry.groups.states import Event, State, move

ROWS_MAX = 1000
"""Messages copied at once."""
AGAIN_MS = 1000
"""How long after a copy was refused it is tried again."""


@dataclass(slots=True, eq=False)
class Burial:
    """Messages (offsets ascend) with one cause. ``attempts``: the try that each would be next."""

    offsets: Int64s
    attempts: Int32s
    cause: str
    state: State
    at_ms: int = 0
    """Not before."""
    under_way: bool = False


class Graves:
    """Guarded by the group's lock."""

    def __init__(self) -> None:
        self._burials: list[Burial] = []

    def __iter__(self) -> Iterator[Burial]:
        return iter(self._burials)

    def __bool__(self) -> bool:
        return bool(self._burials)

    @property
    def rows(self) -> int:
        """How many messages are being buried."""
        return sum(len(b.offsets) for b in self._burials)

    @property
    def busy(self) -> bool:
        """Whether something is BURYING: that takes no seek."""
        return any(b.state is State.BURYING for b in self._burials)

    @property
    def next_ms(self) -> int | None:
        """When there is something to copy."""
        return min((b.at_ms for b in self._burials if not b.under_way), default=None)

    def add(self, offsets: Int64s, attempts: Int32s, cause: str) -> None:
        """Messages that are BURYING from now on."""
        for start in range(0, len(offsets), ROWS_MAX):
            part = slice(start, start + ROWS_MAX)
            self._burials.append(Burial(offsets[part], attempts[part], cause, State.BURYING))

    def take(self, now_ms: int) -> Burial | None:
        """The next to be copied; it is under way until :meth:`buried` or :meth:`failed`."""
        found = next((b for b in self._burials if not b.under_way and b.at_ms <= now_ms), None)
        if found is not None:
            if found.state is State.WAITING:
                found.state = move(found.state, Event.EXHAUST)
            found.under_way = True
        return found

    def shorten(self, burial: Burial, rows: int) -> None:
        """Only its first ``rows`` are copied now; the others are by themselves."""
        self.add(burial.offsets[rows:], burial.attempts[rows:], burial.cause)
        burial.offsets, burial.attempts = burial.offsets[:rows], burial.attempts[:rows]

    def buried(self, burial: Burial) -> None:
        """The copy is durable."""
        burial.state = move(burial.state, Event.BURIED)
        self._burials.remove(burial)

    def failed(self, burial: Burial, now_ms: int) -> None:
        """There is no copy; it waits to be tried again."""
        burial.state = move(burial.state, Event.BURY_FAILED)
        burial.under_way, burial.at_ms = False, now_ms + AGAIN_MS

    def clear(self) -> None:
        """A seek: what waits to be tried again is void. Nothing may be BURYING."""
        for burial in self._burials:
            move(burial.state, Event.SEEK_BACK)
        self._burials.clear()
