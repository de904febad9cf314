"""The queues that there are, with their attributes and tags: a small durable file of the front's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tarry.api.local import LocalBroker
from tarry.api.needs import Right
from tarry.base.errors import CorruptError
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.sqs.errors import no_queue
from tarry.fronts.http.sqs.names import GROUP, name_in
from tarry.fronts.http.sqs.queue_attributes import Queue
from tarry.fronts.http.sqs.request import SqsRequest

STATE = "sqs-queues"
"""Name of the file; see ``docs/formats.md``."""


class QueueTable:
    """On the event loop's thread. A change is durable before it is seen."""

    def __init__(self, services: HttpServices, broker: LocalBroker) -> None:
        self._services = services
        self._state = broker.front_state(STATE)
        self._lock = asyncio.Lock()
        """One change at a time: each writes the whole file."""
        try:
            fields = self._state.read() or {}
        except CorruptError:  # which is reported: status and log tell of it
            fields = {}
        self._queues = {each["name"]: _queue(each) for each in fields.get("queues", ())}
        self._sources: dict[str, list[str]] | None = None

    def find(self, name: str) -> Queue:
        """Return a queue.

        Raises:
            SqsError: there is none of that name.
        """
        queue = self._queues.get(name)
        if queue is None:
            raise no_queue()
        return queue

    def asked(self, request: SqsRequest) -> Queue:
        """Return the queue whose URL is in a request.

        Raises:
            SqsError: there is none of that name. ForbiddenError: the caller may not know whether there is.
        """
        return self.seen(request, name_in(request.parameters.get("QueueUrl")))

    def seen(self, request: SqsRequest, name: str) -> Queue:
        """Return the queue of a name that a request has.

        Raises:
            SqsError: there is none. ForbiddenError: the caller may not know whether there is.
        """
        request.desk.principal.check(Right.LOOK, name, GROUP, peer=request.http.host)
        return self.find(name)

    def get(self, name: str) -> Queue | None:
        """Return a queue; None: there is none of that name."""
        return self._queues.get(name)

    def names(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return sorted(self._queues)

    def sources_of(self, name: str) -> list[str]:
        """Return the names of the queues whose dead-letter queue this one is, sorted."""
        if self._sources is None:
            self._sources = {}
            for queue in sorted(self._queues.values(), key=lambda each: each.name):
                if queue.dead_letter_queue is not None:
                    self._sources.setdefault(queue.dead_letter_queue, []).append(queue.name)
        return self._sources.get(name, [])

    async def create(self, name: str, given: Mapping[str, str], tags: Mapping[str, str]) -> Queue:
        """Add a queue, unless there is one of that name; return that which is there then."""
        async with self._lock:
            if (former := self._queues.get(name)) is not None:
                return former
            now_ms = self._services.broker.clock.now_ms()
            return await self._put(Queue(name, {k: v for k, v in given.items() if v}, tags, now_ms, now_ms))

    async def change(
        self, name: str, given: Mapping[str, str] | None = None, tags: Mapping[str, str | None] | None = None
    ) -> Queue:
        """Set attributes and tags; an empty attribute, and a tag that is None, is taken away.

        Raises:
            SqsError: there is no such queue.
        """
        async with self._lock:
            queue = self.find(name)
            attributes = {k: v for k, v in {**queue.given, **(given or {})}.items() if v}
            kept = {k: v for k, v in {**queue.tags, **(tags or {})}.items() if v is not None}
            now_ms = self._services.broker.clock.now_ms()
            return await self._put(replace(queue, given=attributes, tags=kept, modified_ms=now_ms))

    async def delete(self, name: str) -> None:
        """Forget a queue, if it is there."""
        async with self._lock:
            if name in self._queues:
                await self._write({key: queue for key, queue in self._queues.items() if key != name})

    async def _put(self, queue: Queue) -> Queue:
        await self._write({**self._queues, queue.name: queue})
        return queue

    async def _write(self, queues: dict[str, Queue]) -> None:
        fields = {"queues": [_fields(queue) for queue in queues.values()]}
        await self._services.run(self._state.write, fields)
        self._queues, self._sources = queues, None


def _queue(fields: Mapping[str, Any]) -> Queue:
    return Queue(
        fields["name"], fields["attributes"], fields["tags"], fields["created_ms"], fields.get("modified_ms", 0)
    )


def _fields(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "attributes": dict(queue.given),
        "tags": dict(queue.tags),
        "created_ms": queue.created_ms,
        "modified_ms": queue.modified_ms,
    }
