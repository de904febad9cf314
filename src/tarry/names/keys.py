"""Keys and values of the registry, as bytes whose order is the order that is needed. Format: ``docs/formats.md``."""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from tarry.base.bulk import SEQ_MIN
from tarry.base.types import Int64s

KEY, ID, SERIES, CANCELLED, UNTIL, META = b"k", b"i", b"s", b"c", b"u", b"m"
"""First byte of a key: what it is about."""

_ENTRY = struct.Struct("<qqq")
_MOMENT = struct.Struct(">Q")
_PLACE = struct.Struct(">QQ")
_SIGN = 1 << 63
PLACE_BYTES = 16


class Entry(NamedTuple):
    """Where the message of a name is; ``born_ms``: when it was accepted."""

    seq: int
    due_ms: int
    born_ms: int


def is_newer(one: Entry, other: Entry) -> bool:
    """Whether ``one`` was scheduled later. Seqs tell; but those of bulk jobs have an order of their own."""
    if (one.seq >= SEQ_MIN) == (other.seq >= SEQ_MIN):
        return one.seq > other.seq
    return one.born_ms > other.born_ms


def encode(entry: Entry) -> bytes:
    return _ENTRY.pack(*entry)


def decode(raw: bytes) -> Entry:
    return Entry(*_ENTRY.unpack(raw))


def of_key(topic: str, key: str) -> bytes:
    """A schedule key; a topic's name has no NUL."""
    return KEY + topic.encode() + b"\0" + key.encode()


@lru_cache(maxsize=4096)
def of_id(topic: str, id: str) -> bytes:
    """A message id, by its digest: ids may be long, and there is one a message. See :func:`in_slice`. Remembered, since
    it is asked for when the message is decided on, and again when it is registered.
    """
    return blake2b(topic.encode() + b"\0" + id.encode(), digest_size=16).digest()


def in_slice(digest: bytes, born_ms: int, window_ms: int) -> bytes:
    """The id as it is registered: in the slice of time, a window long, in which it was accepted. So the ids of a slice
    are forgotten together, and one is looked for in two.
    """
    return ID + _MOMENT.pack(born_ms // window_ms * window_ms + _SIGN) + digest


def slice_of(name: bytes) -> int:
    """When the slice of a name by :func:`in_slice` began."""
    return int(_MOMENT.unpack_from(name, 1)[0]) - _SIGN


def slices_before(moment_ms: int) -> tuple[bytes, bytes]:
    """The range of the ids whose slice began before that."""
    return ID, ID + _MOMENT.pack(max(moment_ms, -_SIGN) + _SIGN)


def of_series(first_seq: int) -> bytes:
    """A series, by the seq of its first occurrence."""
    return SERIES + _MOMENT.pack(first_seq)


def of_cancelled(due_ms: int, seq: int) -> bytes:
    """A cancelled message, in the order of due time and seq."""
    return CANCELLED + _PLACE.pack(due_ms + _SIGN, seq)


def places(due_ms: Int64s, seq: Int64s) -> bytes:
    """What follows the first byte of :func:`of_cancelled`, for many, one after the other."""
    pairs = np.empty((len(seq), 2), ">u8")
    pairs[:, 0] = due_ms.astype(np.uint64) ^ np.uint64(_SIGN)
    pairs[:, 1] = seq
    return pairs.tobytes()


def placed(raw: bytes) -> tuple[Int64s, Int64s]:
    """The due times and seqs that :func:`places` made bytes of."""
    pairs = np.frombuffer(raw, ">u8").reshape(-1, 2).astype(np.uint64)
    return (pairs[:, 0] ^ np.uint64(_SIGN)).astype(np.int64), pairs[:, 1].astype(np.int64)


def until(moment_ms: int, name: bytes) -> bytes:
    """When ``name`` may be forgotten; by what it is about, then by moment."""
    return UNTIL + name[:1] + _MOMENT.pack(moment_ms + _SIGN) + name


def until_end(about: bytes, moment_ms: int) -> bytes:
    """Above every :func:`until` of that kind before ``moment_ms``."""
    return UNTIL + about + _MOMENT.pack(moment_ms + _SIGN)


def name_of(until_key: bytes) -> tuple[int, bytes]:
    """The moment and the name of an :func:`until`."""
    return _MOMENT.unpack_from(until_key, 2)[0] - _SIGN, until_key[10:]
