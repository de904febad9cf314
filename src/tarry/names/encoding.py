"""Encoding of the registry's entries, in bytes that sort as needed. Format: ``docs/formats.md``.

A message can be found by a *name*: a schedule key of a topic, an id of a topic, or the first seq of a series.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from tarry.base.types import Int64s
from tarry.message.bulk import SEQ_MIN

KEY, ID, SERIES, CANCELLED, EXPIRY, META, MARK = b"k", b"i", b"s", b"c", b"u", b"m", b"w"
"""First byte of an entry: its kind."""

_ENTRY = struct.Struct("<qqq")
_MOMENT = struct.Struct(">Q")
_PLACE = struct.Struct(">QQ")
_SIGN = 1 << 63
PLACE_BYTES = 16


class NameEntry(NamedTuple):
    """The place of the message that has a name; ``born_ms`` is when it was accepted."""

    seq: int
    due_ms: int
    born_ms: int

    def is_newer_than(self, other: NameEntry) -> bool:
        """Return whether this entry was scheduled later than the other.

        Seqs decide, except between a bulk job's message and another: their seqs are not comparable, so ``born_ms``
        decides.
        """
        if (self.seq >= SEQ_MIN) == (other.seq >= SEQ_MIN):
            return self.seq > other.seq
        return self.born_ms > other.born_ms

    def to_bytes(self) -> bytes:
        """Return the value that is stored under a name."""
        return entry_bytes(*self)

    @classmethod
    def of_bytes(cls, raw: bytes) -> NameEntry:
        """Return the entry that :meth:`to_bytes` turned into these bytes."""
        return cls(*_ENTRY.unpack(raw))


entry_bytes = _ENTRY.pack
"""Equivalent of :meth:`NameEntry.to_bytes` for the fields of an entry, for thousands of entries."""


def name_of_key(topic: str, key: str) -> bytes:
    """Return the name for a schedule key. Topic names contain no NUL."""
    return KEY + topic.encode() + b"\0" + key.encode()


def name_of_series(first_seq: int) -> bytes:
    """Return the name for a series, by the seq of its first occurrence."""
    return SERIES + _MOMENT.pack(first_seq)


def digest_of_id(topic: str, id: str) -> bytes:
    """Return the digest of a message id, from which :func:`name_of_id` makes a name.

    A digest, since ids may be long, and there is one for each message.
    """
    return blake2b(topic.encode() + b"\0" + id.encode(), digest_size=16).digest()


def name_of_id(digest: bytes, born_ms: int, window_ms: int) -> bytes:
    """Return the name for an id, in the slice of time in which its message was accepted.

    A slice is as long as the dedupe window. So the ids of a slice are forgotten together, and an id is looked up in two
    slices.
    """
    return slice_of_ids(born_ms, window_ms) + digest


def slice_of_ids(born_ms: int, window_ms: int) -> bytes:
    """Return the common prefix of all names by :func:`name_of_id` in a slice of time."""
    return ID + _MOMENT.pack(born_ms // window_ms * window_ms + _SIGN)


def slice_start_ms(name: bytes) -> int:
    """Return when the slice of time of a name by :func:`name_of_id` began."""
    return int(_MOMENT.unpack_from(name, 1)[0]) - _SIGN


def ids_before(moment_ms: int) -> tuple[bytes, bytes]:
    """Return the range of the ids whose slice of time began before ``moment_ms``."""
    return ID, ID + _MOMENT.pack(max(moment_ms, -_SIGN) + _SIGN)


def cancellation(due_ms: int, seq: int) -> bytes:
    """Return the entry for a cancelled message; such entries sort by due time and seq."""
    return CANCELLED + _PLACE.pack(due_ms + _SIGN, seq)


def encode_places(due_ms: Int64s, seq: Int64s) -> bytes:
    """Return what follows the first byte of :func:`cancellation`, for many messages, one after the other."""
    pairs = np.empty((len(seq), 2), ">u8")
    pairs[:, 0] = due_ms.astype(np.uint64) ^ np.uint64(_SIGN)
    pairs[:, 1] = seq
    return pairs.tobytes()


def cancellations(due_ms: Int64s, seq: Int64s) -> list[bytes]:
    """Return the :func:`cancellation` of each message."""
    raw = encode_places(due_ms, seq)
    return [CANCELLED + raw[at : at + PLACE_BYTES] for at in range(0, len(raw), PLACE_BYTES)]


def decode_places(raw: bytes) -> tuple[Int64s, Int64s]:
    """Return the due times and seqs that :func:`encode_places` encoded."""
    pairs = np.frombuffer(raw, ">u8").reshape(-1, 2).astype(np.uint64)
    return (pairs[:, 0] ^ np.uint64(_SIGN)).astype(np.int64), pairs[:, 1].astype(np.int64)


def expiry(moment_ms: int, name: bytes) -> bytes:
    """Return the entry that says when a name may be forgotten; these sort by kind of name, then by moment."""
    return EXPIRY + name[:1] + _MOMENT.pack(moment_ms + _SIGN) + name


def expiries_end(about: bytes, moment_ms: int) -> bytes:
    """Return a key above every :func:`expiry` of that kind of name before ``moment_ms``."""
    return EXPIRY + about + _MOMENT.pack(moment_ms + _SIGN)


def decode_expiry(raw: bytes) -> tuple[int, bytes]:
    """Return the moment and the name of an :func:`expiry`."""
    return _MOMENT.unpack_from(raw, 2)[0] - _SIGN, raw[10:]
