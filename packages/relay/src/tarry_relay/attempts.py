"""Attempts at a query or a task of the relay: the pause before the next one, if there is to be one."""

from __future__ import annotations

from tarry.base.back_off import BackOff
from tarry.base.errors import InvalidArgumentError
from tarry.store import StaleCommitError
from tarry_relay.clients import FencedError

PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
HEALTHY_S = 60.0
RIVALS_MAX = 3
"""Takeovers in one series of failures that prove another relay.

Fewer may be those of an abandoned task.
"""


class Attempts:
    """One attempt after another: :meth:`begin` and :meth:`fail` by turns."""

    def __init__(self) -> None:
        self._back_off = BackOff(PAUSE_S_MIN, PAUSE_S_MAX, HEALTHY_S)
        self._rivals = 0

    def begin(self) -> None:
        """Note that an attempt begins."""
        self._back_off.begin()

    def fail(self, error: Exception | None) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            Exception: ``error``, where another attempt cannot help.
        """
        if self._back_off.is_healthy():
            self._rivals = 0
        self._rivals += isinstance(error, FencedError | StaleCommitError)
        if isinstance(error, InvalidArgumentError) or (error and self._rivals >= RIVALS_MAX):
            raise error
        return self._back_off.fail()
