"""gRPC's framing of messages inside DATA, PROTOCOL-HTTP2.md, Requests: a flag, a length in four bytes, the message.

DATA frames cut messages anywhere. A message is refused by its announced length, before its bytes are there, and a
compressed one as soon as it has grown above the limit.
"""

from __future__ import annotations

import zlib

from loopgrpc.answers import PREFIX_BYTES
from loopgrpc.status import GrpcError, StatusCode

_WINDOW_BITS = {b"gzip": 31, b"deflate": 15}


class Deframer:
    """The messages of one request. ``held`` is how many bytes of an incomplete one it has."""

    __slots__ = ("_encoding", "_max", "_part", "_wanted")

    def __init__(self, encoding: bytes, message_bytes_max: int) -> None:
        self._encoding = encoding
        self._max = message_bytes_max
        self._part = bytearray()
        self._wanted = PREFIX_BYTES

    @property
    def held(self) -> int:
        """Bytes of a message that is not complete."""
        return len(self._part)

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that ``data`` completes.

        Raises GrpcError: RESOURCE_EXHAUSTED for a message above the limit, INTERNAL for framing that is none.
        """
        part = self._part
        if part:
            part += data
            if len(part) < self._wanted:
                return []
            data = bytes(part)
            part.clear()
        return self._split(data)

    def _split(self, data: bytes) -> list[bytes]:
        messages: list[bytes] = []
        at, end = 0, len(data)
        while end - at >= PREFIX_BYTES:
            start = at + PREFIX_BYTES
            length = int.from_bytes(data[at + 1 : start], "big")
            if length > self._max:
                raise _too_large(f"a message of {length} bytes", self._max)
            if end - start < length:
                self._wanted = PREFIX_BYTES + length
                break
            message = data[start : start + length]
            flag = data[at]
            messages.append(message if not flag else self._decompress(flag, message))
            at = start + length
        else:
            self._wanted = PREFIX_BYTES
        if at < end:
            self._part += data[at:] if at else data
        return messages

    def _decompress(self, flag: int, data: bytes) -> bytes:
        bits = _WINDOW_BITS.get(self._encoding)
        if flag != 1 or bits is None:
            raise GrpcError(StatusCode.INTERNAL, f"a message with flag {flag} and {self._encoding.decode()} encoding")
        inflater = zlib.decompressobj(bits)
        try:
            # One byte above the limit is enough to know, however much a bomb would grow to.
            message = inflater.decompress(data, self._max + 1)
        except zlib.error as error:
            raise GrpcError(StatusCode.INTERNAL, f"a message that does not decompress: {error}") from error
        if len(message) > self._max:
            raise _too_large("a message that decompresses to more", self._max)
        if not inflater.eof:
            raise GrpcError(StatusCode.INTERNAL, "a compressed message that is cut off")
        return message


def _too_large(what: str, most: int) -> GrpcError:
    return GrpcError(StatusCode.RESOURCE_EXHAUSTED, f"{what}; at most {most}")
