"""Memory of a process that lives long and moves gigabytes.

Its amount, and giving back to the operating system what was freed.

The C library keeps what was freed for the next allocation, in one arena for each of many threads; after a burst that
can be hundreds of megabytes that nothing uses. So there are few arenas, and when the process has grown it is asked to
let go.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from contextlib import suppress
from pathlib import Path

ARENAS = 2
GROWTH_BYTES = 8 << 20
"""Growth since the last time that makes it worth a look."""
INTERVAL_S = 2.0

_M_ARENA_MAX = -8
_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the resident memory of this process; 0: unknown, or no descriptor is free to ask."""
    with suppress(OSError):
        return int(_STATM.read_text().split()[1]) * mmap.PAGESIZE
    return 0


class Trimmer:
    """Call :meth:`look` now and then. Does nothing where the C library is not glibc."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._trim = getattr(libc, "malloc_trim", None)
        if self._trim is not None:
            libc.mallopt(_M_ARENA_MAX, ARENAS)
        self._low = resident_bytes()
        self._looked_s = time.monotonic()

    def look(self) -> None:
        """Give freed memory back, if the process has grown."""
        if self._trim is None or time.monotonic() - self._looked_s < INTERVAL_S:
            return
        self._looked_s = time.monotonic()
        if resident_bytes() > self._low + GROWTH_BYTES:
            # ctypes lets go of the interpreter's lock meanwhile.
            self._trim(0)
            self._low = resident_bytes()
