"""Bounds on the bytes held for peers: for all of them together, and for those of one address."""

from __future__ import annotations

from typing import Final

_PART: Final = 2
"""One address may have half, so that no stranger can take all room."""


class ByteBudget:
    """A budget of bytes, or of things of another ``unit``, used on the event loop's thread.

    ``what`` names the bounded thing in the text of a refusal.
    """

    __slots__ = ("_bytes_max", "_held", "_held_by", "_peer_bytes_max", "_unit", "_what")

    def __init__(self, what: str, bytes_max: int, peer_bytes_max: int | None = None, unit: str = "bytes") -> None:
        self._what, self._unit = what, unit
        self._bytes_max = bytes_max
        self._peer_bytes_max = bytes_max // _PART if peer_bytes_max is None else peer_bytes_max
        self._held = 0
        self._held_by: dict[str, int] = {}

    @property
    def held(self) -> int:
        """Bytes held for all peers together."""
        return self._held

    def take(self, size: int, peer: str) -> str | None:
        """Hold ``size`` more bytes for the address ``peer``.

        Returns the reason if there is no room now, else None.
        """
        held = self._held_by.get(peer, 0) + size
        if held > self._peer_bytes_max:
            return (
                f"{self._what} of {peer} would take {held} {self._unit}; allowed: {self._peer_bytes_max} of one address"
            )
        if self._held + size > self._bytes_max:
            return f"{self._what} would take {self._held + size} {self._unit}; allowed: {self._bytes_max}"
        self._held += size
        self._held_by[peer] = held
        return None

    def give_back(self, size: int, peer: str) -> None:
        """Release ``size`` bytes held for the address ``peer``."""
        self._held -= size
        held = self._held_by.get(peer, 0) - size
        if held > 0:
            self._held_by[peer] = held
        else:
            self._held_by.pop(peer, None)
