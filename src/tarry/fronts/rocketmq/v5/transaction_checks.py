"""Asking producers about transactions that stay undecided.

An occurrence of a half message (:mod:`tarry.fronts.rocketmq.common.half_messages`) that falls due is such a question.
It goes to one of the producers that publish to the message's topic, whichever is connected, and is repeated until
somebody answers with EndTransaction, or until it was asked often enough; then the half message is kept as a dead letter
of ``tarry.halves``, where RocketMQ (``TransactionalMessageServiceImpl.check``) throws it away.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.api.local import LocalBroker
from tarry.base.errors import TarryError
from tarry.fronts.rocketmq.common.names import HALF_MESSAGES, SEPARATOR
from tarry.fronts.rocketmq.common.properties import MESSAGE_ID, REAL_TOPIC, SHARDING_KEY, user_properties
from tarry.fronts.rocketmq.common.receive_queue import ReceiveQueue, leases_of
from tarry.fronts.rocketmq.common.stubs import definition, service
from tarry.fronts.rocketmq.v5.clients import LEASE_MS, ClientRegistry
from tarry.fronts.rocketmq.v5.messages import messages_of
from tarry.repeat import read_state

log = logging.getLogger(__name__)

GROUP = "checks"
ROWS_MAX = 100
RETRY_S = 1.0
"""How long to wait when the broker cannot be asked."""


class TransactionChecks:
    """On the loop's thread, from its construction until :meth:`close`. ``host``: what the broker calls itself."""

    def __init__(
        self, broker: LocalBroker, loop: asyncio.AbstractEventLoop, clients: ClientRegistry, host: str
    ) -> None:
        self._clients = clients
        self._host = host
        self._queue = ReceiveQueue(loop, broker.group(HALF_MESSAGES, GROUP))
        self._subscription = self._queue.group.subscribe(prefetch=ROWS_MAX, lease_ms=LEASE_MS)
        self._task = loop.create_task(self._run())

    def close(self) -> None:
        """Nobody is asked any more."""
        self._queue.close()
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                batch = await self._queue.receive(self._subscription, ROWS_MAX)
                if batch is None:
                    return
                self._ask(batch)
            except TarryError as error:
                log.warning("transactions cannot be asked about now: %s", error)
                await asyncio.sleep(RETRY_S)

    def _ask(self, batch: pa.RecordBatch) -> None:
        last = np.array([_is_last(text) for text in batch.column("repeat").to_pylist()], np.bool_)
        leases, offsets = leases_of(batch)
        for half, message in zip(batch.to_pylist(), messages_of(batch, definition.Resource(), self._host), strict=True):
            self._ask_one(half, message)
        # A crash before this is durable asks once more.
        group = self._queue.group
        if (~last).any():
            group.ack(leases[~last], offsets[~last])
        if last.any():
            log.warning(
                "%d transactions were never decided; their messages are dead letters of %s", last.sum(), HALF_MESSAGES
            )
            group.reject(leases[last], offsets[last])

    def _ask_one(self, half: dict[str, Any], message: Any) -> None:
        """``half``: the row; ``message``: the same as a ``Message``."""
        properties = dict(half["properties"] or ())
        topic = properties.get(REAL_TOPIC, "")
        stream = self._clients.producer_stream(topic)
        if stream is None:
            log.info("no producer of topic %r is connected to be asked about transaction %s", topic, half["key"])
            return
        _restore(message, topic, properties)
        command = service.TelemetryCommand()
        command.recover_orphaned_transaction_command.message.CopyFrom(message)
        command.recover_orphaned_transaction_command.transaction_id = half["key"]
        stream.put_nowait(command)


def _restore(message: Any, topic: str, properties: dict[str, str]) -> None:
    """Make a half message look as its producer sent it."""
    message.topic.resource_namespace, _, message.topic.name = topic.rpartition(SEPARATOR)
    system = message.system_properties
    system.message_id = properties.get(MESSAGE_ID, "")
    system.message_type = definition.MessageType.TRANSACTION
    for field in ("receipt_handle", "delivery_timestamp", "delivery_attempt"):
        system.ClearField(field)
    if SHARDING_KEY in properties:
        system.message_group = properties[SHARDING_KEY]
    message.user_properties.clear()
    message.user_properties.update(user_properties(properties))


def _is_last(text: str | None) -> bool:
    """Whether no other occurrence comes after the one whose column ``repeat`` this is."""
    if text is None:
        return True
    state = read_state(text)
    return state.repeat.times is not None and state.n >= state.repeat.times
