"""gRPC's framing of messages inside DATA: a compression flag, a length in four bytes, the message.

DATA frames cut messages anywhere. A message that is too large is refused by the length that it announces, before its
bytes have arrived, and a compressed one as soon as it has grown above the limit. Source: PROTOCOL-HTTP2.md,
Length-Prefixed-Message.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final, TypeAlias

from loopgrpc.status import GrpcError, StatusCode

Buffer: TypeAlias = bytes | bytearray | memoryview

PREFIX_BYTES: Final = 5
"""Bytes before each message: the compression flag, and the length in four bytes."""
_WINDOW_BITS: Final = {b"gzip": 31, b"deflate": 15}
"""zlib's ``wbits`` by ``grpc-encoding``: with a header of gzip, or of zlib."""


class Framed(bytes):
    """Several messages with their prefixes, which a handler may return or yield at once."""


def framed(messages: Iterable[bytes]) -> Framed:
    """Join several messages into one piece.

    The piece goes to the wire in one step, where each message alone would take one.
    """
    return Framed(b"".join([part for m in messages for part in (b"\0", len(m).to_bytes(4, "big"), m)]))


def assembled(parts: Iterable[Buffer]) -> Framed:
    """Put one message together from its parts, in one copy: for messages that are large."""
    pieces = [memoryview(part) for part in parts]
    length = sum(piece.nbytes for piece in pieces)
    return Framed(b"".join([b"\0", length.to_bytes(4, "big"), *pieces]))


def prefix(message: bytes) -> bytes:
    """Return ``message`` with gRPC's five bytes before it, uncompressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def is_one_message(data: bytes, message_bytes_max: int) -> bool:
    """Return whether ``data`` is exactly one uncompressed message with its prefix.

    The message may have at most ``message_bytes_max`` bytes.
    """
    length = len(data) - PREFIX_BYTES
    return 0 <= length <= message_bytes_max and data[0] == 0 and int.from_bytes(data[1:PREFIX_BYTES], "big") == length


class Deframer:
    """Cuts the bytes of one request into messages. ``encoding`` is its ``grpc-encoding``."""

    __slots__ = ("_encoding", "_incomplete", "_message_bytes_max", "_needed_bytes")

    def __init__(self, encoding: bytes, message_bytes_max: int) -> None:
        self._encoding = encoding
        self._message_bytes_max = message_bytes_max
        self._incomplete = bytearray()
        self._needed_bytes = PREFIX_BYTES
        """Length that ``_incomplete`` has to reach before parsing can go on."""

    @property
    def incomplete_bytes(self) -> int:
        """Bytes of a message that is not complete yet."""
        return len(self._incomplete)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that ``data`` completes, without their prefixes and decompressed.

        Raises GrpcError: RESOURCE_EXHAUSTED for a message above the limit, INTERNAL for invalid framing.
        """
        incomplete = self._incomplete
        if incomplete:
            incomplete += data
            if len(incomplete) < self._needed_bytes:
                return []
            data = bytes(incomplete)
            incomplete.clear()
        return self._split(data)

    def _split(self, data: bytes) -> list[bytes]:
        messages: list[bytes] = []
        at, end = 0, len(data)
        while end - at >= PREFIX_BYTES:
            start = at + PREFIX_BYTES
            length = int.from_bytes(data[at + 1 : start], "big")
            if length > self._message_bytes_max:
                raise _too_large(f"a message of {length} bytes", self._message_bytes_max)
            if end - start < length:
                self._needed_bytes = PREFIX_BYTES + length
                break
            message = data[start : start + length]
            flag = data[at]
            messages.append(message if not flag else self._decompress(flag, message))
            at = start + length
        else:
            self._needed_bytes = PREFIX_BYTES
        if at < end:
            self._incomplete += data[at:] if at else data
        return messages

    def _decompress(self, flag: int, data: bytes) -> bytes:
        window_bits = _WINDOW_BITS.get(self._encoding)
        if flag != 1 or window_bits is None:
            raise GrpcError(StatusCode.INTERNAL, f"a message with flag {flag} and {self._encoding.decode()} encoding")
        inflater = zlib.decompressobj(window_bits)
        try:
            # One byte above the limit is enough, however large a decompression bomb would grow.
            message = inflater.decompress(data, self._message_bytes_max + 1)
        except zlib.error as error:
            raise GrpcError(StatusCode.INTERNAL, f"a message that does not decompress: {error}") from error
        if len(message) > self._message_bytes_max:
            raise _too_large("a message that decompresses to more", self._message_bytes_max)
        if not inflater.eof:
            raise GrpcError(StatusCode.INTERNAL, "a compressed message that is cut off")
        return message


def _too_large(what: str, bytes_max: int) -> GrpcError:
    return GrpcError(StatusCode.RESOURCE_EXHAUSTED, f"{what}; at most {bytes_max}")
