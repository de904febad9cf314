"""Asks v5 producers about transactions: any connected producer of the message's topic."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa

from tarry.api.local import AnyBroker
from tarry.fronts.rocketmq.common.names import SEPARATOR
from tarry.fronts.rocketmq.common.properties import (
    MESSAGE_ID,
    PRODUCER_GROUP,
    REAL_TOPIC,
    SHARDING_KEY,
    TAGS,
    deliver_ms_of,
    user_properties,
)
from tarry.fronts.rocketmq.common.stubs import definition, service
from tarry.fronts.rocketmq.common.transaction_checks import TransactionChecks, half_of
from tarry.fronts.rocketmq.v5.clients import ClientRegistry
from tarry.fronts.rocketmq.v5.message_bytes import answers_of
from tarry.fronts.rocketmq.v5.peers import Colleagues

GROUP = "checks"


def check_transactions(
    broker: AnyBroker,
    loop: asyncio.AbstractEventLoop,
    clients: ClientRegistry,
    colleagues: Colleagues,
    host: str,
) -> TransactionChecks:
    """Ask until it is closed. ``host``: the broker's name for itself."""

    def ask_here(half: dict[str, Any], row: pa.RecordBatch) -> bool:
        stream = clients.producer_stream(half["properties"].get(REAL_TOPIC, ""))
        if stream is not None:
            [answer] = answers_of(row, definition.Resource(), host)
            message = service.ReceiveMessageResponse.FromString(answer).message
            _restore(message, half["properties"])
            command = service.TelemetryCommand()
            command.recover_orphaned_transaction_command.message.CopyFrom(message)
            command.recover_orphaned_transaction_command.transaction_id = half["key"]
            stream.put_nowait(command)
        return stream is not None

    def ask(half: dict[str, Any], row: pa.RecordBatch) -> bool:
        return ask_here(half, row) or colleagues.ask(half["properties"].get(REAL_TOPIC, ""), row)

    def on_question(row: pa.RecordBatch) -> None:
        ask_here(half_of(row.to_pylist()[0]), row)

    colleagues.on_question = on_question
    # Transactions of other protocols' producers are asked about by the front that they came through.
    return TransactionChecks(broker, loop, GROUP, f"sql:{PRODUCER_GROUP} IS NULL", ask)


def _restore(message: Any, properties: dict[str, str]) -> None:
    """Make a half message look as its producer sent it."""
    message.topic.resource_namespace, _, message.topic.name = properties.get(REAL_TOPIC, "").rpartition(SEPARATOR)
    system = message.system_properties
    system.message_id = properties.get(MESSAGE_ID, "")
    system.message_type = definition.MessageType.TRANSACTION
    for field in ("receipt_handle", "delivery_timestamp", "delivery_attempt"):
        system.ClearField(field)
    if SHARDING_KEY in properties:
        system.message_group = properties[SHARDING_KEY]
    if TAGS in properties:
        system.tag = properties[TAGS]
    if (deliver_ms := deliver_ms_of(properties)) is not None:
        system.delivery_timestamp.FromMilliseconds(deliver_ms)
    message.user_properties.clear()
    message.user_properties.update(user_properties(properties))
