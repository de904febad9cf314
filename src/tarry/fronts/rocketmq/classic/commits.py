"""Offsets that consumers commit with their pulls: gathered, since each write is an fsync.

No client waits for them.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from tarry.fronts.rocketmq.classic.positions import Positions
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.fronts.rocketmq.common.threads import RunInThread

log = logging.getLogger(__name__)

GATHER_S = 0.2


@dataclass(slots=True)
class _Gathered:
    """Gathered commits of one group in one topic."""

    offsets: dict[int, int] = field(default_factory=dict)
    """Committed offsets, by queue."""
    gaps: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By queue: the start and end of a range in which a pull found nothing."""


@dataclass(eq=False)
class Commits:
    """Gathers commits and writes them together. On the event loop's thread."""

    _loop: asyncio.AbstractEventLoop
    _positions: Positions
    _run_in_thread: RunInThread
    _gathered: dict[tuple[str, str], _Gathered] = field(default_factory=dict, init=False)
    """By topic and group."""
    _writing: asyncio.Future[None] | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def commit(self, topic: str, group: str, queue: int, offset: int) -> None:
        """Commit that everything below ``offset`` is done in that queue."""
        offsets = self._of(topic, group).offsets
        offsets[queue] = max(offset, offsets.get(queue, 0))

    def pass_over(self, topic: str, group: str, queue: int, start: int, stop: int) -> None:
        """Note that a pull from ``start`` found nothing of the queue below ``stop``."""
        gaps = self._of(topic, group).gaps
        begin, end = gaps.get(queue, (start, start))
        gaps[queue] = (begin if begin <= start <= end else start), stop

    def discard(self, topic: str, group: str) -> None:
        """Discard the gathered commits of a group."""
        self._gathered.pop((topic, group), None)

    async def flush(self) -> None:
        """Wait until all commits gathered by now count, durably."""
        while True:
            self._write()
            # One that is done may still be here: its callback runs in the loop's next turn, and awaiting a future that
            # is done does not wait for that.
            if self._writing is None or self._writing.done():
                return
            await asyncio.shield(self._writing)

    def close(self) -> None:
        """Write the gathered commits in this thread. The last call."""
        if self._timer is not None:
            self._timer.cancel()
        self._write_down(self._take())

    def _of(self, topic: str, group: str) -> _Gathered:
        gathered = self._gathered.get((topic, group))
        if gathered is None:
            gathered = self._gathered[topic, group] = _Gathered()
            if self._timer is None:
                self._timer = self._loop.call_later(GATHER_S, self._write)
        return gathered

    def _take(self) -> dict[tuple[str, str], _Gathered]:
        taken, self._gathered = self._gathered, {}
        return taken

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._gathered or (self._writing is not None and not self._writing.done()):
            return
        gathered = self._take()
        self._writing = self._run_in_thread(lambda: self._write_down(gathered))
        self._writing.add_done_callback(self._on_written)

    def _on_written(self, written: asyncio.Future[None]) -> None:
        if self._writing is written:
            self._writing = None
        if not written.cancelled() and (error := written.exception()) is not None:
            log.error("offsets were not committed", exc_info=error)
        if self._gathered and self._timer is None:
            self._timer = self._loop.call_later(GATHER_S, self._write)

    def _write_down(self, gathered: dict[tuple[str, str], _Gathered]) -> None:
        for (topic, group), one in gathered.items():
            try:
                self._positions.settle(topic, group, one.offsets, one.gaps)
            except Refusal as error:
                log.info("offsets of group %s were not committed: %s", group, error.text)
            except Exception:
                # The other groups' commits count all the same.
                log.exception("offsets of group %s in topic %s were not committed", group, topic)
