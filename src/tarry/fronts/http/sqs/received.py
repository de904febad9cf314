"""Messages as a receive gives them: body, attributes, MD5s and receipt handle."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import md5
from typing import Any

import pyarrow as pa

from tarry.fronts.http.sqs import message_attributes as kept
from tarry.fronts.http.sqs.handles import SqsHeld, handle_of
from tarry.fronts.http.sqs.message_attributes import Attribute, digest_of, from_properties, is_allowed, text_in, wanted
from tarry.fronts.http.sqs.names import ACCOUNT, arn_of, message_id
from tarry.fronts.http.sqs.queue_attributes import Queue
from tarry.fronts.http.sqs.scheduled import TEMPLATE, filled
from tarry.fronts.http.sqs.sending import sequence_number
from tarry.message.options import ORDER_KEY

SYSTEM = (
    *("SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp", "SequenceNumber"),
    *("MessageDeduplicationId", "MessageGroupId", "AWSTraceHeader", "DeadLetterQueueSourceArn"),
)
"""System attributes that a receive may ask for."""
MS_DIGITS = 15
"""More digits than those of any time in milliseconds."""
ENCODING = "tarry-encoding"
"""Message attribute of a body that is no text that SQS could have, and is given as base64."""


@dataclass(frozen=True, slots=True)
class SqsDelivery:
    """A message that was handed out; a row of :data:`tarry.api.row_schemas.DELIVERY`."""

    held: SqsHeld
    body: bytes
    properties: Mapping[str, str]
    born_ms: int
    attempt: int
    message_id: str
    """Its id, which it keeps when it goes to a dead-letter queue."""

    @property
    def sent_ms(self) -> int:
        """The moment when it was sent first: a message that is moved between queues keeps it."""
        text = self.properties.get(kept.SENT, "")
        return int(text) if text.isdecimal() and text.isascii() and len(text) < MS_DIGITS else self.born_ms

    @property
    def group_id(self) -> str | None:
        """The message group; of a message that came by another protocol, its order key."""
        return text_in(self.properties, kept.GROUP_ID) or text_in(self.properties, ORDER_KEY)


def id_of(queue: Queue, properties: Mapping[str, str], seq: int) -> str:
    """Return the message id of a message: one that it brings from another queue, or one of its own."""
    return text_in(properties, kept.ID) or message_id(queue.name, queue.created_ms, seq)


def deliveries_of(queue: Queue, batch: pa.RecordBatch) -> list[SqsDelivery]:
    """Return the rows of a batch that was handed out."""

    def delivery(held: SqsHeld, body: bytes, pairs: Any, born_ms: int, attempt: int, repeat: str | None) -> SqsDelivery:
        properties = dict(pairs or ())
        id_ = id_of(queue, properties, held.seq)
        if TEMPLATE in properties:
            body = filled(body, properties, repeat, held.due_ms, id_)
        return SqsDelivery(held, body, properties, born_ms, attempt, id_)

    names = ("lease", "offset", "seq", "due_ms", "body", "properties", "born_ms", "attempt", "repeat")
    columns = [batch.column(name).to_pylist() for name in names]
    return [delivery(SqsHeld(*row[:4]), *row[4:]) for row in zip(*columns, strict=True)]


def message_of(
    queue: Queue, delivery: SqsDelivery, region: str, first_ms: int, system: Collection[str], attributes: list[str]
) -> dict[str, Any]:
    """Return a message as in an answer.

    ``first_ms``: when it was handed out first. ``system``, ``attributes``: names of those that were asked for.
    """
    found = from_properties(delivery.properties)
    try:
        body = delivery.body.decode()
    except UnicodeDecodeError:
        body = ""
    if not is_allowed(body) or len(body) == 0 < len(delivery.body):
        body = base64.b64encode(delivery.body).decode()
        found.append(Attribute(ENCODING, "String", "base64"))
        attributes = [*attributes, ENCODING]
    message: dict[str, Any] = {
        "MessageId": delivery.message_id,
        "ReceiptHandle": handle_of(queue.name, delivery.held),
        "MD5OfBody": md5(body.encode(), usedforsecurity=False).hexdigest(),
        "Body": body,
    }
    if system:
        given = _system(queue, delivery, region, first_ms)
        shown = given if "All" in system else {name: value for name, value in given.items() if name in system}
        if shown:
            message["Attributes"] = shown
    if shown_attributes := wanted(found, attributes):
        message["MD5OfMessageAttributes"] = digest_of(shown_attributes)
        message["MessageAttributes"] = {each.name: each.form() for each in shown_attributes}
    return message


def _system(queue: Queue, delivery: SqsDelivery, region: str, first_ms: int) -> dict[str, str]:
    properties = delivery.properties
    source = text_in(properties, kept.SOURCE)
    given = {
        "SenderId": text_in(properties, kept.SENDER) or ACCOUNT,
        "SentTimestamp": str(delivery.sent_ms),
        "ApproximateReceiveCount": str(delivery.attempt),
        "ApproximateFirstReceiveTimestamp": str(first_ms),
        "SequenceNumber": sequence_number(delivery.held.seq) if queue.is_fifo else None,
        "MessageDeduplicationId": text_in(properties, kept.DEDUPLICATION),
        "MessageGroupId": delivery.group_id,
        "AWSTraceHeader": text_in(properties, kept.TRACE),
        "DeadLetterQueueSourceArn": None if source is None else arn_of(source, region),
    }
    return {name: value for name, value in given.items() if value is not None}
