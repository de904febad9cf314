"""Limits for a client of the HTTP server: time, bytes, connections."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Times are looked at once in ``LOOK_S``."""

    header_bytes_max: int = 64 << 10
    """The first line and all headers of a request."""
    headers_max: int = 200
    header_blocks_max: int = 256
    """Blocks of headers that are remembered: a request with one needs no parser. 0: all are parsed."""
    header_s: float = 10.0
    """Seconds that they may take to come, from the first byte on; and the first byte of a new connection."""
    half_open_max: int | None = None
    """Connections whose first request has no end of its headers yet; None: a quarter of all."""
    idle_s: float = 75.0
    """Seconds that a connection may wait for its next request."""
    body_s: float = 10.0
    """Seconds that a body may take, beside the time that ``body_bytes_per_s`` allows for its bytes so far."""
    body_bytes_per_s: int = 4 << 10
    body_bytes_ahead: int = 64 << 10
    """Bytes of a body that are taken before somebody reads it."""
    write_s: float = 30.0
    """Seconds that a client may take nothing of an answer that is ready."""
    linger_s: float = 2.0
    """Seconds to read on, and throw away, from a client that was refused while it sends.

    Otherwise the client's system would drop the answer.
    """
    linger_bytes_max: int = 16 << 20
    """Bytes to throw away at most; the rest is not read."""


LOOK_S = 1.0
"""Seconds between two looks at the deadlines."""
