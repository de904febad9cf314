"""The state of a broker: serving, failed, or closed; with callbacks for its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tarry.base.errors import ClosedError, CorruptError, FatalError, OwnershipLostError, TarryError

log = logging.getLogger(__name__)

SERVING = "serving"


class Health:
    """The state of a broker. Any thread.

    ``ending`` is set once the broker has failed or is about to close; loops end then.
    """

    def __init__(self) -> None:
        self.fatal: BaseException | None = None
        """The first error after which going on could lose acknowledged messages; None if there was none."""
        self.closed = False
        self.ending = threading.Event()
        self._failed = threading.Event()
        self._listeners: list[Callable[[], None]] = []

    @property
    def state(self) -> str:
        """One of ``serving``, ``closed`` and ``fatal``."""
        return "fatal" if self.fatal else "closed" if self.closed else SERVING

    @property
    def fatal_code(self) -> str | None:
        """``corrupt`` if a damaged file ended the broker, ``ownership_lost`` if its logs are another one's.

        ``fatal`` for other errors; None if it did not fail.
        """
        return None if self.fatal is None else self._fatal_class.code

    @property
    def _fatal_class(self) -> type[TarryError]:
        return next((cls for cls in (CorruptError, OwnershipLostError) if isinstance(self.fatal, cls)), FatalError)

    def listen(self, on_end: Callable[[], None]) -> None:
        """Call ``on_end`` when the broker ends, for whatever reason: from any thread, maybe more than once."""
        self._listeners.append(on_end)

    def check_serving(self) -> None:
        """Check that the broker serves.

        Raises:
            FatalError, CorruptError, OwnershipLostError, ClosedError: it does not serve any more.
        """
        if self.fatal is not None:
            raise self._fatal_class(f"the broker has failed: {self.fatal}")
        if self.closed:
            raise ClosedError("the broker is closed")

    def fail(self, error: BaseException) -> None:
        """Stop serving; from now on every call is refused, with this error if it is the first."""
        if self.fatal is None:
            self.fatal = error
            if isinstance(error, OwnershipLostError):
                # Nothing is wrong here: where it was seen is of no use to anybody.
                log.error("another broker owns the logs: %s; this one has stopped", error)
            elif self.closed and isinstance(error, FatalError):
                log.error("at the stop: %s", error)
            else:
                log.critical("fatal: %s: %s; the broker has stopped", type(error).__name__, error, exc_info=error)
            self._failed.set()
            self.end()

    def end(self) -> None:
        """End the loops, and release callers that wait for messages."""
        self.ending.set()
        for on_end in list(self._listeners):
            on_end()

    def wait_fatal(self, timeout_s: float | None = None) -> bool:
        """Wait until the broker has failed; return whether it has."""
        return self._failed.wait(timeout_s)
