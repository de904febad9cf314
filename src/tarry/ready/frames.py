"""Frames of the ready log that were read and may be read on: a consumer that lags takes a few rows at a time, a frame
has thousands, and reading it is reading and checking all of it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa

Place = tuple[int, int]
"""Segment, and position in it."""


class RecentFrames:
    """The last ones, up to ``bytes_max`` and always one. Any thread.

    A frame never changes once it is in its file. Of a segment that was deleted since, nobody asks for rows any more.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._frames: OrderedDict[Place, tuple[pa.RecordBatch, int]] = OrderedDict()
        self._bytes = 0

    def find(self, place: Place) -> pa.RecordBatch | None:
        """Its rows, if it is kept."""
        with self._lock:
            found = self._frames.get(place)
            if found is None:
                return None
            self._frames.move_to_end(place)
            return found[0]

    def keep(self, place: Place, rows: pa.RecordBatch) -> None:
        """It was read."""
        size = rows.nbytes
        with self._lock:
            self._drop(place)
            self._frames[place] = rows, size
            self._bytes += size
            while self._bytes > self._bytes_max and len(self._frames) > 1:
                self._drop(next(iter(self._frames)))

    def drop(self, place: Place) -> None:
        """It was read to its end: who comes later reads it once more."""
        with self._lock:
            self._drop(place)

    def _drop(self, place: Place) -> None:
        found = self._frames.pop(place, None)
        if found is not None:
            self._bytes -= found[1]
