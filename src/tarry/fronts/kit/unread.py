"""Room for answers that clients have not read yet: one bound (:class:`loopgrpc.UnreadBytes`) for all fronts."""

from __future__ import annotations

from loopgrpc import UnreadBytes
from tarry.base.errors import OverloadedError


class Room:
    """For what one receive hands out, until its answer is written. On one thread."""

    __slots__ = ("_held", "_host", "_unread")

    def __init__(self, unread: UnreadBytes, host: str) -> None:
        self._unread = unread
        self._host = host
        self._held = 0

    @property
    def is_free(self) -> bool:
        """Whether messages may be handed out now."""
        return self._unread.refusal(self._host) is None

    def check(self) -> None:
        """
        Raises:
            OverloadedError: the client's address has too much that it has not read.
        """
        check_room(self._unread, self._host)

    def hold(self, size: int) -> None:
        """So much was handed out."""
        self._unread.add(self._host, size)
        self._held += size

    def release(self) -> None:
        """It is written, and counted where it waits; or nobody wants it."""
        if self._held:
            self._unread.add(self._host, -self._held)
            self._held = 0


def check_room(unread: UnreadBytes, host: str) -> None:
    """
    Raises:
        OverloadedError: an address has too much that it has not read.
    """
    if (refusal := unread.refusal(host)) is not None:
        raise OverloadedError(refusal)
