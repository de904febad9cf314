"""Moves due messages from the wheel to the ready log, and reports progress for the checkpoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tarry.base.clock import Clock
from tarry.base.placement import ANY_CORE, Placement
from tarry.broker.hand_out_bound import HandOutBound
from tarry.broker.series import Series
from tarry.intake.intake import Intake
from tarry.log.files import TRY_AGAIN
from tarry.queue.log import UNWRITTEN_BYTES_MAX, ReadyLog
from tarry.wheel.loader import Loader
from tarry.wheel.wheel import Wheel

ROWS_MAX = 16_384
"""Most rows handed over at once, so that a herd's first consumers need not wait for all of it."""
SHORT_BYTES = 4 << 20
"""With less room than this for the ready log, a herd is handed over slowly.

Meanwhile, consumers and checkpoints make room.
"""
SLOW_BYTES = 256 << 10
"""As much of it every ``WAIT_S_MAX``."""
IDLE_CUT_MS = 60_000
HELD_S = 0.005
"""Time between looks while something is due and may not be handed out yet."""
WAIT_S_MAX = 0.25
"""The dispatcher reads the wall clock at least this often, so that it notices a step of the clock."""


@dataclass(frozen=True, slots=True)
class FiredProgress:
    """A consistent cut through the messages.

    Every message with ``due_ms < fired_until_ms`` and ``seq < fired_seq`` was cancelled, or was appended to the ready
    log before ``ready`` (segment, position), and no other message was.
    """

    fired_until_ms: int
    fired_seq: int
    ready: tuple[int, int]
    ticket: int
    accepted: dict[str, int]
    cancelled: dict[str, int]
    offsets: dict[str, int]
    stored_rows: int


