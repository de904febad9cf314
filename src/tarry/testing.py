"""Support for tests: the real broker on a directory, with a clock that the test moves.

with tarry.testing.open_broker(tmp_path) as broker:
    broker.schedule("orders", b"unpaid?", delay="30d")
    broker.advance("30d")                       # at once; each message becomes due at its own moment
    [message] = broker.receive("orders", group="billing").to_pylist()

with tarry.testing.open_broker(tmp_path) as broker, broker.run(worker) as running:
    broker.schedule("orders", b"unpaid?", delay="30d")
    broker.advance("30d")                       # the worker's handlers have had it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.base.delay import parse_duration_ms
from tarry.broker import Broker
from tarry.log.files import Files, OsFiles

if TYPE_CHECKING:
    from tarry.worker import Worker
    from tarry.worker.rehearsal import Rehearsal

__all__ = ["TestBroker", "TestClock", "open_broker"]


class TestBroker(Broker):
    """A broker without threads: it does what is due when the test moves the clock."""

    __test__ = False

    clock: TestClock

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._running: list[Rehearsal] = []

    def advance(self, by: str | timedelta | float) -> None:
        """Move the clock on, stopping at each moment at which something falls due.

        Handlers of a worker that runs (:meth:`run`) get each message at its own moment.

        ``by``: "1h30m", a timedelta, or seconds.
        """
        self.advance_to(self.after(by))

    def advance_to(self, now_ms: int) -> None:
        """Move the clock to an instant (UTC milliseconds), as :meth:`advance` does."""
        for _ in self.moments(now_ms, self._next_tries_ms):
            for each in self._running:
                each.handle_all()

    def run(self, worker: Worker) -> Rehearsal:
        """Run a worker's handlers: a context manager, also with ``async``.

            with broker.run(worker) as running:            # a test that is a plain function
                broker.advance("1h")
            async with broker.run(worker) as running:      # a test in an event loop
                await running.advance("1h")

        ``running.handled`` has what they were given, and what became of it.

        Raises:
            InvalidArgumentError: the worker has no handlers.
        """
        from tarry.worker.rehearsal import Rehearsal

        return Rehearsal(self, self, worker)

    # -- for what runs with it -----------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the clock's time in UTC milliseconds."""
        return self.clock.now_ms()

    def after(self, by: str | timedelta | float) -> int:
        """Return the instant at that distance from now, in UTC milliseconds."""
        if isinstance(by, str):
            return self.clock.now_ms() + parse_duration_ms(by)
        return self.clock.now_ms() + round((by.total_seconds() if isinstance(by, timedelta) else by) * 1000)

    def moments(self, now_ms: int, more: Callable[[], int | None] = lambda: None) -> Iterator[None]:
        """Move the clock to an instant, and yield at each moment at which something falls due.

        ``more`` returns further moments, one at a time.
        """
        self.step()
        yield
        while True:
            event = min((each for each in (self.next_event_ms(), more()) if each is not None), default=None)
            if event is None or event > now_ms:
                break
            self.clock.set_ms(max(event, self.clock.now_ms()))
            self.step()
            yield
        self.clock.set_ms(now_ms)
        self.step()
        yield

    def _next_tries_ms(self) -> int | None:
        return min((each for running in self._running if (each := running.next_ms()) is not None), default=None)

    def add_running(self, running: Rehearsal) -> None:
        """Have the handlers of a worker get what is due."""
        self._running.append(running)

    def remove_running(self, running: Rehearsal) -> None:
        """Forget a worker."""
        self._running.remove(running)


@contextmanager
def open_broker(
    directory: Path | str, *, clock: TestClock | None = None, files: Files | None = None, **settings: Any
) -> Iterator[TestBroker]:
    """Open the real broker on ``directory``, with a clock that stands still until the test moves it.

    ``settings`` are those of :class:`tarry.base.config.Config`. Open it again on the same directory, with the same
    clock, to see what a restart keeps.
    """
    settings.setdefault("disk_free_bytes_min", 0)
    config = Config(data=Path(directory), pipeline="off", **settings)
    broker = TestBroker(config, clock or TestClock(), files or OsFiles(), threads=False)
    try:
        yield broker
    finally:
        broker.close()
