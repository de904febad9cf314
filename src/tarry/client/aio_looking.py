"""Looking: methods of the client for asyncio that change nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tarry.api.receipt import TopicPending
from tarry.api.views import Forecast, History, Page
from tarry.client.aio_calls import AsyncCalls


class AsyncLooking(AsyncCalls):
    """As :class:`tarry.client.looking.Looking`, to be awaited; for :class:`tarry.client.AsyncClient`."""

    async def pending(self) -> list[TopicPending]:
        """What is pending, by topic."""
        return await self._call(self._client.pending)

    async def list_pending(
        self,
        *,
        topic: str | None = None,
        after_ms: int | None = None,
        until_ms: int | None = None,
        key: str | None = None,
        id: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        bodies: bool = True,
    ) -> Page:
        """As :meth:`tarry.client.Client.list_pending`."""
        return await self._call(
            self._client.list_pending,
            topic=topic,
            after_ms=after_ms,
            until_ms=until_ms,
            key=key,
            id=id,
            tag=tag,
            limit=limit,
            cursor=cursor,
            bodies=bodies,
        )

    async def peek(self, topic: str, *, group: str | None = None, limit: int = 10) -> pa.RecordBatch:
        """As :meth:`tarry.client.Client.peek`."""
        return await self._call(self._client.peek, topic, group=group, limit=limit)

    async def forecast(self, *, topic: str | None = None, unit: str = "hour", until_ms: int | None = None) -> Forecast:
        """As :meth:`tarry.client.Client.forecast`."""
        return await self._call(self._client.forecast, topic=topic, unit=unit, until_ms=until_ms)

    async def history(self, what: str, *, topic: str | None = None) -> History:
        """As :meth:`tarry.client.Client.history`."""
        return await self._call(self._client.history, what, topic=topic)

    async def status(self) -> dict[str, Any]:
        """The broker's health and counters."""
        return await self._call(self._client.status)

    async def overview(self, *, most: int = 100, next_due: bool = False) -> dict[str, Any]:
        """As :meth:`tarry.client.Client.overview`."""
        return await self._call(self._client.overview, most=most, next_due=next_due)

    async def ping(self) -> dict[str, Any]:
        """As :meth:`tarry.client.Client.ping`."""
        return await self._call(self._client.ping)
