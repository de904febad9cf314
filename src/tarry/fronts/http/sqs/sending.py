"""SendMessage and SendMessageBatch: what SQS's messages are as rows for the broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Sequence
from hashlib import md5, sha256
from typing import Any, NamedTuple

from tarry.base.clock import Clock
from tarry.base.errors import TarryError
from tarry.fronts.http.read_your_writes import Landing
from tarry.fronts.http.sqs import message_attributes as kept
from tarry.fronts.http.sqs.errors import SqsError, error_of, invalid, missing
from tarry.fronts.http.sqs.message_attributes import (
    Attribute,
    as_properties,
    attributes_of,
    check_text,
    digest_of,
    is_allowed,
)
from tarry.fronts.http.sqs.names import message_id
from tarry.fronts.http.sqs.queue_attributes import MESSAGE_BYTES_MAX, Queue
from tarry.fronts.http.sqs.queue_table import QueueTable
from tarry.fronts.http.sqs.request import Parameters, SqsRequest, text_of, whole_of
from tarry.message.receipt import Receipt
from tarry.message.rows import Row, with_cells
from tarry.repeat import SPREAD_MS_MAX

BATCH_MAX = 10
DUE, KEY, SPREAD = "tarry-due", "tarry-key", "tarry-spread"
"""Attributes: a due time and a spread in milliseconds, and the key of what a message replaces."""
KEY_CHARS_MAX = 1024
_DUE_MS = re.compile("[0-9]{1,15}")
_TOKEN = re.compile(r"[!-~]{1,128}")
"""A message group id, or a deduplication id."""
_ENTRY_ID = re.compile("[-_A-Za-z0-9]{1,80}")


class IncompleteError(SqsError):
    """A message for a FIFO queue without what such a queue needs."""


class SqsDraft(NamedTuple):
    """A message that was read, and not sent yet."""

    row: Row
    body_md5: str
    attributes_md5: str | None
    system_md5: str | None
    size: int
    is_due: bool
    """True if it is in its queue as soon as it was sent."""


class Sending:
    """On the event loop's thread."""

    def __init__(self, table: QueueTable, landing: Landing, clock: Clock, delay_s_max: int, *, strict: bool) -> None:
        self._table = table
        self._landing = landing
        self._clock = clock
        self._delay_s_max = delay_s_max
        self._strict = strict

    async def send(self, request: SqsRequest) -> dict[str, Any]:
        """Send a message; when this answers, it is durable."""
        queue = self._table.asked(request)
        draft = self._draft(request, queue, request.parameters)
        return self._answer(queue, draft, await request.desk.schedule_row(draft.row))

    async def send_batch(self, request: SqsRequest) -> dict[str, Any]:
        """Send up to ten messages, each of which is accepted or refused for itself."""
        queue = self._table.asked(request)
        entries = check_entries(request.entries(), "SendMessageBatchRequestEntry")
        done: list[tuple[Parameters, SqsDraft]] = []
        failed: list[dict[str, Any]] = []
        size = 0
        for entry in entries:
            size += len(str(entry.get("MessageBody", "")).encode(errors="replace"))
            try:
                done.append((entry, self._draft(request, queue, entry)))
            except IncompleteError:
                raise  # as with AWS, for all of them
            except SqsError as error:
                failed.append(failure(entry, error))
        if max(size, sum(draft.size for _, draft in done)) > MESSAGE_BYTES_MAX:
            raise SqsError(
                "BatchRequestTooLong",
                f"Batch requests cannot be longer than {MESSAGE_BYTES_MAX} bytes. You have sent {size} bytes.",
            )
        # In one turn of the loop, so that they travel together, and keep their order.
        receipts = await results_of([request.desk.schedule_row(draft.row) for _, draft in done])
        sent = []
        for (entry, draft), receipt in zip(done, receipts, strict=True):
            if isinstance(receipt, BaseException):
                failed.append(failure(entry, receipt))
            else:
                sent.append({"Id": entry["Id"], **self._answer(queue, draft, receipt)})
        return {"Successful": sent, **({"Failed": failed} if failed else {})}

    def _answer(self, queue: Queue, draft: SqsDraft, receipt: Receipt) -> dict[str, Any]:
        if draft.is_due and receipt.outcome != "duplicate":
            self._landing.note(queue.name, receipt.seq, receipt.due_ms)
        answer = {
            "MessageId": message_id(queue.name, queue.created_ms, receipt.seq),
            "MD5OfMessageBody": draft.body_md5,
        }
        if draft.attributes_md5 is not None:
            answer["MD5OfMessageAttributes"] = draft.attributes_md5
        if draft.system_md5 is not None:
            answer["MD5OfMessageSystemAttributes"] = draft.system_md5
        if queue.is_fifo:
            answer["SequenceNumber"] = sequence_number(receipt.seq)
        return answer

    def _draft(self, request: SqsRequest, queue: Queue, given: Parameters) -> SqsDraft:
        """Read a message.

        Raises:
            SqsError: something of it is not allowed.
        """
        text = text_of(given, "MessageBody")
        if text is None:
            raise missing("MessageBody")
        check_text(text)
        body = text.encode()
        attributes = attributes_of(given.get("MessageAttributes"))
        system = attributes_of(given.get("MessageSystemAttributes"), system=True)
        size = len(body) + sum(each.size for each in attributes)
        if size > queue.bytes_max:
            raise invalid(
                f"One or more parameters are invalid. Reason: Message must be shorter than {queue.bytes_max} bytes."
            )
        properties = as_properties(attributes)
        if system:
            properties.append((kept.TRACE, str(system[0].value)))
        principal = request.desk.principal
        if not principal.is_local and is_allowed(principal.name):
            properties.append((kept.SENDER, principal.name))
        cells, message_id_ = self._order(queue, given, properties)
        due_ms, delay_ms = self._time(queue, given, attributes)
        if (key := _key(attributes)) is not None:
            cells["key"] = key
        if properties:
            cells["properties"] = properties
        spread_ms = self._spread_ms(attributes)
        until_due_ms = delay_ms or 0 if due_ms is None else max(0, due_ms - self._clock.now_ms())
        if spread_ms:
            cells["spread_ms"] = spread_ms
        cells["ttl_ms"] = until_due_ms + spread_ms + queue.retention_s * 1000
        row = with_cells((queue.name, body, due_ms, delay_ms, message_id_), cells)
        digests = (md5(body, usedforsecurity=False).hexdigest(), digest_of(attributes), digest_of(system))
        return SqsDraft(row, *digests, size, until_due_ms + spread_ms == 0)

    def _time(self, queue: Queue, given: Parameters, attributes: Sequence[Attribute]) -> tuple[int | None, int | None]:
        """Return the due time and the delay in milliseconds, one of which is None.

        Raises:
            SqsError: one is not allowed.
        """
        due = next((each.value for each in attributes if each.name == DUE), None)
        if due is not None:
            if not isinstance(due, str) or not _DUE_MS.fullmatch(due):
                raise invalid(f"Value of message attribute {DUE} is invalid; allowed: milliseconds since 1970, UTC.")
            if self._strict:
                raise invalid(f"Message attribute {DUE} is not allowed: the broker's setting http_sqs_strict is on.")
            if whole_of(given, "DelaySeconds", 0, 0, self._delay_s_max):
                raise invalid(f"DelaySeconds and message attribute {DUE} are both given; allowed: one of them.")
            return int(due), None
        if queue.is_fifo and self._strict and given.get("DelaySeconds"):
            raise invalid(
                f"Value {given['DelaySeconds']!s:.20} for parameter DelaySeconds is invalid. Reason: The request "
                "include parameter that is not valid for this queue type."
            )
        return None, whole_of(given, "DelaySeconds", queue.delay_s, 0, self._delay_s_max) * 1000

    def _spread_ms(self, attributes: Sequence[Attribute]) -> int:
        """Return the span by some part of which the message is later; 0: none.

        Raises:
            SqsError: it is no such span.
        """
        text = next((each.value for each in attributes if each.name == SPREAD), None)
        if text is None:
            return 0
        if self._strict:
            raise invalid(f"Message attribute {SPREAD} is not allowed: the broker's setting http_sqs_strict is on.")
        if not isinstance(text, str) or not _DUE_MS.fullmatch(text) or int(text) > SPREAD_MS_MAX:
            raise invalid(f"Value of message attribute {SPREAD} is invalid; allowed: 0 to {SPREAD_MS_MAX} ms.")
        return int(text)

    def _order(
        self, queue: Queue, given: Parameters, properties: list[tuple[str, str]]
    ) -> tuple[dict[str, Any], str | None]:
        """Return cells of the row for order, and the id by which a message that was sent twice is found.

        Raises:
            SqsError: a FIFO queue needs something that is not given, or another queue does not have it.
        """
        group, deduplication = given.get("MessageGroupId"), given.get("MessageDeduplicationId")
        for name, text in (("MessageGroupId", group), ("MessageDeduplicationId", deduplication)):
            if text is not None and not (isinstance(text, str) and _TOKEN.fullmatch(text)):
                raise invalid(
                    f"Value {text!s:.128} for parameter {name} is invalid. Reason: {name} can only include "
                    "alphanumeric and punctuation characters. 1 to 128 in length."
                )
        if not queue.is_fifo:
            if group is not None:
                properties.append((kept.GROUP_ID, group))  # of a fair queue: kept, and no order
            if deduplication is None:
                return {}, None
            properties.append((kept.DEDUPLICATION, deduplication))
            return {}, f"{queue.created_ms:x}/{deduplication}"
        if group is None:
            raise IncompleteError("MissingParameter", str(missing("MessageGroupId")))
        if deduplication is None:
            if not queue.dedupes_content:
                raise IncompleteError(
                    "InvalidParameterValue",
                    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
                    "provided explicitly",
                )
            deduplication = sha256(given["MessageBody"].encode()).hexdigest()
        properties += ((kept.GROUP_ID, group), (kept.DEDUPLICATION, deduplication))
        scope = f"{group}/" if queue.dedupes_by_group else ""
        # A queue that was deleted and made again does not know what the former one had.
        return {"order_key": group}, f"{queue.created_ms:x}/{scope}{deduplication}"


