"""The free disk that a log may take: asked for seldom while there is plenty, else for each write.

To ask takes as long as to write a small frame. Others write to the same disk between two questions, so an old answer
counts only while it leaves far more than they can take in that time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tarry.log.files import Files

ASK_S = 0.1
ASK_BYTES = 4 << 20
"""The disk is asked again after so much was written here."""
PLENTY_BYTES = 256 << 20
"""With less left, it is asked for each write."""


@dataclass(eq=False)
class DiskRoom:
    """Free disk beside what is kept for others. One thread at a time, but for :meth:`now`."""

    _files: Files
    _directory: Path
    kept_bytes: int
    """Left to others: acknowledgements and checkpoints, which make room in the end."""
    _asked_s: float = -1.0
    _left_bytes: int = 0
    _taken_bytes: int = 0

    def now(self) -> int:
        """Return how much may be taken, as the disk says."""
        return self._files.free_bytes(self._directory) - self.kept_bytes

    def left(self) -> int:
        """Return about how much may be taken; exactly if that is not plenty."""
        left, now_s = self._left_bytes - self._taken_bytes, time.monotonic()
        if self._taken_bytes < ASK_BYTES and now_s - self._asked_s < ASK_S and left >= PLENTY_BYTES:
            return left
        self._asked_s, self._taken_bytes, self._left_bytes = now_s, 0, self.now()
        return self._left_bytes

    def forget(self) -> None:
        """Ask again for the next write: one has failed."""
        self._left_bytes = 0

    def take(self, size: int) -> None:
        """Note that so much was written."""
        self._taken_bytes += size
