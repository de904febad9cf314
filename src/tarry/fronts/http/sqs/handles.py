"""Receipt handles: the lease of a message in a consumer's hands, and its place.

A handle is no proof of anything: what a caller may settle is decided by its rights on the queue. It has a checksum over
the queue's name, so that one of another queue, or a mutilated one, is told from one that is only old.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import NamedTuple

from tarry.fronts.http.sqs.errors import SqsError, missing

_FIELDS = struct.Struct(">qqqq")
_CHECKED = struct.Struct(">qqqqI")


class Held(NamedTuple):
    """A message in a consumer's hands."""

    lease: int
    offset: int
    seq: int
    due_ms: int


def handle_of(queue: str, held: Held) -> str:
    """Return the receipt handle of a message that is handed out."""
    packed = _FIELDS.pack(*held)
    return base64.b64encode(_CHECKED.pack(*held, zlib.crc32(packed, zlib.crc32(queue.encode())))).decode()


def held_by(queue: str, handle: object) -> Held:
    """Return the message that a receipt handle of a queue names.

    Raises:
        SqsError: it is none.
    """
    if not isinstance(handle, str) or not handle:
        raise missing("ReceiptHandle")
    try:
        *fields, check = _CHECKED.unpack(base64.b64decode(handle, validate=True))
    except (ValueError, binascii.Error, struct.error):
        raise _unknown() from None
    held = Held(*fields)
    if zlib.crc32(_FIELDS.pack(*held), zlib.crc32(queue.encode())) != check:
        raise _unknown()
    return held


def _unknown() -> SqsError:
    return SqsError("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
