"""The state with which a group begins: that of a new one, or what the journal tells after a restart."""

from __future__ import annotations

from dataclasses import dataclass, field

from tarry.api.settings import EARLIEST, STARTS, Start
from tarry.groups.intervals import Intervals
from tarry.queue.entries import JournalEntry, JournalOp


@dataclass(slots=True)
class Beginning:
    """Beginning of a group: an offset if it is new; after a restart, the state by the journal's entries.

    All offsets below ``floor`` are settled, and so are the intervals in ``settled``.

    ``start`` is the group's start when it was made, ``lost`` the number of messages that retention deleted before it
    had settled them, and ``retries`` has messages to be tried again: offset → (attempt, at_ms).
    """

    floor: int = 0
    start: Start = EARLIEST
    lost: int = 0
    settled: Intervals = field(default_factory=Intervals)
    retries: dict[int, tuple[int, int]] = field(default_factory=dict)

    def replay(self, entry: JournalEntry) -> None:
        """Apply an entry of the journal (not DELETE), in the order in which they were written."""
        if entry.op is JournalOp.GROUP:
            self.floor = max(self.floor, entry.first)
            self.lost = max(self.lost, entry.last)
            self.start = STARTS[entry.attempt]
        elif entry.op is JournalOp.SEEK:
            self.floor = entry.first
            self.settled.clear()
            self.retries.clear()
        elif entry.op is JournalOp.ACK:
            self.settled.add(entry.first, entry.last)
            for offset in range(entry.first, entry.last) if self.retries else ():
                self.retries.pop(offset, None)
        else:
            self.retries.update(dict.fromkeys(range(entry.first, entry.last), (entry.attempt, entry.at_ms)))
