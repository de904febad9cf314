"""Protobuf's wire format by hand, for messages that are many, or large and not to be copied.

Source: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _LENGTH, _FIXED = 0, 2, {1: 8, 5: 4}
"""Wire types; of the fixed ones, their bytes."""
_SMALL = [bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(1 << 14)]


def varint(value: int) -> bytes:
    """Encode a whole number, 0 or more, as a varint."""
    if value < len(_SMALL):
        return _SMALL[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def head(number: int, length: int) -> bytes:
    """Return what stands before the ``length`` bytes of field ``number``."""
    return varint(number << 3 | _LENGTH) + varint(length)


def read_fields(raw: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield each field of a message: its number, and its whole number or bytes.

    Those of a fixed size are left out.

    Raises:
        ValueError: these bytes are no message.
    """
    view, at, end = memoryview(raw), 0, len(raw)
    while at < end:
        tag, at = _read_varint(view, at)
        kind = tag & 7
        if kind in _FIXED:
            at += _FIXED[kind]
            continue
        if kind not in (_VARINT, _LENGTH):
            raise ValueError(f"wire type {kind}")
        value, at = _read_varint(view, at)
        if kind == _VARINT:
            yield tag >> 3, value
        else:
            yield tag >> 3, view[at : at + value]
            at += value
    if at > end:
        raise ValueError("a field that is cut off")


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(view[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a varint that does not end")
