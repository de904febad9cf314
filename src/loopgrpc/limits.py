"""What a peer may use of this server. Every number that protects it is here, with what it protects from.

Per connection, worst case: ``streams_max`` handlers; ``buffer_bytes_max`` of requests that no handler took yet, whole
or in part; ``pending_bytes_max`` of answers that the peer gives no window for; ``write_bytes_max`` and one loop turn's
answers that it does not read. TLS handshakes that do not end have ten seconds and are not counted as connections.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopgrpc.frames import WINDOW_DEFAULT, WINDOW_MAX
from tarry.base.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much of something that costs us and brings the peer nothing is let pass: ``burst`` at once, ``per_s`` in the
    long run, and ``per_work`` more for each unit of real work (a message in, an answer or a DATA frame out).

    The last is what tells a busy client from an attack: grpc-java pings after almost each piece of data to measure its
    bandwidth, and who makes ten thousand calls a second cancels some hundreds.
    """

    burst: int
    per_s: int
    per_work: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a server; the defaults suit a broker whose messages have up to 4 MiB.

    Raises InvalidArgumentError: a value that HTTP/2 does not allow.
    """

    connections_max: int = 10_000
    """More are told GOAWAY and closed."""
    streams_max: int = 1_000
    """Calls of a connection at a time; more are refused with REFUSED_STREAM, which clients may repeat. A call that the
    peer reset counts until its handler has ended: else resetting would be the way round the limit (CVE-2023-44487)."""
    message_bytes_max: int = 4 << 20
    """Of a request message, before and after decompression; above: RESOURCE_EXHAUSTED."""
    header_list_bytes_max: int = 16_384
    """Of a request's fields, counted as RFC 9113 does (each 32 more). Above: HTTP 431, or GOAWAY beyond four times it,
    where decoding stops (HPACK bombs)."""
    continuations_max: int = 32
    """CONTINUATION frames of one header block (CVE-2024-27316 and its kin); more: GOAWAY."""
    stream_window_bytes: int = 1 << 20
    """What a peer may send on a stream ahead of its handler."""
    connection_window_bytes: int = 16 << 20
    """The same for all streams of a connection; given back on arrival, so that no slow handler stops the others."""
    buffer_bytes_max: int = 64 << 20
    """Of a connection's requests that wait for handlers or are incomplete; the call that goes above ends with
    RESOURCE_EXHAUSTED."""
    pending_bytes_max: int = 64 << 20
    """Of a connection's answers that wait for the peer's windows; above: GOAWAY (a peer that asks and opens none)."""
    write_bytes_max: int = 1 << 20
    """What the peer's socket does not take: above, nothing more is read from it."""
    preface_s: float = 10.0
    """From a connection's start to its preface and SETTINGS; then it is closed. Also for a header block to be whole."""
    keepalive_idle_s: float = 60.0
    """A connection silent for so long is asked with a PING; 0: never."""
    keepalive_timeout_s: float = 20.0
    """And closed when it stays silent for so long after that."""
    stall_s: float = 120.0
    """A finished answer that the peer gives no window for: the stream is reset after so long. A socket that takes
    nothing for so long is closed. Streams whose handlers wait for a slow reader wait without end."""
    linger_s: float = 1.0
    """How long the rest of what a peer sends is read and dropped after GOAWAY: closing at once would make the kernel
    answer with a TCP reset, which destroys the GOAWAY on its way."""
    resets: Allowance = Allowance(1_000, 100, 1)
    """Streams that a peer resets, or makes us reset (CVE-2023-44487, CVE-2025-8671), or has refused."""
    pings: Allowance = Allowance(200, 20, 4)
    """PING (CVE-2019-9512)."""
    settings: Allowance = Allowance(50, 1)
    """SETTINGS (CVE-2019-9515)."""
    empties: Allowance = Allowance(200, 20, 1)
    """DATA without data and without an end (CVE-2019-9518)."""
    chatter: Allowance = Allowance(5_000, 1_000, 20)
    """WINDOW_UPDATE, PRIORITY (CVE-2019-9513), resets of what is closed, and frames of unknown types."""

    def __post_init__(self) -> None:
        for name in ("stream_window_bytes", "connection_window_bytes"):
            value = getattr(self, name)
            # Below the default, what a peer sends before it has seen our SETTINGS would be its fault.
            if not WINDOW_DEFAULT <= value <= WINDOW_MAX:
                raise InvalidArgumentError(f"{name} {value}; allowed: {WINDOW_DEFAULT} to {WINDOW_MAX}")
        for name in ("connections_max", "streams_max", "message_bytes_max", "header_list_bytes_max"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} {getattr(self, name)}; allowed: 1 and more")
