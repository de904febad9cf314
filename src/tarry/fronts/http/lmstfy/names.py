"""Topics of queues, and job ids.

A job id says where its message is, so that no index is needed: 26 characters of Crockford's base 32, as a ULID has
them, of 48 bits of due time, 64 of seq, and 16 of a checksum that covers the topic, too. It is a hint where to look and
no proof of anything: what a token may do is decided by the namespace in the path.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from functools import lru_cache

import numpy as np

VERSION = "1"
"""Stands before the id of a job that was published with ``Enable-Job-Version``."""
GROUP = "lmstfy"
"""The consumer group of all queues."""

NAME = re.compile("[-_A-Za-z0-9]+")
"""A namespace, or a queue."""
NAME_CHARS_MAX = 255

_TOPIC_CHARS_MAX = 255
_DIGEST_CHARS = 32
_PLACE = struct.Struct(">Qq")
_CHECK_BITS = 16
_DUE_MS_MAX = (1 << 48) - 1
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's."""
_PAIRS = [one + other for one in _DIGITS for other in _DIGITS]
_DIGIT_BYTES = np.frombuffer(_DIGITS.encode(), np.uint8)
_CHARS = 26
_SHIFTS = np.arange(60, -1, -5, dtype=np.uint64)
_MANY = 16
"""From so many ids on numpy is quicker."""
_TO_PYTHONS = bytes.maketrans(_DIGITS.encode(), b"0123456789abcdefghijklmnopqrstuv")
_ID = re.compile(b"1?([0-7][0-9A-HJKMNP-TV-Z]{25})")


def topic_of(namespace: str, queue: str) -> str:
    """Return the topic of a queue: ``NAMESPACE/QUEUE``.

    If that is too long, its end is a digest of the whole.
    """
    topic = f"{namespace}/{queue}"
    if len(topic) <= _TOPIC_CHARS_MAX:
        return topic
    digest = hashlib.sha256(topic.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{topic[: _TOPIC_CHARS_MAX - 2 - _DIGEST_CHARS]}//{digest}"


def queue_of(topic: str) -> tuple[str, str] | None:
    """Return namespace and queue of a topic; None: it has no queue, or the name was too long."""
    namespace, slash, queue = topic.partition("/")
    return (namespace, queue) if slash and "/" not in queue and not topic.startswith("%") else None


def job_id(topic: str, seq: int, due_ms: int) -> str:
    """Return the id of the message that has, or had first, this place in a topic."""
    due_ms = min(max(due_ms, 0), _DUE_MS_MAX)
    number = due_ms << 80 | (seq & 0xFFFF_FFFF_FFFF_FFFF) << _CHECK_BITS | _check(topic, due_ms, seq)
    # Ten bits at a time: every job has an id made and checked, and a library's base 32 took as long as all else of it.
    pairs = _PAIRS
    return (
        pairs[number >> 120]
        + pairs[number >> 110 & 1023]
        + pairs[number >> 100 & 1023]
        + pairs[number >> 90 & 1023]
        + pairs[number >> 80 & 1023]
        + pairs[number >> 70 & 1023]
        + pairs[number >> 60 & 1023]
        + pairs[number >> 50 & 1023]
        + pairs[number >> 40 & 1023]
        + pairs[number >> 30 & 1023]
        + pairs[number >> 20 & 1023]
        + pairs[number >> 10 & 1023]
        + pairs[number & 1023]
    )


def job_ids(topic: str, places: list[tuple[int, int]]) -> list[str]:
    """:func:`job_id` of many places (seq, due time)."""
    if len(places) < _MANY:
        return [job_id(topic, seq, due_ms) for seq, due_ms in places]
    seqs, dues = np.array(places, np.int64).T
    dues = np.clip(dues, 0, _DUE_MS_MAX)
    packed, start = np.stack([dues, seqs], 1).astype(">i8").tobytes(), _check_of(topic)
    checks = [zlib.crc32(packed[at : at + _PLACE.size], start) & 0xFFFF for at in range(0, len(packed), _PLACE.size)]
    seq, due = seqs.astype(np.uint64), dues.astype(np.uint64)
    # The number's upper and lower 64 bits. Their digits, from the right: 12 of the lower, one of both, 13 of the upper.
    high, low = due << np.uint64(16) | seq >> np.uint64(48), seq << np.uint64(16) | np.array(checks, np.uint64)
    digits = np.empty((len(places), _CHARS), np.uint8)
    digits[:, 14:] = (low[:, None] >> _SHIFTS[1:]) & np.uint64(31)
    digits[:, 13] = low >> np.uint64(60) | (high & np.uint64(1)) << np.uint64(4)
    digits[:, :13] = ((high >> np.uint64(1))[:, None] >> _SHIFTS) & np.uint64(31)
    text = _DIGIT_BYTES[digits].tobytes().decode("ascii")
    return [text[at : at + _CHARS] for at in range(0, len(text), _CHARS)]


def place_of(topic: str, text: str) -> tuple[int, int] | None:
    """Return the seq and due time in a job id of a topic; None: it is no job id."""
    raw = text.encode(errors="replace")
    found = _ID.fullmatch(raw)
    if found is None:
        return None
    packed = int(found[1].translate(_TO_PYTHONS), 32)
    due_ms, seq = packed >> 80, packed >> _CHECK_BITS & 0xFFFF_FFFF_FFFF_FFFF
    seq -= (seq >> 63) << 64
    return (seq, due_ms) if _check(topic, due_ms, seq) == packed & 0xFFFF else None


def _check(topic: str, due_ms: int, seq: int) -> int:
    return zlib.crc32(_PLACE.pack(due_ms, seq), _check_of(topic)) & 0xFFFF


@lru_cache(maxsize=4096)
def _check_of(topic: str) -> int:
    return zlib.crc32(topic.encode())