@dataclass(eq=False)
class Dispatcher:
    """Hands due rows over. One thread calls :meth:`run`, or a test calls :meth:`step`."""

    _wheel: Wheel
    _intake: Intake
    _ready: ReadyLog
    _loader: Loader
    _series: Series
    _clock: Clock
    _bound: HandOutBound
    _placement: Placement = ANY_CORE
    _fire_lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False
    _pause_s: float = 0.0
    """Time to wait after what was taken last; 0 while there is room enough."""
    _completed_ms: int = -1
    """The last millisecond of which the rest was taken for the sake of a cut."""

    def step(self) -> bool:
        """Hand over one batch of due rows; return whether there was one.

        Raises:
            OSError: the disk does not allow moving the bound of hand-outs, and something is due beyond it.
        """
        self._cover()
        with self._fire_lock:
            notify = self._fire()
        if notify is None:
            return False
        notify()
        return True

    def catch_up(self) -> bool:
        """Hand over all that is due now; return whether there was something.

        Beside :meth:`run`, when a test clock was moved.

        Raises as :meth:`step`.
        """
        was_due = False
        while not self._stopped and (not self._has_room() or self.step()):
            was_due = True
        return was_due

    def _cover(self) -> None:
        now_ms = self._clock.now_ms()
        if self._bound.until_ms >= now_ms:  # nearly always: the bound is kept ahead
            return
        with self._wheel.lock:
            due_ms = self._wheel.next_fireable()
        if due_ms is not None and self._bound.until_ms < due_ms <= now_ms:
            self._bound.cover(now_ms)

    @property
    def _is_short(self) -> bool:
        return self._ready.room_bytes() < SHORT_BYTES

    def _fire(self, until_ms: int | None = None) -> Callable[[], None] | None:
        # No more at once than there is room for. When nothing fits, what is in memory is handed out all the same.
        room_bytes = self._ready.room_bytes()
        is_short = room_bytes < SHORT_BYTES
        bytes_max = SLOW_BYTES if is_short else room_bytes // 2
        with self._wheel.lock:
            # Read the bound under the lock: moving it back reads the handed-out place under the same lock.
            now_ms = min(self._clock.now_ms(), self._bound.until_ms)
            due = self._wheel.take_due(now_ms if until_ms is None else min(now_ms, until_ms), ROWS_MAX, bytes_max)
        if until_ms is None:
            taken = 0 if due is None else due.bytes
            self._pause_s = WAIT_S_MAX * min(1.0, taken / SLOW_BYTES) if is_short else 0.0
        if due is None:
            return None
        topics = self._ready.append(due) if due.batch.num_rows else []
        if due.series is not None:
            self._series.take(due.series)

        def notify() -> None:
            for topic in topics:
                topic.notify()
            if self._loader.short:
                self._loader.wake.set()

        return notify

    def run(self) -> None:
        """Hand over due rows, sleeping until the next are due, until :meth:`stop`."""
        self._placement.together()
        while not self._stopped:
            if not self._has_room():
                continue
            try:
                if self.step():
                    if self._pause_s:
                        self._pause()
                    continue
            except OSError as error:
                if error.errno not in TRY_AGAIN:
                    raise
                self._wait_for_disk()
            self._sleep()

    def _has_room(self) -> bool:
        """Write the ready log if much is unwritten; return False while a full disk prevents that."""
        if self._ready.unwritten_bytes > UNWRITTEN_BYTES_MAX:
            try:
                self._ready.flush()
            except OSError as error:
                if error.errno not in TRY_AGAIN:
                    raise
                # Consumers have the rows that are in memory. The rest is late, not lost, until there is space again.
                self._wait_for_disk()
                return False
        return True

    def _wait_for_disk(self) -> None:
        with self._wheel.lock:
            self._clock.wait(self._wheel.lock, WAIT_S_MAX)

    def _pause(self) -> None:
        """Wait for so long, also when there is news of other messages."""
        end_s = time.monotonic() + self._pause_s
        with self._wheel.lock:
            while not self._stopped and (wait_s := end_s - time.monotonic()) > 0:
                self._clock.wait(self._wheel.lock, wait_s)

    def _sleep(self) -> None:
        with self._wheel.lock:
            due = self._wheel.next_fireable()
            wait_s = WAIT_S_MAX if due is None else min(WAIT_S_MAX, self._clock.seconds_until(due))
            if due is not None and wait_s <= 0 and due > self._bound.until_ms:
                wait_s = HELD_S  # no lease: its store is away, or a former owner's lease is not over
            if wait_s > 0 and not self._stopped:
                self._clock.wait(self._wheel.lock, wait_s)

    def stop(self) -> None:
        with self._wheel.lock:
            self._stopped = True
            self._wheel.lock.notify_all()

    def progress(self) -> FiredProgress | None:
        """Return a consistent cut, or None if none can be made now.

        That is so while a pending row is due before rows that have fired already: a late arrival that was not handed
        over yet, or a clock that was set back. It is also so while the loader is behind the clock, or with a bulk job.
        The former checkpoint then stays, and recovery has more to read.
        """
        self._cover()
        self._ready.flush()  # most of the writing, before the dispatcher is kept waiting
        pending: list[Callable[[], None]] = []
        try:
            with self._fire_lock:
                while not self._is_short and (notify := self._fire()) is not None:
                    pending.append(notify)
                if self._is_short:
                    # What is left of the herd comes after the cut, except for the same millisecond: there is no cut in
                    # the midst of one, and none of a herd of one moment that is larger than what there is room for.
                    fired_ms = self._wheel.fired.due_ms
                    if fired_ms != self._completed_ms and (notify := self._fire(fired_ms)) is not None:
                        pending.append(notify)
                    self._completed_ms = fired_ms
                # Rows that are neither in the wheel nor in the ready log would be lost to both after a crash. Nothing
                # may be added to the queue of series meanwhile, or it might never be empty.
                if not self._series.drain():
                    return None
                return self._cut()
        finally:
            # Also if the disk was full: topics that got rows must be notified, or their consumers wait for the next
            # row.
            for notify in pending:
                notify()

    def _cut(self) -> FiredProgress | None:
        with self._wheel.lock:
            fired = self._wheel.fired
            until = fired.due_ms + (fired.seq > 0)  # whole milliseconds: nothing of this one may be left
            low = self._wheel.next_due()
            if (low is not None and low < until) or self._wheel.safe.due_ms < until:
                return None
            # Cancelled messages never fire: time alone moves the cut on, but not so often that an idle broker writes.
            passed = min(self._clock.now_ms(), self._wheel.safe.due_ms)
            passed = passed if low is None else min(passed, low)
            if passed > until + IDLE_CUT_MS:
                until = passed
            if self._wheel.advancing or self._wheel.tombstones.holds_rows or self._loader.behind:
                return None
            seq, accepted = self._intake.published_seq, dict(self._intake.accepted)
            cancelled = dict(self._intake.cancelled)
        segment, position, ticket = self._ready.mark()
        ends, stored_rows = self._ready.ends(), self._ready.stored_rows
        return FiredProgress(until, seq, (segment, position), ticket, accepted, cancelled, ends, stored_rows)
