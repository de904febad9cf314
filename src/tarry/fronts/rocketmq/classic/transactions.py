"""END_TRANSACTION, by which a producer decides a transaction; and asking about undecided ones."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tarry.api.local import AnyBroker
from tarry.fronts.rocketmq.classic.clients import ClientRegistry
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode, ToClient
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.frames import RemotingCommand, oneway
from tarry.fronts.rocketmq.classic.message_bytes import (
    address_bytes,
    encode_message,
    offset_id,
    physical_offset,
    stored_messages,
)
from tarry.fronts.rocketmq.common.half_messages import HalfMessages
from tarry.fronts.rocketmq.common.properties import DELIVER_MS, MESSAGE_ID, PRODUCER_GROUP, REAL_TOPIC, TRANSACTION_ID
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.common.transaction_checks import TransactionChecks

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
CHECKS_GROUP = "classic-checks"
"""The group of classic producers' half messages, on the topic of half messages."""
_INTERNAL = frozenset({REAL_TOPIC, DELIVER_MS})


class Transactions:
    """Answers END_TRANSACTION. On the event loop's thread."""

    def __init__(self, half_messages: HalfMessages, run_in_thread: RunInThread) -> None:
        self._half_messages = half_messages
        self._run_in_thread = run_in_thread

    async def end(self, request: OpenRequest) -> Reply:
        """Commit or roll back, durably when it is answered.

        After any other decision the producer is asked again.

        Raises:
            Refusal: ILLEGAL_OPERATION: the transaction was decided before.
        """
        fields = request.fields
        id, message_id = fields.text("transactionId"), fields.text("msgId", " ").strip()
        word = fields.whole("commitOrRollback")
        if word not in (COMMIT, ROLLBACK, UNKNOWN):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"commitOrRollback is {word}; allowed: {COMMIT} (commit), {ROLLBACK} (roll back), {UNKNOWN} (unknown)",
            )
        if word != UNKNOWN:
            decide = self._half_messages.commit if word == COMMIT else self._half_messages.rollback
            await self._run_in_thread(lambda: decide(id, message_id, request.principal))
        return Reply()


def check_transactions(
    broker: AnyBroker, loop: asyncio.AbstractEventLoop, clients: ClientRegistry
) -> TransactionChecks:
    """Ask a producer of the group that sent a half message, from now until it is closed."""

    def ask(half: dict[str, Any], row: pa.RecordBatch) -> bool:
        properties = half["properties"]
        connection = clients.producer(properties[PRODUCER_GROUP], properties[REAL_TOPIC])
        if connection is not None:
            connection.send(_question(half, row, connection.local))
        return connection is not None

    return TransactionChecks(broker, loop, CHECKS_GROUP, f"sql:{PRODUCER_GROUP} IS NOT NULL", ask)


def _question(half: dict[str, Any], row: pa.RecordBatch, local: str) -> RemotingCommand:
    """Return the request that asks about a half message. ``row``: the half message as a batch of one."""
    topic, id = half["properties"][REAL_TOPIC], half["key"]
    [message] = stored_messages(row, topic, [0])
    visible = {name: value for name, value in message.properties.items() if name not in _INTERNAL}
    # rocketmq-client-go 2.1.2 loses the header's field, and answers with the property.
    message = replace(message, properties={**visible, TRANSACTION_ID: id})
    host = address_bytes(local)
    physical = physical_offset(topic, message.queue_offset)
    fields = {
        "topic": topic, "tranStateTableOffset": str(message.queue_offset), "commitLogOffset": str(physical),
        "msgId": visible[MESSAGE_ID], "transactionId": id, "offsetMsgId": offset_id(host, physical),
    }  # fmt: skip
    return oneway(ToClient.CHECK_TRANSACTION_STATE, fields, encode_message(message, host))
