"""Frames of the link as bytes (``docs/formats-link.md``). Pure; used by both sides.

Bytes that mean nothing raise :class:`~tarry.base.errors.InvalidArgumentError`.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tarry.api.wire import AcceptedAnswer, PlacedAnswer, decode_answer, encode_error, encode_json
from tarry.base.arrow_messages import refuse_compressed
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.base.types import Int64s, Mask
from tarry.message.accepted import Accepted

VERSION = 1
FRAME_BYTES_MAX = 1 << 30
"""Maximum size of a broker's frame."""
ASKED_BYTES_MAX = 320 << 20
"""Maximum size of a gateway's frame: the largest batch that is accepted has 256 MiB."""
GREETING_BYTES_MAX = (1 << 24) - 1
"""Maximum size of a broker's first frame.

Four characters of a text, taken for a length, are always more.
"""
LEASES_MAX = 1 << 16
"""Most leases in a SETTLE or RETURN of a client."""
HELLO_BYTES_MAX = 64 << 10
"""Maximum size of the first frame: other clients than gateways send something else."""
TLS_ALERT = b"\x15\x03"
"""First bytes of what a port in TLS says to who does not speak it (RFC 8446, section 5.1: alert)."""
CLIENT, LINK, CONTROL = "client", "link", "control"
"""Kinds of connections: a client's; a worker's, for columns; and a worker's, for questions of threads."""


class FrameKind(IntEnum):
    """Frame kinds.

    ``number`` is the id of the question, consumer, batch or group.
    """

    # Of a client, or of a gateway's worker.
    HELLO = 1
    SUBMIT = 2
    SUBMIT_CHECKED = 3
    POLL = 4
    WITHDRAW = 5
    TAKEN = 6
    UNTAKEN = 7
    SETTLE = 8
    RENEW = 9
    CLOSE = 10
    DROP = 11
    POST = 12
    SEND = 13
    CALL = 14
    GROUP = 15
    FIND_KEYED = 16
    REPLACE = 17
    PROOF = 18
    POLL_NOW = 19
    RETURN = 20
    RECEIVE = 21
    STAGE = 22
    PART = 23
    USE = 24
    SUBMIT_OWN = 25
    SUBMIT_CHECKED_OWN = 26
    NOTE = 27
    ISSUER_KEYS = 28
    LEASE = 29
    # Of the broker.
    WELCOME = 64
    ACCEPTED = 65
    REFUSED = 66
    BATCH = 67
    POLLED = 68
    SETTLED = 69
    STATE = 70
    NEWS = 71
    SAID = 72
    MESSAGE = 73
    RESULT = 74
    ROWS = 75
    CHALLENGE = 76
    TOKENS = 77
    IDENTITIES = 78
    ISSUERS = 79


class SettleOp(IntEnum):
    """Operations on leases: byte 0 of SETTLE."""

    ACK = 1
    ACK_EACH = 2
    NACK = 3
    REJECT = 4
    EXTEND = 5
    CHANGE = 6
    GIVE_BACK = 7


HEAD = struct.Struct("<IBI")
"""Head of a frame: the length of the payload, the kind, and the number."""
_POLL = struct.Struct("<IIqI")
_SETTLE = struct.Struct("<BIqI")
_INT = struct.Struct("<q")
_U32 = struct.Struct("<I")

Frame = tuple[int, int, memoryview]
"""Kind, number and payload."""


