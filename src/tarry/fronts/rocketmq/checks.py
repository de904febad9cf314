"""Asking producers about transactions that stay undecided.

An occurrence of a half (``halves``) that falls due is such a question. It goes to one of the producers that publish to
the message's topic, whichever is connected, and is repeated until somebody answers with EndTransaction, or until it was
asked often enough; then the half is kept as a dead letter of ``tarry.halves``, where the original throws it away.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.base.errors import TarryError
from tarry.fronts.rocketmq.clients import LEASE_MS, Clients
from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.lines import Line, leases_of
from tarry.fronts.rocketmq.names import HALVES, SEPARATOR
from tarry.fronts.rocketmq.properties import MESSAGE_ID, REAL_TOPIC, SHARDING_KEY, user_properties
from tarry.fronts.rocketmq.rows import messages_of
from tarry.fronts.rocketmq.stubs import definition, service
from tarry.repeat import read_state

log = logging.getLogger(__name__)

GROUP = "checks"
ROWS_MAX = 100
AGAIN_S = 1.0


class Checks:
    """On the loop's thread."""

    def __init__(self, core: Core, loop: asyncio.AbstractEventLoop, clients: Clients, host: str) -> None:
        self._core = core
        self._clients = clients
        self._host = host
        self._line = Line(loop, core.group(HALVES, GROUP))
        self._holder = self._line.group.subscribe(prefetch=ROWS_MAX, lease_ms=LEASE_MS)
        self._task = loop.create_task(self._run())

    def close(self) -> None:
        """Nobody is asked any more."""
        self._line.close()
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                batch = await self._line.receive(self._holder, ROWS_MAX)
                if batch is None:
                    return
                self._ask(batch)
            except TarryError as error:
                log.warning("transactions cannot be asked about now: %s", error)
                await asyncio.sleep(AGAIN_S)

    def _ask(self, batch: pa.RecordBatch) -> None:
        last = np.array([_is_last(text) for text in batch.column("repeat").to_pylist()], np.bool_)
        leases, offsets = leases_of(batch)
        for half, message in zip(batch.to_pylist(), messages_of(batch, definition.Resource(), self._host), strict=True):
            self._ask_one(half, message)
        # A crash before this is durable asks once more.
        group = self._line.group
        if (~last).any():
            group.ack(leases[~last], offsets[~last])
        if last.any():
            log.warning("%d transactions were never decided; their messages are dead letters of %s", last.sum(), HALVES)
            group.reject(leases[last], offsets[last])

    def _ask_one(self, half: dict[str, Any], message: Any) -> None:
        own = dict(half["properties"] or ())
        topic = own.get(REAL_TOPIC, "")
        stream = self._clients.producer_of(topic)
        if stream is None:
            log.info("no producer of topic %r is connected to be asked about transaction %s", topic, half["key"])
            return
        space, _, name = topic.rpartition(SEPARATOR)
        message.topic.resource_namespace, message.topic.name = space, name
        system = message.system_properties
        system.message_id = own.get(MESSAGE_ID, "")
        system.message_type = definition.MessageType.TRANSACTION
        for field in ("receipt_handle", "delivery_timestamp", "delivery_attempt"):
            system.ClearField(field)
        if SHARDING_KEY in own:
            system.message_group = own[SHARDING_KEY]
        message.user_properties.clear()
        message.user_properties.update(user_properties(own))
        command = service.TelemetryCommand()
        command.recover_orphaned_transaction_command.message.CopyFrom(message)
        command.recover_orphaned_transaction_command.transaction_id = half["key"]
        stream.put_nowait(command)


def _is_last(text: str | None) -> bool:
    """Whether no other occurrence comes after the one with this ``repeat``."""
    if text is None:
        return True
    state = read_state(text)
    return state.repeat.times is not None and state.n >= state.repeat.times
