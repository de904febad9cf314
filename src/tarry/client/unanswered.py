"""Settlements that the broker has not answered yet, for those who wait until theirs are durable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from tarry.base.errors import TarryError, UnavailableError
from tarry.link.peer import OnAnswer

OnSettled = Callable[[TarryError | None], None]
"""Called with the broker's answer to a settlement: None, or the error."""


class Unanswered:
    """Of one source of messages. Any thread."""

    def __init__(self, on_settled: OnSettled) -> None:
        """Note nothing yet; ``on_settled`` is called for each answer."""
        self._on_settled = on_settled
        self._changed = threading.Condition()
        self._sent = 0
        self._open: set[int] = set()
        self._error: TarryError | None = None
        self._closed = False
        self._waiting, self._watched = 0, 0
        """Number of those who wait, and that of the last settlement for which anyone has waited."""

    def begin(self) -> OnAnswer:
        """Note a settlement that is sent; return what is to be called once with its answer."""
        with self._changed:
            self._sent += 1
            self._open.add(self._sent)
            return partial(self._end, self._sent)

    def _end(self, number: int, answer: memoryview | TarryError) -> None:
        error = answer if isinstance(answer, TarryError) else None
        with self._changed:
            self._open.discard(number)
            self._error = self._error or error
            self._changed.notify_all()
        self._on_settled(error)

    @property
    def is_idle(self) -> bool:
        """True if nothing waits for an answer."""
        return not self._open

    def close(self) -> TarryError | None:
        """Wait for no answer any more: the connection is lost.

        Return the error that nobody was told of, if any.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._waiting:
                error = None  # who waits takes it
            else:
                error, self._error = self._error, None
            if error is None and any(number > self._watched for number in self._open):
                error = acks_lost("the connection was lost")
            return error

    def wait(self, timeout_s: float) -> None:
        """Wait for the answers to what was sent so far.

        Raises:
            StaleLeaseError: some leases had ended before. UnavailableError: the connection was lost, or there was no
            answer in time.
        """
        with self._changed:
            last = self._watched = self._sent
            self._waiting += 1
            in_time = self._changed.wait_for(lambda: self._closed or not self._is_open(last), timeout_s)
            self._waiting -= 1
            is_open = self._is_open(last)
            error, self._error = self._error, None
        if error is None and is_open:
            why = "the connection was lost" if in_time else f"no answer within {timeout_s} s"
            error = acks_lost(why)
        if error is not None:
            raise error

    def _is_open(self, last: int) -> bool:
        return any(number <= last for number in self._open)


def acks_lost(why: str) -> UnavailableError:
    """Return the error that acknowledgements were not received."""
    return UnavailableError(f"{why}; messages whose acks were not received come again")
