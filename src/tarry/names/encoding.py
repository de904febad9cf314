"""How the registry's entries look on disk: bytes whose order is the order that is needed. Format: ``docs/formats.md``.

A *name* is what a message can be found by: a schedule key of a topic, an id of a topic, or the first seq of a series.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from tarry.base.types import Int64s
from tarry.message.bulk import SEQ_MIN

KEY, ID, SERIES, CANCELLED, EXPIRY, META, MARK = b"k", b"i", b"s", b"c", b"u", b"m", b"w"
"""First byte: what an entry is about."""

_ENTRY = struct.Struct("<qqq")
_MOMENT = struct.Struct(">Q")
_PLACE = struct.Struct(">QQ")
_SIGN = 1 << 63
PLACE_BYTES = 16


class NameEntry(NamedTuple):
    """Where the message of a name is; ``born_ms``: when it was accepted."""

    seq: int
    due_ms: int
    born_ms: int

    def is_newer_than(self, other: NameEntry) -> bool:
        """Whether this one was scheduled later. Seqs tell; but those of bulk jobs have an order of their own."""
        if (self.seq >= SEQ_MIN) == (other.seq >= SEQ_MIN):
            return self.seq > other.seq
        return self.born_ms > other.born_ms

    def to_bytes(self) -> bytes:
        """The value that is stored under a name."""
        return entry_bytes(*self)

    @classmethod
    def of_bytes(cls, raw: bytes) -> NameEntry:
        """The entry of which :meth:`to_bytes` gave this."""
        return cls(*_ENTRY.unpack(raw))


entry_bytes = _ENTRY.pack
""":meth:`NameEntry.to_bytes` of an entry's fields, for those that are made by the thousand."""


def name_of_key(topic: str, key: str) -> bytes:
    """The name that is a schedule key; a topic's name has no NUL."""
    return KEY + topic.encode() + b"\0" + key.encode()


def name_of_series(first_seq: int) -> bytes:
    """The name of a series, by the seq of its first occurrence."""
    return SERIES + _MOMENT.pack(first_seq)


def digest_of_id(topic: str, id: str) -> bytes:
    """The digest of a message id, of which :func:`name_of_id` makes a name: ids may be long, and there is one a
    message.
    """
    return blake2b(topic.encode() + b"\0" + id.encode(), digest_size=16).digest()


def name_of_id(digest: bytes, born_ms: int, window_ms: int) -> bytes:
    """The name that is an id: in the slice of time, a window long, in which its message was accepted. So the ids of a
    slice are forgotten together, and one is looked for in two.
    """
    return slice_of_ids(born_ms, window_ms) + digest


def slice_of_ids(born_ms: int, window_ms: int) -> bytes:
    """What all names of :func:`name_of_id` in a slice of time begin with."""
    return ID + _MOMENT.pack(born_ms // window_ms * window_ms + _SIGN)


def slice_start_ms(name: bytes) -> int:
    """When the slice of time of a name by :func:`name_of_id` began."""
    return int(_MOMENT.unpack_from(name, 1)[0]) - _SIGN


def ids_before(moment_ms: int) -> tuple[bytes, bytes]:
    """The range of the ids of which the slice of time began before ``moment_ms``."""
    return ID, ID + _MOMENT.pack(max(moment_ms, -_SIGN) + _SIGN)


def cancellation(due_ms: int, seq: int) -> bytes:
    """The entry that says that a message is cancelled; such entries are in the order of due time and seq."""
    return CANCELLED + _PLACE.pack(due_ms + _SIGN, seq)


def encode_places(due_ms: Int64s, seq: Int64s) -> bytes:
    """What follows the first byte of :func:`cancellation`, for many, one after the other."""
    pairs = np.empty((len(seq), 2), ">u8")
    pairs[:, 0] = due_ms.astype(np.uint64) ^ np.uint64(_SIGN)
    pairs[:, 1] = seq
    return pairs.tobytes()


def cancellations(due_ms: Int64s, seq: Int64s) -> list[bytes]:
    """:func:`cancellation` of each of many messages."""
    raw = encode_places(due_ms, seq)
    return [CANCELLED + raw[at : at + PLACE_BYTES] for at in range(0, len(raw), PLACE_BYTES)]


def decode_places(raw: bytes) -> tuple[Int64s, Int64s]:
    """The due times and seqs that :func:`encode_places` made bytes of."""
    pairs = np.frombuffer(raw, ">u8").reshape(-1, 2).astype(np.uint64)
    return (pairs[:, 0] ^ np.uint64(_SIGN)).astype(np.int64), pairs[:, 1].astype(np.int64)


def expiry(moment_ms: int, name: bytes) -> bytes:
    """The entry that says when a name may be forgotten; in the order of what names are about, then of moments."""
    return EXPIRY + name[:1] + _MOMENT.pack(moment_ms + _SIGN) + name


def expiries_end(about: bytes, moment_ms: int) -> bytes:
    """Above every :func:`expiry` of that kind before ``moment_ms``."""
    return EXPIRY + about + _MOMENT.pack(moment_ms + _SIGN)


def decode_expiry(raw: bytes) -> tuple[int, bytes]:
    """The moment and the name of an :func:`expiry`."""
    return _MOMENT.unpack_from(raw, 2)[0] - _SIGN, raw[10:]
