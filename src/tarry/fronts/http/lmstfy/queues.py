"""Looking at queues and their dead letters, and emptying them."""

from __future__ import annotations

from tarry.api.operations import FindMessage, GetGroup, ListDeadLetters, Peek, Purge, Respawn, Seek
from tarry.api.settings import LATEST
from tarry.base.errors import NotFoundError
from tarry.fronts.http.exchange import HttpRequest, HttpResponse
from tarry.fronts.http.lmstfy.answers import NO_CONTENT, QueryValues, answer
from tarry.fronts.http.lmstfy.jobs import jobs_of, remaining
from tarry.fronts.http.lmstfy.names import GROUP, job_id, place_of, topic_of
from tarry.fronts.http.lmstfy.read_your_writes import Landing
from tarry.fronts.http.lmstfy.sending import TTL_S
from tarry.fronts.http.services import HttpServices
from tarry.message.reserved import first_places

PURGE_ROWS = 10_000
PEEK_ROWS = 100
RESPAWN_MAX = (1 << 31) - 1
TTL_MS_MAX = 1 << 50


class JobQueues:
    """On the loop's thread."""

    def __init__(self, services: HttpServices, landing: Landing) -> None:
        self._services = services
        self._landing = landing

    async def size(self, request: HttpRequest, namespace: str, queue: str) -> HttpResponse:
        """How many jobs are ready."""
        return answer(200, {"namespace": namespace, "queue": queue, "size": (await self._counts(namespace, queue))[0]})

    async def peek(self, request: HttpRequest, namespace: str, queue: str) -> HttpResponse:
        """The job that is ready and would come next."""
        topic = topic_of(namespace, queue)
        await self._landing.landed(topic)
        try:
            batch = await self._services.call(Peek(topic, group=GROUP, limit=PEEK_ROWS, waiting_only=True))
            tries = (await self._services.call(GetGroup(topic, GROUP))).tries
        except NotFoundError:
            return answer(404, {"error": "the queue is empty"})
        now_ms = self._services.broker.clock.now_ms()
        expire = batch.column("expire_ms").to_pylist()  # what has expired is not taken out before its turn comes
        row = next((row for row, at_ms in enumerate(expire) if at_ms is None or at_ms > now_ms), None)
        if row is None:
            return answer(404, {"error": "the queue is empty"})
        head = batch.slice(row, 1)
        [job] = jobs_of(head, topic, (namespace, queue), now_ms, remaining(head, tries))
        return answer(200, job.fields())

    async def peek_job(self, request: HttpRequest, namespace: str, queue: str, job: str) -> HttpResponse:
        """A job, wherever it is."""
        topic = topic_of(namespace, queue)
        place = place_of(topic, job)
        if place is None:
            return answer(404, {"error": "job not found"})
        batch = await self._services.call(FindMessage(topic, GROUP, *place))
        if not batch.num_rows:
            return answer(404, {"error": "job not found"})
        # lmstfy tells how many tries are left of the head of a queue alone.
        [found] = jobs_of(batch, topic, (namespace, queue), self._services.broker.clock.now_ms(), [0])
        return answer(200, {**found.fields(), "job_id": job})

    async def destroy(self, request: HttpRequest, namespace: str, queue: str) -> HttpResponse:
        """Let go of all jobs that have become ready, also of those that consumers have."""
        try:
            await self._services.call(Seek(topic_of(namespace, queue), GROUP, LATEST))
        except NotFoundError:
            pass
        return NO_CONTENT

    async def dead_letter_size(self, request: HttpRequest, namespace: str, queue: str) -> HttpResponse:
        """How many dead letters there are."""
        return answer(200, {"namespace": namespace, "queue": queue, "size": (await self._counts(namespace, queue))[1]})

    async def dead_letter(self, request: HttpRequest, namespace: str, queue: str) -> HttpResponse:
        """How many dead letters there are, and the id of the first."""
        topic = topic_of(namespace, queue)
        size = (await self._counts(namespace, queue))[1]
        page = await self._services.call(ListDeadLetters(topic, GROUP, limit=1))
        head = "".join(job_id(topic, *place) for place in first_places(page) if place is not None)
        return answer(200, {"namespace": namespace, "queue": queue, "deadletter_size": size, "deadletter_head": head})

    async def respawn(self, request: HttpRequest, namespace: str, queue: str) -> HttpResponse:
        """The oldest dead letters, ready again for one try."""
        query = QueryValues(request.query)
        limit = query.signed("limit", 1, least=1)
        ttl_s = query.signed("ttl", TTL_S, least=0)
        respawn = Respawn(
            topic_of(namespace, queue),
            GROUP,
            limit=min(limit, RESPAWN_MAX),
            tries=1,
            ttl_ms=min(ttl_s * 1000, TTL_MS_MAX) or None,
        )
        try:
            await self._landing.buried(respawn.topic)
            count = await self._services.call(respawn)
        except NotFoundError:
            count = 0
        return answer(200, {"msg": "respawned", "count": count})

    async def delete_dead_letters(self, request: HttpRequest, namespace: str, queue: str) -> HttpResponse:
        """Let go of the oldest dead letters."""
        left = QueryValues(request.query).signed("limit", 1, least=1)
        topic = topic_of(namespace, queue)
        await self._counts(namespace, queue)
        while left:
            page = await self._services.call(ListDeadLetters(topic, GROUP, limit=min(left, PURGE_ROWS)))
            if not page.num_rows:
                break
            await self._services.call(Purge(topic, GROUP, offsets=page.column("offset").to_numpy()))
            left -= page.num_rows
        return NO_CONTENT

    async def _counts(self, namespace: str, queue: str) -> tuple[int, int]:
        """How many jobs are ready, and how many dead."""
        topic = topic_of(namespace, queue)
        try:
            await self._landing.landed(topic)
            await self._landing.buried(topic)
            info = await self._services.call(GetGroup(topic, GROUP))
        except NotFoundError:
            return 0, 0
        return info.ready, info.dead
