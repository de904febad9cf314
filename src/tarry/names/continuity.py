"""Whether a database has all that was written to it: RocksDB opens without a word when the end of its log is damaged,
or its MANIFEST was cut, and what came after that is missing.

Writes are counted in the database itself; the count after the last one tells of a missing end. Some of the writes
leave a mark that names the mark before it, so that the marks are a chain, and a gap tells that something in the middle
is missing: a file of which nothing knows any more, with later ones after it. Format: ``docs/formats.md``.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence

from rocksdict import WriteBatch

from tarry.names.encoding import MARK, META

WRITES_KEY = META + b"writes"
MARK_BYTES = 1 << 16
"""A mark is left after so many bytes: RocksDB puts some megabytes into one file, which then has many marks."""
MARKS_MAX = 1024

_STATE = struct.Struct(">QQ")  # writes, the last mark
_NUMBER = struct.Struct(">Q")


class Continuity:
    """One thread writes."""

    def __init__(self, writes: int = 0) -> None:
        """Of a new database, which counts on from ``writes``."""
        self.writes = writes
        self._marks: deque[int] = deque()
        self._unmarked_bytes = MARK_BYTES  # the first write leaves a mark: the database begins a new file with it

    def resume(self, state: bytes | None, marks: Sequence[tuple[bytes, bytes]]) -> str | None:
        """Go on, instead, with what a database has: the value of :data:`WRITES_KEY`, and all marks in order. What is
        missing before the last write, if something is.
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
        """Have ``changes``, which are about to be written, say which write they are."""
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
