"""Usage figures of a connection, for monitoring."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionUsage:
    """Current usage of one connection; :class:`loopgrpc.Limits` has the bounds."""

    peer: str
    """The client's address with its port: ``127.0.0.1:1234``."""
    streams: int
    """Calls that run."""
    late_handlers: int
    """Handlers that still run though nobody waits for their response any more; they count as calls."""
    buffered_bytes: int
    """Requests that wait for handlers, whole or in part."""
    pending_bytes: int
    """Responses that wait for the peer's windows or for its socket."""
    unwritten_bytes: int
    """Bytes that the peer's socket has not taken yet."""
    writing_paused: bool
    """True while the socket takes no more."""
    reading_paused: bool
    """True while nothing is read, as the peer does not read either."""
    draining: bool
    """True when no new calls are taken."""
