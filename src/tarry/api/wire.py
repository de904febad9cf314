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
from tarry.message.accepted import PLACED
from tarry.message.receipt import OUTCOMES

SCHEDULE_PATH = [b"schedule"]
STAGE = "bulk-stage"
"""The ``op`` of the command that begins the other stream of DoPut."""
JSON_BYTES_MAX = 8 << 20
"""Largest request in JSON: 65,536 handles take half of it."""
JSON_VALUES_MAX = 1_000_000
"""Most values of a request in JSON: a value of two bytes takes some sixty as an object."""


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

    ``placed`` (:data:`tarry.message.accepted.PLACED`) has for each row the place of its message, which is not always
    the row's own, and its outcome.
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
        # Not the bytes: a greeting and a request for a credential have secrets in them, and errors come into logs.
        raise InvalidArgumentError(f"not JSON: {error} ({len(raw)} bytes)") from error
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
