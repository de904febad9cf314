"""Changes to the interpreter of a serving process: cores of threads, switching, garbage collection.

All of it is here; ``tarry serve`` makes a :class:`Placement` and hands it to the parts.

The interpreter runs one thread at a time. A message passes through several (read, fire, write, settle), and each
hand-over to a thread that sleeps on another core costs an interrupt there, a cold cache, and time in which nobody runs.
So those threads share a core, while threads that work in bulk, mostly in C++ without the interpreter, keep all cores.
Measured at 2,000 messages a second (docs/decisions/0007): 0.9 cores instead of 1.07, p99 of lateness 3.5 ms instead of
5.6, and singles 48,000 instead of 43,000 a second.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from tarry.base.memory import resident_bytes

SWITCH_S = 0.0005
"""Seconds that a thread may keep the interpreter while another wants it (Python's default: 0.005).

It bounds what one busy thread adds to a lateness. Measured: no difference between 0.03 and 5 ms at a steady 2,000
messages a second (decision 0007);
with RocketMQ clients the p99 was 37 to 47 ms at 0.1 ms, and 28 to 31 ms at 0.5 and 2 ms (decision 0017).
"""
GC_THRESHOLDS = (50_000, 20, 50)
"""Thresholds of the garbage collector, instead of 700 or 2,000, 10, 10.

What comes while a broker serves are columns, in few objects
without cycles: so it may look seldom. Measured: a full look at what `tarry serve` imports takes 13 ms, in which no
other thread runs, and next to nothing once that is left out.
"""
YOUNG_S = 0.1
"""Seconds between collections of the youngest generation.

By itself it does so once far more objects were made than let go: where
as many go as come, as from a full cache, hardly ever, and then it looks at all that have come meanwhile: measured, for
20 to 70 ms, in which no other thread runs. Ten times a second, it takes 3 ms each time at the most.
"""
OLD_S = 60.0
"""Seconds between full collections of a process that does not grow.

Measured: one with 200,000 objects takes 10 ms, and what was there before serving is left out. After each the process
may keep the memory for the next garbage: so growth alone is no measure of what piles up.
"""
GROWN_BYTES = 32 << 20
"""Growth of the process since the last full collection for which there is another.

A connection leaves garbage in cycles: one with TLS 45 KB. A stranger who connects 500 times a second would have it pile
up to gigabytes in :data:`OLD_S`.
"""
GROWN_S = 2.0
"""Least seconds between two of these, and no less than :data:`SHARE` times what the last one took."""
SHARE = 50


class Placement(Protocol):
    """Choice of the core of the calling thread. Any thread."""

    def together(self) -> None:
        """Run on the core of the threads that pass small batches on."""
        ...

    def apart(self) -> None:
        """Run on any core: the thread works in bulk."""
        ...


class AnyCore:
    """Leaves threads where the system puts them."""

    def together(self) -> None:
        pass

    def apart(self) -> None:
        pass


ANY_CORE: Final = AnyCore()
"""Default placement: brokers within another's process leave its threads alone."""


class SharedCore:
    """Moves threads to one core and back. Does nothing with a single core, or without such a call."""

    def __init__(self) -> None:
        self._everywhere = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
        # The first core has the most to do for others. Several brokers of one machine: give each cores of its own.
        self._shared = {max(self._everywhere)} if len(self._everywhere) > 1 else self._everywhere
        self._now = threading.local()

    def together(self) -> None:
        self._move(self._shared)

    def apart(self) -> None:
        self._move(self._everywhere)

    def _move(self, cores: set[int]) -> None:
        if self._shared is self._everywhere or getattr(self._now, "cores", None) is cores:
            return
        self._now.cores = cores
        try:
            os.sched_setaffinity(0, cores)
        except OSError:
            pass  # the cores that the process may use were changed from outside: wherever it is now is fine


def shorten_turns() -> None:
    """Let threads of this process take turns more often: :data:`SWITCH_S`."""
    sys.setswitchinterval(SWITCH_S)


def settle_memory() -> None:
    """Exempt what exists from collection, before a process serves for long; see :data:`GC_THRESHOLDS`.

    What was exempted before, and is of no more use, is collected.
    """
    import pyarrow as pa

    # Arrow imports pandas, where there is one, when it is first given a list: now, not in front of a message.
    pa.array([0], pa.int64())
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def collect_often() -> None:
    """Have a thread collect garbage a little at a time: :data:`YOUNG_S`. Not in a process that forks."""
    threading.Thread(target=Collector().run, name="tarry-collect", daemon=True).start()


class Collector:
    """Collects young garbage often, and all of it when the process has grown, or after a long time."""

    def __init__(
        self, clock_s: Callable[[], float] = time.monotonic, resident: Callable[[], int] = resident_bytes
    ) -> None:
        self._clock_s, self._resident = clock_s, resident
        self._low = resident()
        self._ended_s, self._took_s = clock_s(), 0.0
        self.full = 0
        """Number of full collections."""

    def run(self) -> None:
        """Collect for ever."""
        while True:
            time.sleep(YOUNG_S)
            self.collect()

    def collect(self) -> None:
        """Collect what is young, or everything if that is due."""
        begun_s = self._clock_s()
        if not self._is_full_due(begun_s - self._ended_s):
            gc.collect(0)
            return
        gc.collect()
        self.full += 1
        self._low, self._ended_s = self._resident(), self._clock_s()
        self._took_s = self._ended_s - begun_s

    def _is_full_due(self, since_s: float) -> bool:
        if since_s < max(GROWN_S, SHARE * self._took_s):
            return False
        resident = self._resident()
        self._low = min(self._low, resident)
        return since_s >= OLD_S or resident > self._low + GROWN_BYTES
