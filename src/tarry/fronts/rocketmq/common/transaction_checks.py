"""Asking producers about transactions that stay undecided.

An occurrence of a half message (:mod:`tarry.fronts.rocketmq.common.half_messages`) that falls due is such a question.
It is repeated until somebody answers, or until it was asked often enough; then the half message is kept as a dead
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

from tarry.api.local import LocalBroker
from tarry.api.operations import SetGroup
from tarry.base.errors import TarryError
from tarry.fronts.kit.receiving import ReceiveQueue, leases_of
from tarry.fronts.rocketmq.common.names import HALF_MESSAGES
from tarry.fronts.rocketmq.common.properties import REAL_TOPIC
from tarry.repeat import read_state

log = logging.getLogger(__name__)

ROWS_MAX = 100
LEASE_MS = 60_000
RETRY_S, RETRY_S_MAX = 1.0, 60.0
"""How long to wait when it does not go on: doubled while that is so."""

Ask = Callable[[dict[str, Any], pa.RecordBatch], bool]
"""Ask a producer about a half message: its row, and the same as a batch of one; whether there is one to be asked."""


class TransactionChecks:
    """On the loop's thread, from its construction until :meth:`close`. ``group``, ``filter``: of the topic of half
    messages.
    """

    def __init__(self, broker: LocalBroker, loop: asyncio.AbstractEventLoop, group: str, filter: str, ask: Ask) -> None:
        self._ask = ask
        self._queue = ReceiveQueue(loop, broker.group(HALF_MESSAGES, group))
        if self._queue.group.settings.filter != filter:
            broker.call(SetGroup.of(HALF_MESSAGES, group, filter=filter))
        self._subscription = self._queue.group.subscribe(prefetch=ROWS_MAX, lease_ms=LEASE_MS)
        self._task = loop.create_task(self._run())

    def close(self) -> None:
        """Nobody is asked any more."""
        self._queue.close()
        self._task.cancel()

    async def _run(self) -> None:
        pause_s = RETRY_S
        while True:
            try:
                batch = await self._queue.receive(self._subscription, ROWS_MAX)
                if batch is None:
                    return
                self._ask_about(batch)
                pause_s = RETRY_S
            except TarryError as error:
                log.warning("transactions cannot be asked about now, again in %.0f s: %s", pause_s, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
            except Exception:
                # Nobody waits for this task: without a word, no transaction would be asked about any more.
                log.exception("asking about transactions failed; it goes on in %.0f s", pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_S_MAX)

    def _ask_about(self, batch: pa.RecordBatch) -> None:
        dead = np.zeros(batch.num_rows, np.bool_)
        leases, offsets = leases_of(batch)
        for row, half in enumerate(map(half_of, batch.to_pylist())):
            dead[row] = self._is_over(half, batch.slice(row, 1))
        # A crash before this is durable asks once more.
        group = self._queue.group
        if (~dead).any():
            group.ack(leases[~dead], offsets[~dead])
        if dead.any():
            group.reject(leases[dead], offsets[dead])

    def _is_over(self, half: dict[str, Any], row: pa.RecordBatch) -> bool:
        """Ask about one; whether there is no use in asking again: its message becomes a dead letter."""
        topic, id = half["properties"].get(REAL_TOPIC, ""), half["key"]
        try:
            if not self._ask(half, row):
                log.info("no producer of topic %r is connected to be asked about transaction %s", topic, id)
            is_last = _is_last(half["repeat"])
        except Exception:
            # What is wrong with one row must not keep the others from being asked about.
            log.exception("the half message of transaction %s is broken, and a dead letter of %s", id, HALF_MESSAGES)
            return True
        if is_last:
            log.warning("transaction %s was never decided; its message is a dead letter of %s", id, HALF_MESSAGES)
        return is_last


def half_of(row: dict[str, Any]) -> dict[str, Any]:
    """A half message, from its row."""
    return {**row, "properties": dict(row["properties"] or ())}


def _is_last(text: str | None) -> bool:
    """Whether no other occurrence comes after the one whose column ``repeat`` this is."""
    if text is None:
        return True
    state = read_state(text)
    return state.repeat.times is not None and state.n >= state.repeat.times
