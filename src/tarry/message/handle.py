"""Handles of scheduled messages, by which they are cancelled or rescheduled without an index.

It carries where the message is (``seq``, ``due_ms``) and which accepted batch it came with, and a token that only the
broker could make:

``version u8 = 1 · seq i64 · due_ms i64 · row u32 · rows u32 · token 8 B · crc32 u32``    little-endian, base64url
without padding, 50 characters. ``row`` is the message's place in its batch, so ``first_seq = seq - row``.

One token serves a whole batch (a digest per message would cost more than accepting it); it covers ``first_seq`` and
``rows``, and thereby each ``seq`` of the batch. Where a front has gathered messages of several callers, each gets a
handle that is signed as a batch of its own: one's handle must not be good for a neighbour's message. ``due_ms`` is not
covered: it is a hint where to look, and a forged one finds nothing. The crc tells a handle that was cut or mistyped
from one that was forged.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import struct
import zlib
from dataclasses import dataclass
from hashlib import blake2b

from tarry.base.base64url import base64url
from tarry.base.errors import InvalidArgumentError

VERSION = 1
TOKEN_BYTES = 8

_BODY = struct.Struct("<BqqII8s")
_CRC = struct.Struct("<I")
_BATCH = struct.Struct("<qq")
_ALLOWED = "a handle as schedule() returned it, 50 characters of A-Z a-z 0-9 - _"


@dataclass(frozen=True, slots=True)
class Handle:
    """Content of a handle. Only :func:`verify` tells whether a broker made it."""

    seq: int
    due_ms: int
    first_seq: int
    rows: int
    token: bytes


def sign(secret: bytes, first_seq: int, rows: int) -> bytes:
    """Sign the batch of ``rows`` messages from ``first_seq`` on; ``secret``: the broker's, 1 to 64 bytes."""
    return blake2b(_BATCH.pack(first_seq, rows), digest_size=TOKEN_BYTES, key=secret, person=b"tarry.handle").digest()


def encode(seq: int, due_ms: int, first_seq: int, rows: int, token: bytes) -> str:
    """Return the handle of message ``seq``, one of the ``rows`` messages from ``first_seq`` on."""
    body = _BODY.pack(VERSION, seq, due_ms, seq - first_seq, rows, token)
    return base64url(body + _CRC.pack(zlib.crc32(body))).rstrip("=")


def decode(text: str) -> Handle:
    """Read a handle.

    Raises:
        InvalidArgumentError: it is damaged, cut, of another version, or no handle at all.
    """
    raw = _bytes(text)
    body, (crc,) = raw[: _BODY.size], _CRC.unpack(raw[_BODY.size :])
    if zlib.crc32(body) != crc:
        raise InvalidArgumentError(f"handle {text!r} is damaged: its checksum does not fit; allowed: {_ALLOWED}")
    version, seq, due_ms, row, rows, token = _BODY.unpack(body)
    if version != VERSION:
        raise InvalidArgumentError(f"handle {text!r} has version {version}; allowed: {VERSION}")
    if row >= rows or seq - row < -(1 << 63):
        raise InvalidArgumentError(f"handle {text!r} names row {row} of {rows} and seq {seq}; allowed: {_ALLOWED}")
    return Handle(seq, due_ms, seq - row, rows, token)


def verify(handle: Handle, secret: bytes) -> bool:
    """Return whether the broker with this ``secret`` signed the batch that ``handle`` names."""
    return hmac.compare_digest(sign(secret, handle.first_seq, handle.rows), handle.token)


def _bytes(text: str) -> bytes:
    if not isinstance(text, str):
        raise InvalidArgumentError(f"handle of type {type(text).__name__}: {text!r}; allowed: {_ALLOWED}")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgumentError(f"not a handle: {text!r}; allowed: {_ALLOWED}") from error
    # The last character has spare bits: without the comparison, several texts would be the same handle.
    whole = _BODY.size + _CRC.size
    if len(raw) != whole or base64.urlsafe_b64encode(raw).rstrip(b"=") != text.encode():
        raise InvalidArgumentError(f"not a handle: {text!r}; allowed: {_ALLOWED}")
    return raw