def keep_alive(connection: socket.socket) -> None:
    """Make a TCP connection end within half a minute when the other machine is gone without a word."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def check_other_side(connection: socket.socket) -> None:
    """Refuse a TCP connection of a socket to itself, which would also keep the broker from its port.

    The kernel makes one of a try to connect to a port where nobody listens, if it has chosen that very port for this
    side (simultaneous open, RFC 9293, section 3.5). Who tries again and again until a broker is back comes to that.

    Raises:
        ConnectionRefusedError: it is one.
    """
    try:
        is_itself = connection.getsockname() == connection.getpeername()
    except OSError:
        return  # it has ended already, and who reads from it learns why
    if is_itself:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


def frame(kind: FrameKind, number: int, *payload: Any) -> list[Any]:
    """Return a frame as parts to be written one after the other."""
    return [HEAD.pack(sum(map(len, payload)), kind, number), *payload]


def hello_frame(said: Mapping[str, Any]) -> list[Any]:
    """Return the greeting with which a connection begins; ``said``: its fields beside the version."""
    return frame(FrameKind.HELLO, 0, encode_json({"version": VERSION, **said}))


def error_frame(number: int, error: TarryError) -> list[Any]:
    """Return the answer that something was refused."""
    return frame(FrameKind.REFUSED, number, encode_error(error))


class LinkFrameReader:
    """Cuts received bytes into frames of up to ``bytes_max``, which may change."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._rest = b""
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._missing = 0
        """Missing bytes of a frame that has begun, and has a known length."""
        self.announced = 0
        """Length of the frame that has begun; 0: not known yet."""

    @property
    def held(self) -> int:
        """Bytes of unfinished frames."""
        return len(self._rest) + self._parts_bytes

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that end in ``data``.

        Raises:
            InvalidArgumentError: a length that no frame has.
        """
        if self._missing > len(data):
            self._parts.append(data)
            self._parts_bytes += len(data)
            self._missing -= len(data)
            return
        if self._rest or self._parts:
            data = b"".join((self._rest, *self._parts, data))
            self._rest, self._parts, self._parts_bytes, self._missing = b"", [], 0, 0
        view, at, end = memoryview(data), 0, len(data)
        self.announced = 0
        while end - at >= HEAD.size:
            length, kind, number = HEAD.unpack_from(data, at)
            if length > self.bytes_max:
                raise InvalidArgumentError(f"a frame of {length} bytes; allowed: {self.bytes_max}")
            begin = at + HEAD.size
            if end - begin < length:
                self._missing, self.announced = length - (end - begin), length
                break
            at = begin + length
            yield kind, number, view[begin:at]
        self._rest = data[at:]


class Poll(NamedTuple):
    """A consumer's request for messages.

    If there is no subscription of that number yet, one is made.
    """

    group: int
    prefetch: int
    lease_ms: int
    rows_max: int
    identity: str = ""
    """Name of the identity that consumes, of a worker's poll; empty: it has none."""

    def encode(self) -> bytes:
        fixed = _POLL.pack(self.group, self.prefetch, self.lease_ms, self.rows_max)
        return fixed + self.identity.encode() if self.identity else fixed

    @classmethod
    def decode(cls, raw: memoryview) -> Poll:
        fixed, name = raw[: _POLL.size], raw[_POLL.size :]
        _check_length("a poll", fixed, _POLL.size)
        group, prefetch, lease_ms, rows_max = _POLL.unpack(fixed)
        return cls(group, prefetch, lease_ms, rows_max, str(name, errors="replace") if name else "")


class SettleFrame(NamedTuple):
    """Settlement of some leases of a group.

    ``argument``: milliseconds, of NACK (-1: the group's back-off), EXTEND and CHANGE.
    """

    op: SettleOp
    group: int
    argument: int
    leases: Int64s
    offsets: Int64s
    reason: str | None = None
    """Reason for the failure of a try, of NACK and REJECT."""

    def encode(self) -> bytes:
        reason = b"" if self.reason is None else self.reason.encode(errors="replace")
        return (
            _SETTLE.pack(self.op, self.group, self.argument, len(reason))
            + _pair_bytes(self.leases, self.offsets)
            + reason
        )

    @classmethod
    def decode(cls, raw: memoryview) -> SettleFrame:
        op, group, argument, said = _SETTLE.unpack_from(raw) if len(raw) >= _SETTLE.size else (-1, 0, 0, 0)
        pairs, rest = divmod(len(raw) - _SETTLE.size - said, 16)
        if pairs < 0 or rest or op not in set(SettleOp):
            raise InvalidArgumentError(f"not a settlement: {len(raw)} bytes")
        columns = np.frombuffer(raw, "<i8", 2 * pairs, _SETTLE.size).astype(np.int64, copy=False)
        reason = bytes(raw[len(raw) - said :]).decode(errors="replace") if said else None
        return cls(SettleOp(op), group, argument, columns[:pairs], columns[pairs:], reason)


class Pairs(NamedTuple):
    """Leases and offsets of messages: of RETURN, and of SETTLE."""

    leases: Int64s
    offsets: Int64s

    def parts(self) -> Iterator[Pairs]:
        """Yield them in as few parts as a client may name in one frame."""
        for start in range(0, len(self.leases), LEASES_MAX):
            part = slice(start, start + LEASES_MAX)
            yield Pairs(self.leases[part], self.offsets[part])

    def encode(self) -> bytes:
        return _pair_bytes(self.leases, self.offsets)

    @classmethod
    def decode(cls, raw: memoryview) -> Pairs:
        pairs, rest = divmod(len(raw), 16)
        if rest:
            raise InvalidArgumentError(f"{len(raw)} bytes; allowed: pairs of a lease and an offset, of 16 bytes each")
        columns = np.frombuffer(raw, "<i8", 2 * pairs).astype(np.int64, copy=False)
        return cls(columns[:pairs], columns[pairs:])


