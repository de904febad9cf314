"""Acknowledgements that no broker has confirmed, of streams that are over: who flushes is told."""

from __future__ import annotations

import threading

from tarry.base.errors import TarryError, UnavailableError


class Unconfirmed:
    """Of one consumer. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._void = 0
        self._error: TarryError | None = None

    def on_void(self, count: int) -> None:
        """Note messages whose acknowledgements were not sent: their stream was over."""
        with self._lock:
            self._void += count

    def on_error(self, error: TarryError) -> None:
        """Note the error of what was sent and not confirmed; the first one counts."""
        with self._lock:
            self._error = self._error or error

    def take(self) -> TarryError | None:
        """Return the error to tell, once."""
        with self._lock:
            void, error, self._void, self._error = self._void, self._error, 0, None
        if error is not None or not void:
            return error
        return UnavailableError(
            f"the connection was lost before acknowledgements of {void} messages were sent; they come again"
        )
