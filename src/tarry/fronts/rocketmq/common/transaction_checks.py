"""Asking producers about transactions that stay undecided.

A producer is asked whenever an occurrence of a half message (:mod:`tarry.fronts.rocketmq.common.half_messages`) falls
due. It is repeated until a producer answers, or has been asked often enough; then the half message is kept as a dead
letter of ``tarry.halves``, where RocketMQ (``TransactionalMessageServiceImpl.check``) throws it away.

Each protocol asks about the transactions of its own producers: it has a group of the topic of half messages, whose
filter tells them apart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.api.local import AnyBroker
from tarry.api.operations import SetGroup
from tarry.base.back_off import BackOff
from tarry.base.errors import TarryError
from tarry.fronts.kit.last_look import holds_back
from tarry.fronts.kit.receiving import ReceiveQueue, leases_of
from tarry.fronts.rocketmq.common.names import HALF_MESSAGES
from tarry.fronts.rocketmq.common.properties import REAL_TOPIC
from tarry.repeat import read_state

log = logging.getLogger(__name__)

ROWS_MAX = 100
LEASE_MS = 60_000
RETRY_S, RETRY_S_MAX = 1.0, 60.0
"""Pause after an error, doubled while errors go on, and its maximum."""

Ask = Callable[[dict[str, Any], pa.RecordBatch], bool]
"""Asks a producer about a half message, and returns whether there is one to ask.

It gets the message's row, and the same as a batch of one row.
"""


class TransactionChecks:
    """Asks about undecided transactions until :meth:`close`. On the event loop's thread.

    ``group``, ``filter``: those on the topic of half messages.
    """

    def __init__(self, broker: AnyBroker, loop: asyncio.AbstractEventLoop, group: str, filter: str, ask: Ask) -> None:
        self._ask = ask
        self._queue = ReceiveQueue(loop, broker.group(HALF_MESSAGES, group))
        if self._queue.group.settings.filter != filter:
            broker.call(SetGroup.of(HALF_MESSAGES, group, filter=filter))
        self._subscription = self._queue.group.subscribe(prefetch=ROWS_MAX, lease_ms=LEASE_MS)
        self._task = loop.create_task(self._run())

    def close(self) -> None:
        """Stop asking."""
        self._queue.close()
        self._task.cancel()

    async def _run(self) -> None:
        back_off = BackOff(RETRY_S, RETRY_S_MAX)
        while True:
            try:
                batch = await self._queue.receive(self._subscription, ROWS_MAX)
                if batch is None:
                    return
                if not holds_back(self._queue.group, batch):
                    self._ask_about(batch)
                back_off.reset()
            except TarryError as error:
                pause_s = back_off.fail()
                log.warning("transactions cannot be asked about now, again in %.0f s: %s", pause_s, error)
                await asyncio.sleep(pause_s)
            except Exception:
                # Nobody awaits this task: if it ended silently, no transaction would be asked about any more.
                pause_s = back_off.fail()
                log.exception("asking about transactions failed; it goes on in %.0f s", pause_s)
                await asyncio.sleep(pause_s)

    def _ask_about(self, batch: pa.RecordBatch) -> None:
        dead = np.zeros(batch.num_rows, np.bool_)
        leases, offsets = leases_of(batch)
        for row, half in enumerate(map(half_of, batch.to_pylist())):
            dead[row] = self._is_over(half, batch.slice(row, 1))
        # A crash before this is durable only means that a producer is asked once more.
        group = self._queue.group
        if (~dead).any():
            group.ack(leases[~dead], offsets[~dead])
        if dead.any():
            group.reject(leases[dead], offsets[dead])

    def _is_over(self, half: dict[str, Any], row: pa.RecordBatch) -> bool:
        """Ask about one half message; return whether to make it a dead letter instead of asking again."""
        topic, id = half["properties"].get(REAL_TOPIC, ""), half["key"]
        try:
            if not self._ask(half, row):
                log.info("no producer of topic %r is connected to be asked about transaction %s", topic, id)
            is_last = _is_last(half["repeat"])
        except Exception:
            # A broken row must not keep the others from being asked about.
            log.exception("the half message of transaction %s is broken, and a dead letter of %s", id, HALF_MESSAGES)
            return True
        if is_last:
            log.warning("transaction %s was never decided; its message is a dead letter of %s", id, HALF_MESSAGES)
        return is_last


def half_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return a half message as a dict, with its properties as one, from its row."""
    return {**row, "properties": dict(row["properties"] or ())}


def _is_last(text: str | None) -> bool:
    """Return whether an occurrence is the last one, from its column ``repeat``."""
    if text is None:
        return True
    state = read_state(text)
    return state.repeat.times is not None and state.n >= state.repeat.times
