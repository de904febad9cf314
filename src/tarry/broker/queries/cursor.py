"""The cursor of a listing: the place to go on from, as a text that means the same after a restart.

``version u8 = 1 · step u8 · due_ms i64 · seq i64 · crc32 u32``    little-endian, base64url without padding, 30
characters. It names a place in the order of due times and not a row, so nothing has to be kept for it, and what is
scheduled or cancelled meanwhile does not disturb it.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import NamedTuple

from tarry.base.errors import InvalidArgumentError
from tarry.base.types import Key

_BODY = struct.Struct("<BBqq")
_CRC = struct.Struct("<I")
_VERSION = 1
_ALLOWED = "a cursor as list_pending() returned it, 30 characters of A-Z a-z 0-9 - _"


class Cursor(NamedTuple):
    """Place to continue a listing from.

    ``step`` is 1 if the number that an id may stand for was looked up before, and the id itself is being searched.
    """

    step: int
    key: Key


def encode(cursor: Cursor) -> str:
    """Encode a cursor as text."""
    body = _BODY.pack(_VERSION, cursor.step, *cursor.key)
    return base64.urlsafe_b64encode(body + _CRC.pack(zlib.crc32(body))).rstrip(b"=").decode("ascii")


def decode(text: str) -> Cursor:
    """Decode the text of a cursor.

    Raises:
        InvalidArgumentError: it is damaged, cut, or no cursor at all.
    """
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise InvalidArgumentError(f"not a cursor: {text!r:.80}; allowed: {_ALLOWED}") from error
    if len(raw) != _BODY.size + _CRC.size or raw[_BODY.size :] != _CRC.pack(zlib.crc32(raw[: _BODY.size])):
        raise InvalidArgumentError(f"not a cursor, or damaged: {text!r:.80}; allowed: {_ALLOWED}")
    version, step, due_ms, seq = _BODY.unpack_from(raw)
    cursor = Cursor(step, Key(due_ms, seq))
    # The last character has spare bits, which are part of the text all the same.
    if version != _VERSION or step > 1 or encode(cursor) != text:
        raise InvalidArgumentError(f"not a cursor of version {_VERSION}: {text!r:.80}; allowed: {_ALLOWED}")
    return cursor
