"""Bytes and values that are nearly right: valid ones, with some changes drawn from a seed."""

from __future__ import annotations

import random
import struct
from typing import Any

ODD_NUMBERS = (
    0,
    1,
    -1,
    2,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 62,
    (1 << 63) - 1,
    -(1 << 63),
    1 << 70,
)
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    "",
    "t",
    "\x00",
    "x" * 300,
    "earliest",
    "sql: a >",
    [],
    {},
    [None],
    1.5,
    1e308,
)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """With one to four changes: bits, bytes, numbers, and pieces that are cut, doubled, zeroed or put elsewhere."""
    content = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not content:
            return rng.randbytes(rng.randint(0, 40))
        at, length = rng.randrange(len(content)), rng.randint(1, 16)
        match rng.randrange(8):
            case 0:
                content[at] ^= 1 << rng.randrange(8)
            case 1:
                content[at] = rng.randrange(256)
            case 2:
                number = rng.choice(ODD_NUMBERS) & ((1 << 64) - 1)
                packed = struct.pack("<Q", number)[: rng.choice([1, 2, 4, 8])]
                content[at : at + len(packed)] = packed
            case 3:
                del content[at:]
            case 4:
                del content[at : at + length]
            case 5:
                content[at:at] = content[at : at + length]
            case 6:
                content[at : at + length] = bytes(min(length, len(content) - at))
            case _:
                other = rng.randrange(len(content))
                content[at:at] = content[other : other + length]
    return bytes(content)


def mutated_fields(fields: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A JSON object with one or two of its values changed, left out, or added."""
    changed = dict(fields)
    for _ in range(rng.randint(1, 2)):
        name = rng.choice([*fields, "surplus"])
        if rng.random() < 0.2:
            changed.pop(name, None)
        else:
            changed[name] = rng.choice([*ODD_NUMBERS, *ODD_VALUES])
    return changed


def varint(number: int) -> bytes:
    """As protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def protobuf(fields: dict[int, bytes | int]) -> bytes:
    """A message of numbers and bytes, by field number."""
    parts = []
    for number, value in fields.items():
        if isinstance(value, bytes):
            parts.append(varint(number << 3 | 2) + varint(len(value)) + value)
        else:
            parts.append(varint(number << 3) + varint(value))
    return b"".join(parts)
