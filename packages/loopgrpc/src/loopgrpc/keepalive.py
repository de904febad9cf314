"""Keepalive: a PING to the peer of a silent connection, which is closed if it does not answer."""

from __future__ import annotations

from typing import Final

from loopgrpc.frames import ping
from loopgrpc.limits import Limits
from loopgrpc.sender import Sender

_PING_BYTES: Final = b"alive?\0\0"


class KeepAlive:
    """The keepalive of one connection. Set :attr:`received` whenever anything arrives."""

    __slots__ = ("_idle_s", "_pinged", "_sender", "_silent_since", "_timeout_s", "received")

    def __init__(self, limits: Limits, sender: Sender, now: float) -> None:
        self._idle_s = limits.keepalive_idle_s
        self._timeout_s = limits.keepalive_timeout_s
        self._sender = sender
        self._silent_since = now
        self._pinged = False
        self.received = True
        """True if anything arrived since the last check."""

    def is_dead(self, now: float) -> bool:
        """Return whether the peer is gone: neither a PING was answered in time, nor anything else sent.

        Call it about once a second with the loop's time.
        """
        if self.received:
            self.received = self._pinged = False
            self._silent_since = now
        elif self._pinged:
            return now - self._silent_since > self._timeout_s
        elif 0 < self._idle_s < now - self._silent_since:
            self._pinged = True
            self._silent_since = now
            self._sender.add(ping(_PING_BYTES))
        return False
