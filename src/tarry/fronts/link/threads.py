"""Threads of a port for what takes long: so that short operations find one free."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tarry.base.placement import Placement

STAGING_MAX = 8
"""Streams of all clients of a port that are staged at a time; others wait."""
READING_MAX = 4
"""Answers of rows, of up to 64 MiB each, that are made at a time."""


@dataclass(frozen=True, slots=True)
class PortThreads:
    """The threads, which are started as they are needed."""

    staging: ThreadPoolExecutor
    reading: ThreadPoolExecutor

    @classmethod
    def of(cls, name: str, placement: Placement) -> PortThreads:
        """Return the threads of a port; ``name`` is that of its own."""
        return cls(
            ThreadPoolExecutor(STAGING_MAX, f"{name}-stage", initializer=placement.apart),
            ThreadPoolExecutor(READING_MAX, f"{name}-read", initializer=placement.apart),
        )

    async def stop(self) -> None:
        """Wait until all of them have ended; they hear of their connections' end by the loop."""
        for threads in (self.staging, self.reading):
            await asyncio.to_thread(threads.shutdown)
