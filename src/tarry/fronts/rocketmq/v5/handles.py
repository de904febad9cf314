"""Receipt handles (of deliveries) and recall handles (of delayed messages), which clients give back.

A receipt handle is base64url of ``kind u8 · lease i64 · offset i64 · topic · crc32 u32``, little-endian. The kind is 1
for a simple consumer's and 2 for a push consumer's, so that each process of the front can tell them apart. The topic is
empty if the request that uses the handle names it. A receipt handle needs no signature: one that names no current lease
settles nothing.

A recall handle is ``HANDLE.CRC.ID``: the handle that any Tarry client would get (signed, :mod:`tarry.message.handle`),
the CRC-32 of the topic's name in hex, so that the handle of one topic is refused in another, and the message id in
base64url, which the answer to a recall has to give. ``HANDLE`` alone is accepted, too.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from functools import lru_cache
from typing import NamedTuple

from tarry.base.base64url import base64url
from tarry.fronts.rocketmq.common.refusal import Code, Refusal

_RECEIPT = struct.Struct("<Bqq")
_CRC = struct.Struct("<I")
_SIMPLE, _PUSHED = 1, 2
_ALLOWED = "one that came with a message"


@lru_cache(maxsize=4096)
def _topic_crc(topic: str) -> str:
    return f"{zlib.crc32(topic.encode()):08x}"


class ReceiptHandle(NamedTuple):
    """A delivery: the lease, and the message's offset in its topic."""

    lease: int
    offset: int
    topic: str = ""
    """The message's real topic, if the topic that the client knows stands for several."""
    pushed: bool = False
    """True if it was given to a push consumer."""


def receipt_handle(lease: int, offset: int, topic: str = "", *, pushed: bool = False) -> str:
    """Return the receipt handle of a delivery."""
    body = _RECEIPT.pack(_PUSHED if pushed else _SIMPLE, lease, offset) + topic.encode()
    return base64url(body + _CRC.pack(zlib.crc32(body)))


def read_receipt(text: str) -> ReceiptHandle:
    """Read a receipt handle.

    Raises:
        Refusal: INVALID_RECEIPT_HANDLE: it is no receipt handle.
    """
    try:
        raw = base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    body = raw[: -_CRC.size]
    if len(body) < _RECEIPT.size or _CRC.pack(zlib.crc32(body)) != raw[-_CRC.size :]:
        raise Refusal(
            Code.INVALID_RECEIPT_HANDLE, f"receipt handle {text!r:.100} is none or damaged; allowed: {_ALLOWED}"
        )
    kind, lease, offset = _RECEIPT.unpack(body[: _RECEIPT.size])
    if kind not in (_SIMPLE, _PUSHED):
        raise Refusal(Code.INVALID_RECEIPT_HANDLE, f"receipt handle of kind {kind}; allowed: {_SIMPLE} and {_PUSHED}")
    return ReceiptHandle(lease, offset, body[_RECEIPT.size :].decode(errors="replace"), kind == _PUSHED)


def recall_handle(handle: str, topic: str, id: str) -> str:
    """Return the recall handle of a delayed message."""
    return f"{handle}.{_topic_crc(topic)}.{base64url(id.encode()).rstrip('=')}"


def read_recall(text: str, topic: str) -> tuple[str, str]:
    """Read a recall handle; return the broker's handle, and the message id.

    Raises:
        Refusal: BAD_REQUEST: it is no recall handle, or one of another topic.
    """
    handle, _, rest = text.partition(".")
    if not rest:
        return handle, ""
    crc, _, packed = rest.partition(".")
    if crc != _topic_crc(topic):
        raise Refusal(Code.BAD_REQUEST, f"recall handle {text!r:.200} is none, or not of topic {topic!r}")
    try:
        return handle, base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)).decode()
    except (binascii.Error, ValueError) as error:
        raise Refusal(
            Code.BAD_REQUEST, f"recall handle {text!r:.200} is damaged; allowed: one that a send returned"
        ) from error
