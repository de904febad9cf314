"""Header blocks of answers. All are literals that no table remembers, so a block is the same bytes on every connection.

An answer to a call is HEADERS, DATA, HEADERS in most cases with the very same two blocks: ``head`` and ``tail`` make
frames of them by putting the stream's number in. Sources: RFC 7541, section 6.2.2; PROTOCOL-HTTP2.md, Responses.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterable
from typing import Final

from loopgrpc.fields import Field
from loopgrpc.frames import CONTINUATION, DATA, END_HEADERS, END_STREAM, FRAME_BYTES_MAX, HEAD, HEADERS, frame
from loopgrpc.request import Refusal
from loopgrpc.status import StatusCode, encode_message


def literal(name: bytes, value: bytes) -> bytes:
    """A field as a literal without indexing and without Huffman's code."""
    return b"\0" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    length = len(text)
    if length < 0x7F:
        return bytes((length,)) + text
    head, length = bytearray((0x7F,)), length - 0x7F
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + text


_STATUS_200 = b"\x88"  # the static table has it
_CONTENT_TYPE = literal(b"content-type", b"application/grpc")
START: Final = _STATUS_200 + _CONTENT_TYPE
"""The block that begins every answer with messages."""
OK: Final = literal(b"grpc-status", b"0")
"""The block that ends most."""

_HEAD = struct.Struct(f">IBI{len(START)}sIBIBI")
_HEAD_WORD = len(START) << 8 | HEADERS
_TAIL = struct.Struct(f">IBI{len(OK)}s")
_TAIL_WORD = len(OK) << 8 | HEADERS
PREFIX_BYTES: Final = 5
"""Before each message: whether it is compressed, and its length in four bytes."""


def one_message(stream: int, message: bytes) -> bytes:
    """A whole answer, good, of one message that fits in a frame: HEADERS, DATA, HEADERS."""
    length = len(message)
    head = _HEAD.pack(_HEAD_WORD, END_HEADERS, stream, START, (length + PREFIX_BYTES) << 8 | DATA, 0, stream, 0, length)
    return head + message + _TAIL.pack(_TAIL_WORD, END_HEADERS | END_STREAM, stream, OK)


def prefix(message: bytes) -> bytes:
    """``message`` with gRPC's five bytes before it, uncompressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


class Framed(bytes):
    """Messages with their prefixes: what a handler yields that has several at once."""


def framed(messages: Iterable[bytes]) -> Framed:
    """Several messages as one piece: they go to the wire in one step, where each alone would take one."""
    return Framed(b"".join([part for m in messages for part in (b"\0", len(m).to_bytes(4, "big"), m)]))


def block_frames(stream: int, block: bytes, *, end: bool) -> bytes:
    """HEADERS, and CONTINUATION for what does not fit in one; with ``end`` they end the stream."""
    flags = END_STREAM if end else 0
    if len(block) <= FRAME_BYTES_MAX:
        return frame(HEADERS, flags | END_HEADERS, stream, block)
    parts = [block[at : at + FRAME_BYTES_MAX] for at in range(0, len(block), FRAME_BYTES_MAX)]
    frames = [frame(HEADERS, flags, stream, parts[0])]
    frames += [frame(CONTINUATION, 0, stream, part) for part in parts[1:-1]]
    return b"".join(frames) + frame(CONTINUATION, END_HEADERS, stream, parts[-1])


def trailers(status: StatusCode, message: str = "", metadata: Iterable[Field] = ()) -> bytes:
    """The block that ends an answer."""
    if status is StatusCode.OK and not message and not metadata:
        return OK
    fields = [literal(b"grpc-status", str(int(status)).encode())]
    if message:
        fields.append(literal(b"grpc-message", encode_message(message)))
    fields += [literal(*field) for field in metadata]
    return b"".join(fields)


def encode_metadata(name: str, value: str | bytes) -> Field:
    """A field of a handler's own; ``-bin`` names take bytes and are sent in base64, others take printable ASCII.

    Raises ValueError: a name or a value that the wire cannot carry.
    """
    raw = name.encode("ascii")
    if name.startswith("grpc-") or not name or set(name) - _NAME_CHARACTERS:
        raise ValueError(f"metadata {name!r}; allowed: a-z 0-9 _ - . and no grpc- at the start")
    if name.endswith("-bin"):
        if not isinstance(value, bytes):
            raise ValueError(f"metadata {name!r} takes bytes")
        return raw, b64encode(value).rstrip(b"=")
    if not isinstance(value, str) or not value.isascii() or not (value.isprintable() and value == value.strip()):
        raise ValueError(f"metadata {name!r} takes printable ASCII without blanks at its ends")
    return raw, value.encode("ascii")


_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-.")


def refusal_blocks(refusal: Refusal) -> tuple[bytes, bytes]:
    """The block and the body of an answer without a call; an empty body means that the block ends the stream."""
    if refusal.http == 200:
        return START + trailers(refusal.status, refusal.text, refusal.extra), b""
    body = refusal.text.encode() + b"\n"
    fields = [
        (b":status", str(refusal.http).encode()),
        (b"content-type", b"text/plain"),
        (b"content-length", str(len(body)).encode()),
        (b"grpc-status", str(int(refusal.status)).encode()),
        (b"grpc-message", encode_message(refusal.text)),
        *refusal.extra,
    ]
    return b"".join(literal(*field) for field in fields), body


def data_head(stream: int, length: int) -> bytes:
    """The nine bytes before ``length`` bytes of DATA that do not end the stream."""
    return HEAD.pack(length << 8 | DATA, 0, stream)
