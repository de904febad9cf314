"""Several messages of a producer in the body of one request.

::

    each:  length i32 · magic i32 · CRC-32 i32 · flag i32 · body (length i32) · properties (length i16)

Source: ``MessageDecoder.encodeMessage`` of apache/rocketmq; a broker looks neither at the magic nor at the checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.message_bytes import decode_properties, encode_properties

_FRONT = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
MESSAGES_MAX = 32_768


class BatchEntry(NamedTuple):
    """One of the messages."""

    body: bytes
    properties: dict[str, str]
    flag: int = 0


def encode_batch(entries: Sequence[BatchEntry]) -> bytes:
    """Encode messages as a producer sends them."""
    parts = []
    for body, properties, flag in entries:
        text = encode_properties(properties)
        length = _FRONT.size + len(body) + _SHORT.size + len(text)
        parts += [_FRONT.pack(length, 0, zlib.crc32(body) & 0x7FFFFFFF, flag, len(body)), body]
        parts += [_SHORT.pack(len(text)), text]
    return b"".join(parts)


def decode_batch(body: bytes) -> list[BatchEntry]:
    """Return the messages of a body, in order.

    Raises:
        RequestRefused: MESSAGE_ILLEGAL: it is damaged, or has too many.
    """
    entries: list[BatchEntry] = []
    place = 0
    while place < len(body):
        if len(entries) == MESSAGES_MAX:
            raise _refusal(f"more than {MESSAGES_MAX} messages")
        entry, place = _read(body, place)
        entries.append(entry)
    if not entries:
        raise _refusal("no message; allowed: 1 and more")
    return entries


def _read(body: bytes, place: int) -> tuple[BatchEntry, int]:
    """Return the message at a place, and where the next one begins."""
    try:
        length, _, _, flag, size = _FRONT.unpack_from(body, place)
        end = place + length
        text_at = place + _FRONT.size + size
        (text_size,) = _SHORT.unpack_from(body, text_at)
        text_begin = text_at + _SHORT.size
        if min(size, text_size) < 0 or text_begin + text_size != end or end > len(body):
            raise _refusal(f"the message at byte {place} is damaged")
        properties = decode_properties(body[text_begin:end].decode())
    except (struct.error, UnicodeDecodeError) as error:
        raise _refusal(f"the message at byte {place} is damaged: {error}") from error
    return BatchEntry(body[place + _FRONT.size : text_at], properties, flag), end


def _refusal(text: str) -> RequestRefused:
    return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"batch: {text}")
