"""Taking back and moving what was scheduled: methods of the client for asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from tarry.api.gathering import Cancelling
from tarry.api.jobs import Job, JobCancelled
from tarry.api.outcome import Outcome, Rescheduled
from tarry.api.receipt import Receipt
from tarry.base.delay import Delay
from tarry.client.aio_calls import AsyncCalls

if TYPE_CHECKING:
    from tarry.client.sync import Client


class AsyncChanges(AsyncCalls):
    """As :class:`tarry.client.changes.Changes`, to be awaited; for :class:`tarry.client.AsyncClient`."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._cancelling = Cancelling(self.cancel_many)

    async def cancel(self, handle: str) -> Outcome:
        """As :meth:`tarry.client.Client.cancel`. Calls of several tasks share a round trip."""
        return await self._cancelling.cancel(handle)

    async def cancel_many(self, handles: Sequence[str]) -> list[Outcome]:
        """As :meth:`tarry.client.Client.cancel_many`."""
        return await self._call(self._client.cancel_many, handles)

    async def cancel_key(self, topic: str, key: str) -> Outcome:
        """As :meth:`tarry.client.Client.cancel_key`."""
        return await self._call(self._client.cancel_key, topic, key)

    async def cancel_keys(self, topic: str, keys: Sequence[str]) -> list[Outcome]:
        """As :meth:`tarry.client.Client.cancel_keys`."""
        return await self._call(self._client.cancel_keys, topic, keys)

    async def reschedule(
        self, handle: str, *, delay: Delay | None = None, due: datetime | int | None = None
    ) -> Rescheduled:
        """As :meth:`tarry.client.Client.reschedule`."""
        return await self._call(self._client.reschedule, handle, delay=delay, due=due)

    async def reschedule_key(
        self, topic: str, key: str, *, delay: Delay | None = None, due: datetime | int | None = None
    ) -> Rescheduled:
        """As :meth:`tarry.client.Client.reschedule_key`."""
        return await self._call(self._client.reschedule_key, topic, key, delay=delay, due=due)

    async def cancel_job(self, job: str) -> JobCancelled:
        """As :meth:`tarry.client.Client.cancel_job`."""
        return await self._call(self._client.cancel_job, job)

    async def jobs(self, job: str | None = None, *, limit: int = 100) -> list[Job]:
        """As :meth:`tarry.client.Client.jobs`."""
        return await self._call(self._client.jobs, job, limit=limit)

    async def find_key(self, topic: str, key: str) -> Receipt | None:
        """As :meth:`tarry.client.Client.find_key`."""
        return await self._call(self._client.find_key, topic, key)
