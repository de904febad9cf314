"""Encoding and decoding of the messages in ``docs/formats-flight.md``, for both sides.

Pure: no sockets, no threads.

Bytes that mean nothing raise :class:`~tarry.base.errors.InvalidArgumentError`, whatever they are.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarry.base.errors import InvalidArgumentError, MessageTooLargeError, TarryError, from_wire
from tarry.base.types import Int64s
from tarry.message.receipt import OUTCOMES, PLACED

SCHEDULE_PATH = [b"schedule"]
CONSUME_PATH = [b"consume"]
CONSUME, STAGE = "consume", "bulk-stage"
"""The ``op`` of the commands that begin the two other streams."""
PAIRS_MAX = 65_536
"""Most (lease, offset) pairs that our client puts into one settling message."""
JSON_BYTES_MAX = 8 << 20
"""Largest request in JSON: 65,536 handles take half of it."""
JSON_VALUES_MAX = 1_000_000
"""Most values of a request in JSON: a value of two bytes takes some sixty as an object."""
ALIVE_S = 10.0
"""Seconds without another message after which the broker tells a consumer that it is alive."""


# -- answers of DoPut ------------------------------------------------------------------------------------------------


class AnswerKind(IntEnum):
    """Kinds of answers: byte 0."""

    ACCEPTED = 0
    REFUSED = 1
    GOODBYE = 2
    PLACED = 3


@dataclass(frozen=True, slots=True)
class AcceptedAnswer:
    """A batch is durable. ``due_ms`` is there when the broker's clock resolved it."""

    first_seq: int
    rows: int
    token: bytes
    due_ms: Int64s | None


@dataclass(frozen=True, slots=True, eq=False)
class PlacedAnswer:
    """Answer to a batch with keys or ids that is durable.

    ``placed`` (:data:`tarry.message.receipt.PLACED`) has for each row the place of its message, which is not always the
    row's own, and its outcome.
    """

    placed: npt.NDArray[np.void]

    @property
    def rows(self) -> int:
        """Number of rows of the batch."""
        return len(self.placed)


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The broker is stopping; ``error`` says why."""

    error: TarryError


_ACCEPTED = struct.Struct("<BqI8sB")
_PLACED = struct.Struct("<BI")


def encode_accepted(first_seq: int, rows: int, token: bytes, due_ms: Int64s | None) -> bytes:
    """Encode the answer "accepted"."""
    head = _ACCEPTED.pack(AnswerKind.ACCEPTED, first_seq, rows, token, due_ms is not None)
    return head if due_ms is None else head + due_ms.astype("<i8", copy=False).tobytes()


def encode_placed(placed: npt.NDArray[np.void]) -> bytes:
    """Encode the answer "placed"."""
    return _PLACED.pack(AnswerKind.PLACED, len(placed)) + placed.astype(PLACED, copy=False).tobytes()


def encode_refused(error: TarryError, answer: AnswerKind = AnswerKind.REFUSED) -> bytes:
    """Encode the answer "refused", or the goodbye."""
    return bytes([answer]) + encode_error(error)


def decode_answer(raw: bytes) -> AcceptedAnswer | PlacedAnswer | TarryError | Goodbye:
    """Decode the answer to one batch.

    Raises:
        InvalidArgumentError: no answer has such bytes.
    """
    match raw[:1]:
        case b"\x00" if len(raw) >= _ACCEPTED.size:
            _, first_seq, rows, token, has_due = _ACCEPTED.unpack_from(raw)
            if len(raw) == _ACCEPTED.size + 8 * rows * has_due:
                due = np.frombuffer(raw, "<i8", rows, _ACCEPTED.size).astype(np.int64) if has_due else None
                return AcceptedAnswer(first_seq, rows, token, due)
        case b"\x01":
            return decode_error(raw[1:])
        case b"\x02":
            return Goodbye(decode_error(raw[1:]))
        case b"\x03" if len(raw) >= _PLACED.size:
            _, rows = _PLACED.unpack_from(raw)
            if len(raw) == _PLACED.size + PLACED.itemsize * rows:
                placed = np.frombuffer(raw, PLACED, rows, _PLACED.size)
                if _is_placed(placed):
                    return PlacedAnswer(placed)
    raise InvalidArgumentError(
        f"not an answer to a batch: {_shown(raw)}; allowed: accepted (0), refused (1), goodbye (2), placed (3)"
    )


def _is_placed(placed: npt.NDArray[np.void]) -> bool:
    """Return whether each message is one of its batch, so that a handle can be made of each entry."""
    row = placed["seq"] - placed["first_seq"]  # wraps where the numbers are nonsense, and is negative then or too great
    inside = (placed["seq"] >= placed["first_seq"]) & (row >= 0) & (row < placed["rows"])
    return bool(inside.all() and (placed["outcome"] < len(OUTCOMES)).all())


# -- messages of DoExchange ------------------------------------------------------------------------------------------


class StreamOp(IntEnum):
    """Kinds of messages without rows: byte 0."""

    ALIVE = 0
    ACK = 1
    NACK = 2
    EXTEND = 3
    CLOSE = 4
    RETURN = 5
    WINDOW = 6
    FAIL = 7


SETTLED = StreamOp.ACK
GOODBYE = StreamOp.CLOSE
"""The meaning of two of the bytes when the broker sends them."""

_OP = struct.Struct("<Bq")
_REASON = struct.Struct("<I")
REASON_CHARS_MAX = 1000
"""Longest part of a reason that is sent; a broker may keep less."""
LEASE_MS = b"tarry.lease_ms"
"""Key in the metadata of a consumer's schema: milliseconds for which a batch is the consumer's."""
_SETTLING = frozenset(StreamOp) - {StreamOp.ALIVE}
_LEAST = {StreamOp.NACK: -1, StreamOp.FAIL: -1, StreamOp.EXTEND: 1, StreamOp.WINDOW: 0}
"""The least argument of an op that has one."""


@dataclass(frozen=True, slots=True)
class Settle:
    """A consumer's order to settle some of its messages.

    ``argument``: see the table in the format's description.
    """

    op: StreamOp
    argument: int
    leases: Int64s
    offsets: Int64s
    reason: str | None = None
    """The reason why a try failed; of :attr:`StreamOp.FAIL`."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message of the broker without rows."""

    op: StreamOp
    number: int
    error: TarryError | None


