"""The consumers of a worker's link: what the worker passes on to clients, and what it could not.

Messages that were handed out and not taken by the gateway when the connection ends go back at once: its clients never
saw them. Messages that were taken stay leased until their leases end: clients may be working on them, and settle them
through another worker.
"""

from __future__ import annotations

import asyncio
import logging

import pyarrow as pa

from tarry.api.accounts import QuotaAccount, QuotaAccounts
from tarry.api.consuming import ConsumerGroup, Subscription
from tarry.base.errors import TarryError
from tarry.base.types import Int64s
from tarry.fronts.kit.receiving import FILTERING_S, leases_of, poll_now, poll_once
from tarry.fronts.link.groups import GroupTable
from tarry.fronts.link.link_session import Handlers
from tarry.fronts.link.outgoing import Outgoing
from tarry.fronts.link.receiving import LinkConsumers
from tarry.link.frames import FrameKind, Poll

log = logging.getLogger(__name__)


class WorkerConsumers:
    """The consumers of a worker's link. On the loop's thread.

    Methods with a payload handle the frame that bears their name.
    """

    def __init__(self, groups: GroupTable, out: Outgoing, accounts: QuotaAccounts) -> None:
        self._groups, self._accounts = groups, accounts
        self._consumers = LinkConsumers(groups, out, self._on_handed_out, account_of=self._account_of)
        self._untaken: dict[int, tuple[ConsumerGroup, Int64s, Int64s]] = {}
        """Batches that were handed out and are not confirmed yet, by number."""
        self._filtering: set[asyncio.Task[None]] = set()
        """Polls that wait for a filter."""
        self.handlers: Handlers = {
            FrameKind.POLL: self.poll,
            FrameKind.POLL_NOW: self.poll_now,
            FrameKind.WITHDRAW: self._consumers.withdraw,
            FrameKind.TAKEN: self.taken,
            FrameKind.UNTAKEN: self.untaken,
            FrameKind.RENEW: self._consumers.renew,
            FrameKind.CLOSE: self._consumers.close,
            FrameKind.DROP: self._consumers.drop,
        }

    def poll(self, number: int, payload: memoryview) -> None:
        self._consumers.poll(number, Poll.decode(payload))

    def poll_now(self, number: int, payload: memoryview) -> None:
        poll = Poll.decode(payload)
        try:
            served = self._groups.find(poll.group)
            account = self._account_of(poll)
            subscription = served.group.subscribe(prefetch=poll.prefetch, lease_ms=poll.lease_ms, account=account)
            batch, is_final = poll_once(subscription, poll.rows_max)
        except TarryError as error:
            self._consumers.on_nothing(number, error)
            return
        if is_final:
            self._answer_now(number, served.group, batch)
            return
        task = asyncio.get_running_loop().create_task(self._poll_filtered(number, subscription, poll.rows_max))
        self._filtering.add(task)
        task.add_done_callback(self._filtering.discard)

    def _account_of(self, poll: Poll) -> QuotaAccount | None:
        return self._accounts.of(poll.identity) if poll.identity else None

    def taken(self, number: int, payload: memoryview) -> None:
        self._untaken.pop(number, None)

    def untaken(self, number: int, payload: memoryview) -> None:
        self._give_back(number)

    def stop(self) -> None:
        """Stop the polls, and give back batches that were not taken: the connection has ended."""
        self._consumers.stop_waiting()
        for task in list(self._filtering):
            task.cancel()
        for number in list(self._untaken):
            self._give_back(number)

    async def _poll_filtered(self, number: int, subscription: Subscription, rows_max: int) -> None:
        """Answer a poll whose messages have to be filtered or skipped first."""
        try:
            batch = await poll_now(asyncio.get_running_loop(), subscription, rows_max, FILTERING_S)
        except TarryError as error:
            self._consumers.on_nothing(number, error)
        else:
            self._answer_now(number, subscription.group, batch)

    def _answer_now(self, number: int, group: ConsumerGroup, batch: pa.RecordBatch | None) -> None:
        if batch is None or not self._consumers.hand_out(number, group, batch):
            self._consumers.on_nothing(number, None)

    def _on_handed_out(self, number: int, group: ConsumerGroup, batch: pa.RecordBatch) -> None:
        self._untaken[number] = (group, *leases_of(batch))

    def _give_back(self, number: int) -> None:
        """Give back a batch that nobody took, so that others get its messages at once."""
        untaken = self._untaken.pop(number, None)
        if untaken is not None:
            group, leases, offsets = untaken
            try:
                group.nack(leases, offsets, 0)
            except TarryError as error:
                log.warning("%d messages that nobody took come again with their leases: %s", len(leases), error)
