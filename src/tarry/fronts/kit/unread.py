"""Limit on unread answers, shared by all fronts (:class:`loopgrpc.UnreadBytes`)."""

from __future__ import annotations

from loopgrpc import UnreadBytes
from tarry.base.errors import OverloadedError


class Room:
    """Unread bytes of one receive, counted from the hand-out until its answer is written. On one thread."""

    __slots__ = ("_held", "_host", "_unread")

    def __init__(self, unread: UnreadBytes, host: str) -> None:
        self._unread = unread
        self._host = host
        self._held = 0

    @property
    def is_free(self) -> bool:
        """True if messages may be handed out now."""
        return self._unread.refusal(self._host) is None

    def check(self) -> None:
        """Raise an error if the client's address has too many unread bytes.

        Raises:
            OverloadedError: the client's address has too many unread bytes.
        """
        check_room(self._unread, self._host)

    def hold(self, size: int) -> None:
        """Count this many bytes as handed out."""
        self._unread.add(self._host, size)
        self._held += size

    def release(self) -> None:
        """Stop counting: the answer is written and counted where it waits, or nobody wants it."""
        if self._held:
            self._unread.add(self._host, -self._held)
            self._held = 0


def check_room(unread: UnreadBytes, host: str) -> None:
    """Raise an error if an address has too many unread bytes.

    Raises:
        OverloadedError: the address has too many unread bytes.
    """
    if (refusal := unread.refusal(host)) is not None:
        raise OverloadedError(refusal)
