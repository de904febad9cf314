"""Moves a broker's test clock on, as ``tarry.testing`` does, beside the broker's threads.

The clock stops at each moment at which something is to happen: a message falls due, a lease or a back-off ends, a copy
to the dead letters or a push is tried again. It goes on when all of that has been done (docs/testing.md says exactly
what that is).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tarry.api.operations.testing import AdvanceClock, ClockState
from tarry.base.clock import StandingClock
from tarry.base.delay import format_ms, parse_duration_ms
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.broker.dispatcher import Dispatcher
from tarry.broker.push import Push
from tarry.broker.series import Series
from tarry.broker.test_clock import instant_ms, keep_standing
from tarry.groups import ConsumerGroups
from tarry.log.files import Files
from tarry.wheel import Loader, Wheel

log = logging.getLogger(__name__)

LOOK_S = 0.002
"""Seconds between looks at what other threads and consumers do."""
END_MS = 253_402_300_800_000
"""The year 10,000: no calendar goes further."""


@dataclass(eq=False)
class TestTime:
    """Moves the clock. Any thread; one moves it at a time, and others wait for that.

    ``check_serving`` raises when the broker does not serve any more.
    """

    __test__ = False

    _clock: StandingClock
    _files: Files
    _data: Path
    _wheel: Wheel
    _loader: Loader
    _dispatcher: Dispatcher
    _series: Series
    _groups: ConsumerGroups
    _push: Push
    _check_serving: Callable[[], None]
    _moving: threading.Lock = field(default_factory=threading.Lock)

    def state(self) -> ClockState:
        """Return where the clock stands."""
        now_ms = self._clock.now_ms()
        return ClockState(now_ms, format_ms(now_ms))

    def advance(self, request: AdvanceClock) -> ClockState:
        """Move the clock on; see :class:`AdvanceClock`."""
        with self._moving:
            now_ms = self._clock.now_ms()
            target_ms = _target_ms(request, now_ms)
            # First: after a crash in the midst, the clock must not stand before what has happened.
            keep_standing(self._files, self._data, target_ms)
            self._do_due(request.wait_ms)
            while (moment_ms := self._next_ms()) is not None and moment_ms <= target_ms:
                self._set(moment_ms)
                self._do_due(request.wait_ms)
            self._set(target_ms)
            self._do_due(request.wait_ms)
        log.info("the test clock was moved from %s to %s", format_ms(now_ms), format_ms(target_ms))
        return self.state()

    def _set(self, now_ms: int) -> None:
        self._clock.set_ms(now_ms)
        with self._wheel.lock:
            self._wheel.lock.notify_all()
        self._groups.wake()
        self._push.wake()

    # -- what is due -------------------------------------------------------------------------------------------------

    def _do_due(self, wait_ms: int) -> None:
        """Do all that is due at the clock's time, and what comes of it at the same time."""
        wait_end_s = time.monotonic() + wait_ms / 1000
        while True:
            self._groups.do_due()
            if self._dispatch() or self._wait_for_push():
                continue
            if time.monotonic() >= wait_end_s or not self._wait_for_consumers(wait_end_s):
                return

    def _dispatch(self) -> bool:
        """Hand over all that is due; return whether there was something."""
        is_moved = False
        while True:
            self._check_serving()
            taken, is_drained, now_ms = self._series.taken, self._series.drain(), self._clock.now_ms()
            with self._wheel.lock:
                due_ms = self._wheel.next_fireable()
                is_loaded = self._wheel.safe.due_ms > now_ms and not self._loader.is_bringing
                if not is_loaded:
                    self._loader.wake.set()
                    self._wheel.lock.wait(LOOK_S)
            has_fired = self._dispatcher.catch_up()
            is_moved |= has_fired
            # Last: the dispatcher's own thread may have taken, since the series were looked at, what the loader brought
            # only then. By now it has handed that to the series, for it was waited for.
            is_still = is_drained and is_loaded and not has_fired and self._series.taken == taken
            if is_still and (due_ms is None or due_ms > now_ms):
                return is_moved

    def _wait_for_push(self) -> bool:
        """Wait until all that is due was pushed, and had its answer; return whether there was something."""
        if self._push.is_idle():
            return False
        while not self._push.is_idle():
            self._check_serving()
            time.sleep(LOOK_S)
        return True

    def _wait_for_consumers(self, end_s: float) -> bool:
        """Wait, up to ``end_s``, until all that is ready was acknowledged; return whether there was something."""
        if not self._groups.is_busy():
            return False
        while self._groups.is_busy() and time.monotonic() < end_s:
            self._check_serving()
            time.sleep(LOOK_S)
        return True

    def _next_ms(self) -> int | None:
        """Return the next moment at which something is to happen; None if there is none."""
        now_ms = self._clock.now_ms()
        with self._loader.still, self._wheel.lock:
            moments = [self._wheel.next_due(), self._loader.next_unloaded_ms()]
        moments += [self._groups.next_ms(now_ms), self._push.next_ms()]
        return min((each for each in moments if each is not None and each > now_ms), default=None)


def no_test_clock(_: object) -> ClockState:
    """Refuse to show or to move a real clock.

    Raises:
        NotFoundError: always.
    """
    raise NotFoundError(
        "this broker runs on the real clock, which nobody moves; allowed: a broker that was started for tests, with "
        "tarry serve --test-clock"
    )


def _target_ms(request: AdvanceClock, now_ms: int) -> int:
    if (request.by is None) == (request.to is None):
        raise InvalidArgumentError(f"by is {request.by!r} and to is {request.to!r}; allowed: one of them")
    if request.by is not None:
        target_ms = now_ms + parse_duration_ms(request.by)
    else:
        target_ms = request.to if isinstance(request.to, int) else instant_ms(str(request.to), "to")
    if not now_ms <= target_ms < END_MS:
        raise InvalidArgumentError(
            f"the clock stands at {format_ms(now_ms)}, and would be moved to {format_ms(target_ms)}; allowed: a later "
            f"instant, up to {format_ms(END_MS - 1)}"
        )
    return target_ms
