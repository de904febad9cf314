"""Where a group begins: at an offset where it is new, or, after a restart, where the journal's entries left it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tarry.api.settings import EARLIEST, STARTS, Start
from tarry.groups.intervals import Intervals
from tarry.queue.entries import Entry, Op


@dataclass(slots=True)
class Beginning:
    """All below ``floor`` is settled, and so are the intervals in ``settled``.

    ``start`` is where the group began when it was made, ``lost`` how many messages retention deleted before it had
    settled them, and ``retries`` what is to be tried again: offset → (attempt, at_ms).
    """

    floor: int = 0
    start: Start = EARLIEST
    lost: int = 0
    settled: Intervals = field(default_factory=Intervals)
    retries: dict[int, tuple[int, int]] = field(default_factory=dict)

    def replay(self, entry: Entry) -> None:
        """Apply an entry of the journal (not DELETE), in the order in which they were written."""
        if entry.op is Op.GROUP:
            self.floor = max(self.floor, entry.first)
            self.lost = max(self.lost, entry.last)
            self.start = STARTS[entry.attempt]
        elif entry.op is Op.SEEK:
            self.floor = entry.first
            self.settled.clear()
            self.retries.clear()
        elif entry.op is Op.ACK:
            self.settled.add(entry.first, entry.last)
            for offset in range(entry.first, entry.last) if self.retries else ():
                self.retries.pop(offset, None)
        else:
            self.retries.update(dict.fromkeys(range(entry.first, entry.last), (entry.attempt, entry.at_ms)))
