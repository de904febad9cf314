"""Bounds on a peer's use of this server: every protective number, with the attack or fault it stops.

The worst that one connection can hold: ``streams_max`` handlers; ``buffer_bytes_max`` of requests that no handler has
taken yet, whole or in part, and all of them ``all_buffer_bytes_max``; ``pending_bytes_max`` of responses that the peer
gives no window for; ``write_bytes_max`` and the responses of one turn of the event loop that it does not read. TLS
handshakes that do not end have ten seconds and are not counted as connections. A listener that gives connections an
``Admission`` of its own has bounds of its own in place of ``connections_max`` and ``peer_connections_max``.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopgrpc.frames import WINDOW_DEFAULT, WINDOW_MAX


@dataclass(frozen=True, slots=True)
class Allowance:
    """Allowance of something that costs the server work and is of no use to the peer.

    It lets pass ``burst`` at once, ``per_s`` a second in the long run, and ``per_work`` more for each unit of real work
    (a message in, a response or a DATA frame out). The last tells a busy client from an attack: grpc-java pings after
    almost each piece of data to measure its bandwidth, and a client that makes ten thousand calls a second cancels some
    hundreds of them.
    """

    burst: int
    per_s: int
    per_work: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a server. The defaults suit messages of up to 4 MiB.

    Raises ValueError: a value that HTTP/2 does not allow, or a maximum below 1.
    """

    connections_max: int = 10_000
    """Connections of the server; those above this get GOAWAY and are closed.

    The oldest that has not sent its preface is closed first, so that silent ones cannot keep others out.
    """
    peer_connections_max: int = 10_000
    """The same for the connections of one address."""
    streams_max: int = 1_000
    """Calls of a connection at a time.

    More are refused with REFUSED_STREAM, which clients may repeat. A call that the peer reset counts until its handler
    has ended: otherwise resetting would be a way round the limit (CVE-2023-44487).
    """
    calls_max: int = 1_000_000
    """Calls of all connections together at a time, each from its headers; one address may have half.

    More end with UNAVAILABLE.
    """
    message_bytes_max: int = 4 << 20
    """Bytes of a request message, before and after decompression; above: RESOURCE_EXHAUSTED."""
    header_list_bytes_max: int = 16_384
    """Bytes of a request's header fields, counted as in RFC 9113, section 6.5.2 (32 more for each).

    Above: HTTP status 431, or GOAWAY beyond four times the limit, where decoding stops (HPACK bombs).
    """
    continuations_max: int = 32
    """CONTINUATION frames of one header block (CVE-2024-27316 and similar); more: GOAWAY."""
    stream_window_bytes: int = 1 << 20
    """Bytes that a peer may send on a stream ahead of its handler."""
    connection_window_bytes: int = 16 << 20
    """The same for all streams of a connection.

    It is given back on arrival, so that no slow handler stops others.
    """
    buffer_bytes_max: int = 64 << 20
    """Bytes of a connection's requests that wait for handlers or are incomplete.

    The call that exceeds it ends with RESOURCE_EXHAUSTED.
    """
    all_buffer_bytes_max: int = 256 << 20
    """The same for all connections together; one address may have half.

    The call that exceeds it ends with RESOURCE_EXHAUSTED.
    """
    untrusted_buffer_bytes_max: int = 64 << 10
    """The same for a connection without a trusted call so far, where a server asks for trust."""
    request_s: float = 30.0
    """Seconds for a message to be complete, and for the request of a method that takes one.

    Then the call ends with DEADLINE_EXCEEDED (Slowloris).
    """
    pending_bytes_max: int = 64 << 20
    """Bytes of a connection's responses that wait for the peer's windows.

    Above: GOAWAY (a peer that calls and opens no window).
    """
    write_bytes_max: int = 1 << 20
    """Bytes that the peer's socket does not take; above, nothing more is read from it."""
    preface_s: float = 10.0
    """Seconds from the start of a connection to its preface and SETTINGS; then it is closed.

    Also the time for a header block to be complete.
    """
    keepalive_idle_s: float = 60.0
    """Seconds of silence after which a connection is sent a PING; 0: never."""
    keepalive_timeout_s: float = 20.0
    """Seconds of further silence after which it is closed."""
    stall_s: float = 30.0
    """Seconds without progress after which responses that wait for the peer are given up.

    A stream whose finished response gets no window is reset. A connection that takes nothing of what waits for it is
    closed; streams whose handlers wait for a slow reader wait as long as others of their connection go on.
    """
    linger_s: float = 1.0
    """Seconds in which the rest of what a peer sends is read and dropped after GOAWAY.

    If the connection was closed at once, the kernel would answer with a TCP reset, which destroys the GOAWAY on its
    way.
    """
    resets: Allowance = Allowance(1_000, 100, 1)
    """Streams that a peer resets, makes the server reset, or has refused.

    CVE-2023-44487, CVE-2025-8671.
    """
    pings: Allowance = Allowance(200, 20, 4)
    """PING (CVE-2019-9512)."""
    settings: Allowance = Allowance(50, 1)
    """SETTINGS (CVE-2019-9515)."""
    empty_data: Allowance = Allowance(200, 20, 1)
    """DATA without data that does not end its stream (CVE-2019-9518)."""
    other_frames: Allowance = Allowance(5_000, 1_000, 20)
    """WINDOW_UPDATE, PRIORITY (CVE-2019-9513), frames on closed streams, and unknown frames."""

    def __post_init__(self) -> None:
        for name in ("stream_window_bytes", "connection_window_bytes"):
            value = getattr(self, name)
            # Below the default, data that a peer sends before it has seen our SETTINGS would count as its fault.
            if not WINDOW_DEFAULT <= value <= WINDOW_MAX:
                raise ValueError(f"{name} {value}; allowed: {WINDOW_DEFAULT} to {WINDOW_MAX}")
        for name in (
            "connections_max",
            "peer_connections_max",
            "streams_max",
            "calls_max",
            "message_bytes_max",
            "header_list_bytes_max",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}; allowed: 1 and more")