def encode_settle(op: StreamOp, argument: int, leases: Int64s, offsets: Int64s, reason: str = "") -> bytes:
    """Encode a settling message; the arrays have one length. ``reason``: only of :attr:`StreamOp.FAIL`."""
    pairs = np.empty((len(leases), 2), "<i8")
    pairs[:, 0], pairs[:, 1] = leases, offsets
    said = b""
    if op is StreamOp.FAIL:
        text = reason[:REASON_CHARS_MAX].encode(errors="replace")
        said = _REASON.pack(len(text)) + text
    return _OP.pack(op, argument) + said + pairs.tobytes()


def decode_settle(raw: bytes) -> Settle:
    """Decode a consumer's settling message.

    Raises:
        InvalidArgumentError: an unknown op, a length that is no whole number of pairs, an argument out of range.
    """
    begin, reason = _OP.size, None
    if len(raw) >= begin + _REASON.size and raw[0] == StreamOp.FAIL:
        end = begin + _REASON.size + _REASON.unpack_from(raw, begin)[0]
        reason = raw[begin + _REASON.size : end].decode(errors="replace")
        begin = end
    if (
        len(raw) < begin
        or (len(raw) - begin) % 16
        or raw[0] not in _SETTLING
        or (raw[0] == StreamOp.FAIL and reason is None)
    ):
        raise InvalidArgumentError(
            f"not a settling message: {_shown(raw)}; allowed: op 1 (ack), 2 (nack), 3 (extend), 4 (close), 5 (return), "
            "6 (window) or 7 (fail), an int64, of fail a reason, and pairs of int64"
        )
    code, argument = _OP.unpack_from(raw)
    op = StreamOp(code)
    least = _LEAST.get(op)
    if least is not None and argument < least:
        raise InvalidArgumentError(f"argument of {op.name.lower()} is {argument}; allowed: {least} or more")
    pairs = np.frombuffer(raw, "<i8", offset=begin).reshape(-1, 2)
    return Settle(op, argument, pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64), reason)


def encode_notice(op: StreamOp, number: int, error: TarryError | None = None) -> bytes:
    """Encode a message of the broker without rows."""
    return _OP.pack(op, number) + (b"" if error is None else encode_error(error))


def decode_notice(raw: bytes) -> Notice:
    """Decode a message of the broker without rows.

    Raises:
        InvalidArgumentError: it is none.
    """
    if len(raw) < _OP.size or raw[0] not in (StreamOp.ALIVE, SETTLED, GOODBYE):
        raise InvalidArgumentError(f"not a notice of a broker: {_shown(raw)}; allowed: op 0, 1 or 4, and an int64")
    code, number = _OP.unpack_from(raw)
    return Notice(StreamOp(code), number, decode_error(raw[_OP.size :]) if len(raw) > _OP.size else None)


# -- JSON ------------------------------------------------------------------------------------------------------------


def encode_json(value: Any) -> bytes:
    """Encode as JSON without blanks."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def decode_json(raw: bytes) -> Any:
    """Decode JSON.

    Raises:
        InvalidArgumentError: it is not JSON in UTF-8, or has half a character in an escape, which is no text.
    """
    try:
        text = raw.decode()
        value = json.loads(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"not JSON: {_shown(raw)}: {error}") from error
    return value


def decode_request(raw: bytes | memoryview) -> Any:
    """Decode JSON of a stranger: what is too much is refused before anything is made of it.

    Raises:
        MessageTooLargeError: it has too many bytes, or values. InvalidArgumentError: see :func:`decode_json`.
    """
    if len(raw) > JSON_BYTES_MAX:
        raise MessageTooLargeError(f"a request of {len(raw)} bytes of JSON; allowed: {JSON_BYTES_MAX}")
    raw = bytes(raw)
    # Also counts what is in texts, so that it may be too many, and never too few.
    if len(raw) > JSON_VALUES_MAX and (values := sum(map(raw.count, (b",", b"[", b"{")))) > JSON_VALUES_MAX:
        raise MessageTooLargeError(f"a request with about {values} values of JSON; allowed: {JSON_VALUES_MAX}")
    return decode_json(raw)


def encode_error(error: TarryError) -> bytes:
    """Encode an error as its code and message."""
    return encode_json(error.to_wire())


def decode_error(raw: bytes) -> TarryError:
    """Return the error that :func:`encode_error` described; one without a code if the bytes describe none."""
    try:
        error = decode_json(raw)
        return from_wire(str(error["code"]), str(error["message"]))
    except (InvalidArgumentError, TypeError, KeyError, ValueError):
        return TarryError(f"an error that could not be read: {_shown(raw)}")


def as_bytes(buffer: pa.Buffer | None) -> bytes:
    """Return the bytes of app metadata; empty bytes if there is no metadata."""
    return b"" if buffer is None else bytes(buffer.to_pybytes())


def _shown(raw: bytes) -> str:
    return f"{raw[:40]!r}{'…' if len(raw) > 40 else ''} ({len(raw)} bytes)"
