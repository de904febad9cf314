"""Groups, topics and dead letters: methods of the client for asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from tarry.api.groups import GroupInfo, TopicInfo
from tarry.client.aio_calls import AsyncCalls


class AsyncGroups(AsyncCalls):
    """As :class:`tarry.client.groups.Groups`, to be awaited; for :class:`tarry.client.AsyncClient`."""

    async def set_group(
        self,
        topic: str,
        group: str,
        *,
        retry: str | None = None,
        tries: int | None = None,
        inflight_max: int | None = None,
        filter: str | None = None,
        ordered: bool | None = None,
        paused: bool | None = None,
        lease_ms: int | None = None,
        start: str | None = None,
    ) -> GroupInfo:
        """As :meth:`tarry.client.Client.set_group`."""
        return await self._call(
            self._client.set_group,
            topic,
            group,
            retry=retry,
            tries=tries,
            inflight_max=inflight_max,
            filter=filter,
            ordered=ordered,
            paused=paused,
            lease_ms=lease_ms,
            start=start,
        )

    async def group_info(self, topic: str, group: str) -> GroupInfo:
        """As :meth:`tarry.client.Client.group_info`."""
        return await self._call(self._client.group_info, topic, group)

    async def groups(self, topic: str | None = None) -> list[GroupInfo]:
        """As :meth:`tarry.client.Client.groups`."""
        return await self._call(self._client.groups, topic)

    async def delete_group(self, topic: str, group: str) -> None:
        """As :meth:`tarry.client.Client.delete_group`."""
        await self._call(self._client.delete_group, topic, group)

    async def pause(self, topic: str, group: str) -> None:
        """As :meth:`tarry.client.Client.pause`."""
        await self._call(self._client.pause, topic, group)

    async def resume(self, topic: str, group: str) -> None:
        """As :meth:`tarry.client.Client.resume`."""
        await self._call(self._client.resume, topic, group)

    async def seek(self, topic: str, group: str, to: datetime | int | str) -> int:
        """As :meth:`tarry.client.Client.seek`."""
        return await self._call(self._client.seek, topic, group, to)

    async def set_topic(
        self,
        topic: str,
        *,
        late: str | None = None,
        lateness_ms_max: int | None = None,
        ordered: bool | None = None,
        declared: bool | None = None,
    ) -> TopicInfo:
        """As :meth:`tarry.client.Client.set_topic`."""
        return await self._call(
            self._client.set_topic,
            topic,
            late=late,
            lateness_ms_max=lateness_ms_max,
            ordered=ordered,
            declared=declared,
        )

    async def topic_info(self, topic: str) -> TopicInfo:
        """As :meth:`tarry.client.Client.topic_info`."""
        return await self._call(self._client.topic_info, topic)

    async def dead_letters(
        self, topic: str, group: str, *, limit: int = 100, after: int | None = None
    ) -> pa.RecordBatch:
        """As :meth:`tarry.client.Client.dead_letters`."""
        return await self._call(self._client.dead_letters, topic, group, limit=limit, after=after)

    async def respawn(
        self,
        topic: str,
        group: str,
        *,
        offsets: Sequence[int] | None = None,
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """As :meth:`tarry.client.Client.respawn`."""
        return await self._call(self._client.respawn, topic, group, offsets=offsets, limit=limit, per_second=per_second)

    async def purge(self, topic: str, group: str, *, offsets: Sequence[int] | None = None) -> int:
        """As :meth:`tarry.client.Client.purge`."""
        return await self._call(self._client.purge, topic, group, offsets=offsets)
