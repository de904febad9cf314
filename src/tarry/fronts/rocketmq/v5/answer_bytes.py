"""The two most frequent answers as bytes: an accepted send, and an acknowledgement, of one message.

The protobuf library takes several times as long for them; the tests check that both write the same bytes.

Source: ``SendMessageResponse``, ``SendResultEntry``, ``AckMessageResponse`` and ``AckMessageResultEntry`` of
apache/rocketmq-apis' ``service.proto``; protobuf's encoding of wire types 0 (varint) and 2 (length-delimited).
"""

from __future__ import annotations

from tarry.base.protobuf import varint
from tarry.fronts.rocketmq.common.stubs import service
from tarry.fronts.rocketmq.v5.statuses import OK

_TOP = service.SendMessageResponse(status=OK).SerializeToString()
"""Field 1, the status: the same bytes in three of the four messages."""
_STATUS = _TOP[1:]
"""The status with its length, without its field's number."""


def text(field: bytes, value: str) -> bytes:
    """Encode a text field; ``field`` is its number and wire type."""
    data = value.encode()
    return b"%b%b%b" % (field, varint(len(data)), data)


def send_answer(message_id: str, offset: int, recall_handle: str = "", transaction_id: str = "") -> bytes:
    """Encode a ``SendMessageResponse`` for one message with status OK."""
    id = message_id.encode()
    entry = b"%b\x12%b%b" % (_TOP, varint(len(id)), id)
    if transaction_id:
        entry += text(b"\x1a", transaction_id)
    if offset:
        entry += b"\x20" + varint(offset)
    if recall_handle:
        handle = recall_handle.encode()
        entry = b"%b\x2a%b%b" % (entry, varint(len(handle)), handle)
    return b"%b\x12%b%b" % (_TOP, varint(len(entry)), entry)


def ack_answer(message_id: str, receipt_handle: str) -> bytes:
    """Encode an ``AckMessageResponse`` for one message with status OK."""
    entry = b"%b%b\x1a%b" % (text(b"\x0a", message_id), text(b"\x12", receipt_handle), _STATUS)
    return b"%b\x12%b%b" % (_TOP, varint(len(entry)), entry)
