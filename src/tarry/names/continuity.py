"""Detection of missing writes in a database.

RocksDB opens without an error when the end of its log is damaged, or its MANIFEST was cut; later writes are missing
then.

Writes are counted in the database itself; the count after the last write reveals a missing end. Some of the writes
leave a mark that names the mark before it. So the marks are a chain, and a gap in it reveals that something in the
middle is missing: a file that RocksDB no longer knows of, with later ones after it. Format: ``docs/formats.md``.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence

from rocksdict import WriteBatch

from tarry.names.encoding import MARK, META

WRITES_KEY = META + b"writes"
MARK_BYTES = 1 << 16
"""A mark is left after this many bytes.

RocksDB puts some megabytes into one file, so each file has many marks.
"""
MARKS_MAX = 1024

_STATE = struct.Struct(">QQ")  # writes, the last mark
_NUMBER = struct.Struct(">Q")


class Continuity:
    """Counts writes and leaves marks. One thread writes."""

    def __init__(self, writes: int = 0) -> None:
        """Begin the count of a new database, which counts on from ``writes``."""
        self.writes = writes
        self._marks: deque[int] = deque()
        self._unmarked_bytes = MARK_BYTES  # the first write leaves a mark: the database begins a new file with it

    def resume(self, state: bytes | None, marks: Sequence[tuple[bytes, bytes]]) -> str | None:
        """Go on from the content of a database instead.

        ``state`` is the value of :data:`WRITES_KEY`, ``marks`` are all marks in order. Return a description of the
        writes that are missing before the last one; None if there are none.
        """
        self.writes, last_mark = (0, 0) if state is None else _STATE.unpack(state)
        for key, value in marks:
            number, former = _NUMBER.unpack(key[1:])[0], _NUMBER.unpack(value)[0]
            if self._marks and former != self._marks[-1]:
                return f"writes {self._marks[-1] + 1} to {former} are missing"
            self._marks.append(number)
        newest = self._marks[-1] if self._marks else 0
        return None if newest == last_mark else f"writes {newest + 1} to {last_mark} are missing"

    def count(self, changes: WriteBatch) -> None:
        """Put the next number into ``changes``, which are about to be written, and a mark if one is due."""
        self.writes += 1
        self._unmarked_bytes += changes.size_in_bytes()
        former = self._marks[-1] if self._marks else 0
        if self._unmarked_bytes >= MARK_BYTES:
            changes.put(MARK + _NUMBER.pack(self.writes), _NUMBER.pack(former))
            if len(self._marks) == MARKS_MAX:
                changes.delete(MARK + _NUMBER.pack(self._marks.popleft()))
            self._marks.append(self.writes)
            self._unmarked_bytes = 0
            former = self.writes
        changes.put(WRITES_KEY, _STATE.pack(self.writes, former))
