"""A bound on what one client has asked for and was not answered: it is not read while there is more."""

from __future__ import annotations

from collections.abc import Callable

from tarry.fronts.link.outgoing import Outgoing

QUESTIONS_MAX = 256
"""Frames of one client that may be under way."""
QUESTIONS_BYTES_MAX = 64 << 20
"""Their bytes; one frame may have more, alone."""
CALLS_MAX = 4
"""Operations among them: they take threads, of which there are few for all clients."""


class Flow:
    """The frames of one client that are under way. On the loop's thread.

    While there are too many of them, or the client does not read its answers, the transport is not read. So a client
    waits for itself alone, and nothing that it has sent is refused.
    """

    def __init__(self, out: Outgoing) -> None:
        self._out = out
        self._questions = self._bytes = self._calls = 0
        self.reads = True
        """False while the client is not read; frames that have come already have to wait."""
        self.on_room: Callable[[], None] = lambda: None
        """Called when it is read again."""

    @property
    def is_idle(self) -> bool:
        """True if nothing is under way."""
        return not self._questions

    def begin(self, size: int, *, is_call: bool = False) -> Callable[[], None]:
        """Count a frame that is under way; return a function that counts it no more, once."""
        self._count(1, size, is_call)
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._count(-1, -size, is_call)

        return end

    def look(self) -> None:
        """Read on, or do not, as things are now."""
        reads = (
            self._questions < QUESTIONS_MAX
            and self._bytes <= QUESTIONS_BYTES_MAX
            and self._calls < CALLS_MAX
            and self._out.reads
        )
        transport = self._out.transport
        if reads != self.reads and not transport.is_closing():
            self.reads = reads
            if reads:
                transport.resume_reading()
                self.on_room()
            else:
                transport.pause_reading()

    def _count(self, sign: int, size: int, is_call: bool) -> None:
        self._questions += sign
        self._bytes += size
        self._calls += sign if is_call else 0
        self.look()
