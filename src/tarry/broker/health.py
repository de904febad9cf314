"""Whether a broker serves, has failed, or is closed; and who must hear of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tarry.base.errors import ClosedError, CorruptError, FatalError, TarryError

log = logging.getLogger(__name__)


class Health:
    """Any thread. ``ending`` is set once the broker has failed or is about to close: loops end then."""

    def __init__(self) -> None:
        self.fatal: BaseException | None = None
        """After it, going on could lose what was acknowledged."""
        self.closed = False
        self.ending = threading.Event()
        self._failed = threading.Event()
        self._listeners: list[Callable[[], None]] = []

    @property
    def state(self) -> str:
        """serving, closed or fatal."""
        return "fatal" if self.fatal else "closed" if self.closed else "serving"

    @property
    def fatal_code(self) -> str | None:
        """``corrupt`` where a damaged file ended it, ``fatal`` where anything else did."""
        return None if self.fatal is None else self._fatal_class.code

    @property
    def _fatal_class(self) -> type[TarryError]:
        return CorruptError if isinstance(self.fatal, CorruptError) else FatalError

    def listen(self, on_end: Callable[[], None]) -> None:
        """Have ``on_end`` called when the broker ends, for whatever reason; from any thread, maybe more than once."""
        self._listeners.append(on_end)

    def check_serving(self) -> None:
        """
        Raises:
            FatalError, CorruptError, ClosedError: it does not serve any more.
        """
        if self.fatal is not None:
            raise self._fatal_class(f"the broker has failed: {self.fatal}")
        if self.closed:
            raise ClosedError("the broker is closed")

    def fail(self, error: BaseException) -> None:
        """Stop serving, for this error unless there was one before; from now on every call is refused."""
        if self.fatal is None:
            log.critical("fatal: %s: %s; the broker has stopped", type(error).__name__, error, exc_info=error)
            self.fatal = error
            self._failed.set()
            self.end()

    def end(self) -> None:
        """Have the loops end, and let go of who waits for messages."""
        self.ending.set()
        for on_end in list(self._listeners):
            on_end()

    def wait_fatal(self, timeout_s: float | None = None) -> bool:
        """Wait until the broker has failed; whether it has."""
        return self._failed.wait(timeout_s)
