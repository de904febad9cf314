"""Background loops of a broker, each in its own thread; for tests, all at once in :meth:`Loops.step`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.descriptors import lacks_descriptor
from tarry.base.errors import OwnershipLostError, UnavailableError
from tarry.base.types import Key
from tarry.broker.backups import Backups
from tarry.broker.bulk import Bulk
from tarry.broker.dispatcher import Dispatcher
from tarry.broker.hand_out_bound import HandOutBound
from tarry.broker.health import Health
from tarry.broker.identities import Identities
from tarry.broker.minutes import Minutes
from tarry.broker.progress import Checkpointer
from tarry.broker.scrub import Scrub
from tarry.broker.series import Series
from tarry.broker.store_view import StoreFollower
from tarry.intake import Segments
from tarry.log.engine import LogEngine
from tarry.log.files import TRY_AGAIN
from tarry.queue import ReadyLog
from tarry.wheel import Loader, Wheel

log = logging.getLogger(__name__)

FLUSH_S = 0.05
"""Longest wait of due rows to share a frame of the ready log; no caller waits for them."""
LOOK_S = 0.25
"""Time between looks at the clock of the loader."""
QUIET_S = 60.0
"""Idle time after which the bound of hand-outs is not kept ahead any more.

Idle: nothing is in the wheel, and nothing was handed out. An idle broker does not write.
"""
WARN_S = 10.0
"""Time between warnings of a full disk; several parts try again several times a second."""
STORE_POLL_S = 5.0
"""Time between looks at the store without news of it."""


@dataclass(eq=False)
class Loops:
    """Threads begun by :meth:`start`; they end when the broker's health says so, and :meth:`join` waits."""

    _config: Config
    _clock: Clock
    _health: Health
    _segments: Segments
    _wheel: Wheel
    _loader: Loader
    _dispatcher: Dispatcher
    _series: Series
    _ready: ReadyLog
    _bound: HandOutBound
    _store: StoreFollower
    _progress: Checkpointer
    _bulk: Bulk
    _backups: Backups
    _scrub: Scrub
    _minutes: Minutes
    _identities: Identities
    _engine: LogEngine
    _threads: list[threading.Thread] = field(default_factory=list)
    _fired: Key | None = None
    _busy_s: float = 0.0
    _warned_s: float = -1e9

    def start(self) -> None:
        """Begin to do what is due."""
        loops = {
            "tarry-dispatch": self._dispatcher.run,
            "tarry-series": self._series.run,
            "tarry-load": self._load,
            "tarry-keep": self._keep,
            "tarry-scrub": self._scrub.run,
        }
        if self._engine.shared is not None:
            loops["tarry-base"] = self._keep_bases
        self._threads = [self._thread(name, loop) for name, loop in loops.items()]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Have them end; :meth:`join` waits."""
        self._loader.wake.set()
        self._ready.dirty.set()  # the loop that keeps the log waits for it, up to LOOK_S
        self._dispatcher.stop()
        self._series.stop()

    def join(self, until_s: float | None = None) -> bool:
        """Wait until all of them have ended, or until so much monotonic time; return whether they have."""
        for thread in self._threads:
            thread.join(None if until_s is None else max(0.0, until_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _thread(self, name: str, loop: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            while not self._health.ending.is_set():
                try:
                    loop()
                    return
                except BaseException as error:  # noqa: BLE001  a dead thread must not look like a quiet one
                    if lacks_descriptor(error):
                        log.warning("%s: %s; trying again", name, error)
                        self._health.ending.wait(LOOK_S)
                    elif not self._health.ending.is_set():
                        self._health.fail(error)

        return threading.Thread(target=run, name=name, daemon=True)

    def _load(self) -> None:
        polled_s = 0.0
        while not self._health.ending.is_set():
            self._loader.wake.clear()
            if time.monotonic() - polled_s > STORE_POLL_S:
                polled_s = time.monotonic()
                self._store.expect_news()
            self._take_up_store()
            self._loader.step()
            room = self._loader.short and self._wheel.bytes < 0.5 * self._config.wheel_bytes_max
            if not self.try_disk(self._segments.seal) and not room:
                self._loader.wake.wait(LOOK_S)

    def _keep(self) -> None:
        due_s = time.monotonic()
        while not self._health.ending.is_set():
            self.try_disk(self._keep_ahead)
            if self._ready.dirty.wait(max(0.0, min(due_s - time.monotonic(), LOOK_S))):
                self._health.ending.wait(FLUSH_S)
                self.try_disk(self._ready.flush)
            if time.monotonic() >= due_s:
                self._check_owner()
                self._bulk.announce_again()
                self._backups.look()
                self._minutes.look()
                self.try_disk(self._identities.keep_days)
                self._identities.issuers.look()
                written = self._engine.shared is not None or self.try_disk(self._progress.checkpoint)
                # Unreadable messages prevent checkpoints for good: there is no use in trying all the time.
                soon = not written and not self._loader.unreadable
                due_s = time.monotonic() + (0.05 if soon else self._config.checkpoint_interval_ms / 1000)

    def _keep_bases(self) -> None:
        """Make checkpoints, which take long where machines share the logs: they are uploaded."""
        while not self._health.ending.wait(self._config.checkpoint_interval_ms / 1000):
            try:
                self.try_disk(self._progress.checkpoint)
            except UnavailableError as error:
                self._warn(error)

    def _check_owner(self) -> None:
        if not self._engine.is_owner():
            shared = self._engine.shared
            what = self._config.data if shared is None else shared.state["uri"]
            raise OwnershipLostError(
                f"{what} is another broker's now: {self._engine.loss}. "
                "This one stops, for both would write to the same logs"
            )

    def _keep_ahead(self) -> None:
        with self._wheel.lock:
            fired, rows = self._wheel.fired, self._wheel.rows
        if rows or fired != self._fired:
            self._fired, self._busy_s = fired, time.monotonic()
        if time.monotonic() - self._busy_s < QUIET_S:
            self._bound.keep_ahead(self._clock.now_ms(), self._handed_ms)

    def _handed_ms(self) -> int:
        with self._wheel.lock:
            return self._wheel.fired.due_ms

    def try_disk(self, work: Callable[[], Any]) -> Any:
        """Run ``work``; return False, and keep running, if the disk is full or descriptors ran out.

        This stops neither hand-out nor broker: rows that could not be written stay queued for the next try.
        """
        try:
            return work()
        except OSError as error:
            if error.errno not in TRY_AGAIN:
                raise
            self._warn(error)
            self._health.ending.wait(LOOK_S)
            return False

    def _warn(self, error: Exception) -> None:
        if time.monotonic() - self._warned_s > WARN_S:
            self._warned_s = time.monotonic()
            log.warning("writing failed for now: %s; trying again", error)

    # -- without threads -----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do all that is to be done at the clock's time."""
        while self._segments.seal():
            pass
        self._take_up_store()
        self._loader.step()
        while self._dispatcher.step() or self._load_more() or (self._series.waiting and self._series.step()):
            pass
        self._ready.flush()
        self._check_owner()
        if self._engine.shared is not None:
            self._engine.shared.renew()
        self._progress.checkpoint()
        self._identities.keep_days()
        self._identities.issuers.look()

    def _take_up_store(self) -> None:
        self._store.take_up()
        self._progress.delete_stored()

    def _load_more(self) -> bool:
        """Load on, after a dispatch made room; return whether something is due now."""
        if not self._loader.short:
            return False
        self._loader.step()
        with self._wheel.lock:
            due_ms = self._wheel.next_fireable()
        return due_ms is not None and due_ms <= self._clock.now_ms()

    def next_event_ms(self) -> int | None:
        """Return the earliest time at which :meth:`step` has something to deliver; None if nothing is pending.

        It is a lower bound.
        """
        with self._wheel.lock:
            moments = [self._wheel.next_due(), self._loader.next_unloaded_ms()]
        return min((m for m in moments if m is not None), default=None)