def sequence_number(seq: int) -> str:
    """Return the number of a FIFO queue's message."""
    return f"{seq & 0xFFFF_FFFF_FFFF_FFFF:020d}"


def _key(attributes: Sequence[Attribute]) -> str | None:
    key = next((each.value for each in attributes if each.name == KEY), None)
    if key is not None and (not isinstance(key, str) or len(key) > KEY_CHARS_MAX):
        raise invalid(f"Message attribute {KEY} is invalid; allowed: a String of up to {KEY_CHARS_MAX} characters.")
    return key


# -- batches -----------------------------------------------------------------------------------------------------------


def check_entries(entries: list[Parameters], element: str) -> list[Parameters]:
    """Return the entries of a batch; ``element``: what one is called.

    Raises:
        SqsError: they are none, or too many, or have ids that are not allowed.
    """
    if not entries:
        raise SqsError("EmptyBatchRequest", f"There should be at least one {element} in the request.")
    if len(entries) > BATCH_MAX:
        raise SqsError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {BATCH_MAX}. You have sent {len(entries)}.",
        )
    seen: set[str] = set()
    for entry in entries:
        id_ = entry.get("Id")
        if not isinstance(id_, str) or not _ENTRY_ID.fullmatch(id_):
            raise SqsError(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                "It can be at most 80 letters long.",
            )
        if id_ in seen:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {id_} repeated.")
        seen.add(id_)
    return entries


def failure(entry: Parameters, error: BaseException) -> dict[str, Any]:
    """Return the answer to an entry that was refused."""
    refused = error_of(error)
    return {"Id": entry["Id"], "SenderFault": refused.is_senders, "Code": refused.query_code, "Message": str(refused)}


async def results_of(calls: Sequence[Awaitable[Any]]) -> list[Any]:
    """Return the results of several calls, each of which may be the broker's refusal.

    Raises:
        BaseException: what is no refusal.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, TarryError | SqsError):
            raise result
    return results
