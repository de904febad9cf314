"""Support for tests: the real broker on a directory, with a clock that the test moves.

with tarry.testing.open_broker(tmp_path) as broker:
    broker.schedule("orders", b"unpaid?", delay="30d")
    broker.advance("30d")                       # at once; each message becomes due at its own moment
    [message] = broker.receive("orders", group="billing").to_pylist()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.base.delay import parse_duration_ms
from tarry.broker import Broker
from tarry.log.files import Files, OsFiles

__all__ = ["TestBroker", "TestClock", "open_broker"]


class TestBroker(Broker):
    """A broker without threads: it does what is due when the test moves the clock."""

    __test__ = False

    clock: TestClock

    def advance(self, by: str | timedelta | float) -> None:
        """Move the clock on, stopping at each moment at which something falls due.

        ``by``: "1h30m", a timedelta, or seconds.
        """
        if isinstance(by, str):
            by_ms = parse_duration_ms(by)
        else:
            by_ms = round((by.total_seconds() if isinstance(by, timedelta) else by) * 1000)
        self.advance_to(self.clock.now_ms() + by_ms)

    def advance_to(self, now_ms: int) -> None:
        """Move the clock to an instant (UTC milliseconds), as :meth:`advance` does."""
        self.step()
        while (event := self.next_event_ms()) is not None and event <= now_ms:
            self.clock.set_ms(max(event, self.clock.now_ms()))
            self.step()
        self.clock.set_ms(now_ms)
        self.step()


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
