"""Children of a fork: they have their parent's clients, and none of the threads that carry them."""

from __future__ import annotations

import os

from tarry.base.errors import ClosedError

_process = os.getpid()
"""This process; to ask the system would cost a message a tenth more."""


class Birthplace:
    """The process in which something was made, which alone may use it."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = _process

    @property
    def is_elsewhere(self) -> bool:
        """True in a child of the process."""
        return self._process != _process

    def check(self) -> None:
        """Refuse a use in a child.

        Raises:
            ClosedError: this is one.
        """
        if self._process != _process:
            # The loop runs in the parent, and both would write to one socket.
            raise ClosedError("the client was made before a fork; allowed: to make one in each process")


def _note_process() -> None:
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_note_process)