def encode_mask(mask: Mask) -> bytes:
    """Encode the mask of the rows of an ACK_EACH that were settled."""
    return np.asarray(mask, np.uint8).tobytes()


def decode_mask(raw: memoryview) -> Mask:
    return np.frombuffer(raw, np.uint8).astype(np.bool_)


def encode_int(value: int) -> bytes:
    """Encode a whole number."""
    return _INT.pack(value)


def decode_int(raw: memoryview) -> int:
    _check_length("a number", raw, _INT.size)
    value: int = _INT.unpack(raw)[0]
    return value


def numbered(number: int) -> bytes:
    """Encode a second number, before a payload."""
    return _U32.pack(number)


def split_number(raw: memoryview) -> tuple[int, memoryview]:
    """Split the bytes of :func:`numbered` and a payload."""
    if len(raw) < _U32.size:
        raise InvalidArgumentError(f"{len(raw)} bytes, where a number should be")
    return _U32.unpack_from(raw)[0], raw[_U32.size :]


def decode_accepted(raw: memoryview) -> Accepted:
    """Decode the answer ACCEPTED.

    Raises:
        InvalidArgumentError: it is none.
    """
    length, rest = split_number(raw)
    accepted = decode_answer(bytes(rest[:length]))
    placed = decode_answer(bytes(rest[length:])) if len(rest) > length else None
    if (
        not isinstance(accepted, AcceptedAnswer)
        or accepted.due_ms is None
        or (placed is not None and not (isinstance(placed, PlacedAnswer) and placed.rows == accepted.rows))
    ):
        raise InvalidArgumentError(f"{bytes(raw[:40])!r} ({len(raw)} bytes) does not say what was accepted")
    return Accepted(accepted.first_seq, accepted.due_ms, accepted.token, None if placed is None else placed.placed)


def encode_batch(batch: pa.RecordBatch) -> memoryview:
    """Encode a batch whose schema the other side knows."""
    return memoryview(batch.serialize())


def decode_batch(raw: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """Decode a batch, and check its memory, so that no value points outside of it."""
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(raw), schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise InvalidArgumentError(f"{len(raw)} bytes are no record batch: {error}") from error
    return batch


def decode_rows(raw: memoryview) -> pa.Table:
    """Decode the rows of an Arrow stream, and check their memory."""
    try:
        source = pa.BufferReader(pa.py_buffer(raw))
        table = pa.ipc.open_stream(source).read_all()
        if (end := source.tell()) != len(raw):
            raise ValueError(f"the stream ends at {end}, and what is behind it would not be read")
        table.validate(full=True)
        _ = table.column_names
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"the name of a column is {error.object!r:.300}; allowed: UTF-8") from error
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise InvalidArgumentError(f"{len(raw)} bytes are no rows: {error}") from error
    return table


def decode_foreign_rows(raw: memoryview) -> pa.Table:
    """Decode the rows of a stranger's Arrow stream, as :func:`decode_rows`, but none that are compressed."""
    refuse_compressed(raw)  # a few bytes could say that they are gigabytes
    return decode_rows(raw)


def no_broker(beginning: bytes, is_client: bool) -> str:
    """Say what answers in a broker's place, by its first bytes, to a client or to a gateway's worker."""
    if beginning.startswith(TLS_ALERT):
        way = "the address as tls://HOST:PORT" if is_client else "gateway_tls_ca=FILE"
        return f"the port speaks TLS; allowed: {way}, or a port without TLS"
    is_http = beginning.startswith(b"HTTP")
    no_tarry = f"is no Tarry broker of this release: it begins with {beginning!r}"
    port = "native port (setting `flight`, 7611 by default)" if is_client else "port of the setting `gateway`"
    return f"what answers {'speaks HTTP' if is_http else no_tarry}; allowed: a broker's {port}"


def _pair_bytes(leases: Int64s, offsets: Int64s) -> bytes:
    return np.concatenate((leases.astype("<i8", copy=False), offsets.astype("<i8", copy=False))).tobytes()


def _check_length(what: str, raw: memoryview, length: int) -> None:
    if len(raw) != length:
        raise InvalidArgumentError(f"{what} has {len(raw)} bytes; allowed: {length}")
