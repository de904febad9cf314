"""Responses as bytes: their header blocks and frames.

All fields are literals that no dynamic table remembers, so a header block is the same bytes on every connection, and
the peer's decoder needs no state of ours. In most cases a response is HEADERS, DATA, HEADERS with the very same two
header blocks: :func:`unary_response` makes the three frames of them with two packs of a struct.
Sources: RFC 7541, section 6.2.2; PROTOCOL-HTTP2.md, Responses.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from loopgrpc.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES_MAX,
    FRAME_HEADER,
    HEADERS,
    frame,
)
from loopgrpc.framing import PREFIX_BYTES
from loopgrpc.header_table import Field
from loopgrpc.request import Refusal
from loopgrpc.status import StatusCode, encode_message


def encode_literal(name: bytes, value: bytes) -> bytes:
    """Return a field as a literal without indexing or Huffman coding (RFC 7541, section 6.2.2)."""
    return b"\0" + _encode_string(name) + _encode_string(value)


def _encode_string(text: bytes) -> bytes:
    """Return a string literal (RFC 7541, section 5.2).

    It is its length with a prefix of seven bits, then its bytes.
    """
    length = len(text)
    if length < 0x7F:
        return bytes((length,)) + text
    encoded_length, length = bytearray((0x7F,)), length - 0x7F
    while length >= 0x80:
        encoded_length.append(length & 0x7F | 0x80)
        length >>= 7
    encoded_length.append(length)
    return bytes(encoded_length) + text


_STATUS_200: Final = b"\x88"  # from the static table
_CONTENT_TYPE: Final = encode_literal(b"content-type", b"application/grpc")
RESPONSE_HEADERS: Final = _STATUS_200 + _CONTENT_TYPE
"""The header block that begins every response with messages."""
OK_TRAILERS: Final = encode_literal(b"grpc-status", b"0")
"""The header block that ends most responses."""

_HEADERS_AND_DATA = struct.Struct(f">IBI{len(RESPONSE_HEADERS)}sIBIBI")
_HEADERS_WORD = len(RESPONSE_HEADERS) << 8 | HEADERS
_TRAILERS = struct.Struct(f">IBI{len(OK_TRAILERS)}s")
_TRAILERS_WORD = len(OK_TRAILERS) << 8 | HEADERS


def unary_response(stream_id: int, message: bytes) -> bytes:
    """Return a whole good response of one message that fits in a frame: HEADERS, DATA, HEADERS."""
    length = len(message)
    data_word = (length + PREFIX_BYTES) << 8 | DATA
    head = _HEADERS_AND_DATA.pack(
        _HEADERS_WORD, END_HEADERS, stream_id, RESPONSE_HEADERS, data_word, 0, stream_id, 0, length
    )
    return head + message + _TRAILERS.pack(_TRAILERS_WORD, END_HEADERS | END_STREAM, stream_id, OK_TRAILERS)


def headers_frames(stream_id: int, block: bytes, *, end: bool) -> bytes:
    """Return HEADERS, and CONTINUATION for what does not fit in one frame.

    With ``end`` they end the stream.
    """
    flags = END_STREAM if end else 0
    if len(block) <= FRAME_BYTES_MAX:
        return frame(HEADERS, flags | END_HEADERS, stream_id, block)
    parts = [block[at : at + FRAME_BYTES_MAX] for at in range(0, len(block), FRAME_BYTES_MAX)]
    frames = [frame(HEADERS, flags, stream_id, parts[0])]
    frames += [frame(CONTINUATION, 0, stream_id, part) for part in parts[1:-1]]
    return b"".join(frames) + frame(CONTINUATION, END_HEADERS, stream_id, parts[-1])


def data_header(stream_id: int, length: int) -> bytes:
    """Return the nine bytes before ``length`` bytes of DATA that do not end the stream."""
    return FRAME_HEADER.pack(length << 8 | DATA, 0, stream_id)


def encode_trailers(status: StatusCode, message: str = "", metadata: Iterable[Field] = ()) -> bytes:
    """Return the header block that ends a response."""
    if status is StatusCode.OK and not message and not metadata:
        return OK_TRAILERS
    fields = [encode_literal(b"grpc-status", str(int(status)).encode())]
    if message:
        fields.append(encode_literal(b"grpc-message", encode_message(message)))
    fields += [encode_literal(*field) for field in metadata]
    return b"".join(fields)


def encode_refusal(refusal: Refusal) -> tuple[bytes, bytes]:
    """Return the header block and the body of the response to a request that starts no call.

    An empty body means that the header block ends the stream.
    """
    if refusal.http_status == 200:
        return RESPONSE_HEADERS + encode_trailers(refusal.status, refusal.text, refusal.fields), b""
    body = refusal.text.encode() + b"\n"
    fields = [
        (b":status", str(refusal.http_status).encode()),
        (b"content-type", b"text/plain"),
        (b"content-length", str(len(body)).encode()),
        (b"grpc-status", str(int(refusal.status)).encode()),
        (b"grpc-message", encode_message(refusal.text)),
        *refusal.fields,
    ]
    return b"".join(encode_literal(*field) for field in fields), body
