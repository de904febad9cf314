"""Looking at queues and their dead letters, and emptying them."""

from __future__ import annotations

from tarry.api.operations import FindMessage, GetGroup, ListDeadLetters, Peek, Purge, Respawn, Seek
from tarry.api.settings import LATEST
from tarry.base.errors import NotFoundError
from tarry.fronts.http.exchange import HttpResponse
from tarry.fronts.http.lmstfy.answers import NO_CONTENT, QueryValues, answer
from tarry.fronts.http.lmstfy.jobs import jobs_of, remaining
from tarry.fronts.http.lmstfy.names import GROUP, job_id, place_of
from tarry.fronts.http.lmstfy.request import LmstfyRequest, Target
from tarry.fronts.http.lmstfy.sending import TTL_S
from tarry.fronts.http.read_your_writes import Landing
from tarry.fronts.http.services import HttpServices
from tarry.message.reserved import first_places

PURGE_ROWS = 10_000
PEEK_ROWS = 100
RESPAWN_MAX = (1 << 31) - 1
TTL_MS_MAX = 1 << 50


class JobQueues:
    """On the event loop's thread."""

    def __init__(self, services: HttpServices, landing: Landing) -> None:
        self._services = services
        self._landing = landing

    async def size(self, request: LmstfyRequest) -> HttpResponse:
        """Return the number of jobs that are ready."""
        return await self._size(request.target, 0)

    async def peek(self, request: LmstfyRequest) -> HttpResponse:
        """Return the ready job that would come next."""
        target = request.target
        topic = target.topic
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
        [job] = jobs_of(head, topic, (target.namespace, target.queue), now_ms, remaining(head, tries))
        return answer(200, job.fields())

    async def peek_job(self, request: LmstfyRequest) -> HttpResponse:
        """Return a job, wherever it is."""
        target = request.target
        topic = target.topic
        place = place_of(topic, target.job)
        if place is None:
            return answer(404, {"error": "job not found"})
        batch = await self._services.call(FindMessage(topic, GROUP, *place))
        if not batch.num_rows:
            return answer(404, {"error": "job not found"})
        # lmstfy tells how many tries are left of the head of a queue alone.
        now_ms = self._services.broker.clock.now_ms()
        [found] = jobs_of(batch, topic, (target.namespace, target.queue), now_ms, [0])
        return answer(200, {**found.fields(), "job_id": target.job})

    async def destroy(self, request: LmstfyRequest) -> HttpResponse:
        """Drop all jobs that have become ready, also those that consumers hold."""
        try:
            await self._services.call_by(Seek(request.target.topic, GROUP, LATEST), request.asked)
        except NotFoundError:
            pass
        return NO_CONTENT

    async def dead_letter_size(self, request: LmstfyRequest) -> HttpResponse:
        """Return the number of dead letters."""
        return await self._size(request.target, 1)

    async def dead_letter(self, request: LmstfyRequest) -> HttpResponse:
        """Return the number of dead letters, and the id of the first."""
        target = request.target
        topic = target.topic
        size = (await self._counts(topic))[1]
        page = await self._services.call(ListDeadLetters(topic, GROUP, limit=1))
        head = "".join(job_id(topic, *place) for place in first_places(page) if place is not None)
        names = {"namespace": target.namespace, "queue": target.queue}
        return answer(200, {**names, "deadletter_size": size, "deadletter_head": head})

    async def respawn(self, request: LmstfyRequest) -> HttpResponse:
        """Make the oldest dead letters ready again, for one try."""
        query = QueryValues(request.http.query)
        limit = query.signed("limit", 1, least=1)
        ttl_s = query.signed("ttl", TTL_S, least=0)
        respawn = Respawn(
            request.target.topic,
            GROUP,
            limit=min(limit, RESPAWN_MAX),
            tries=1,
            ttl_ms=min(ttl_s * 1000, TTL_MS_MAX) or None,
        )
        try:
            await self._landing.buried(respawn.topic)
            count = await self._services.call_by(respawn, request.asked)
        except NotFoundError:
            count = 0
        return answer(200, {"msg": "respawned", "count": count})

    async def delete_dead_letters(self, request: LmstfyRequest) -> HttpResponse:
        """Let go of the oldest dead letters."""
        left = QueryValues(request.http.query).signed("limit", 1, least=1)
        topic = request.target.topic
        await self._counts(topic)
        while left:
            page = await self._services.call(ListDeadLetters(topic, GROUP, limit=min(left, PURGE_ROWS)))
            if not page.num_rows:
                break
            purge = Purge(topic, GROUP, offsets=page.column("offset").to_numpy())
            await self._services.call_by(purge, request.asked)
            left -= page.num_rows
        return NO_CONTENT

    async def _size(self, target: Target, place: int) -> HttpResponse:
        size = (await self._counts(target.topic))[place]
        return answer(200, {"namespace": target.namespace, "queue": target.queue, "size": size})

    async def _counts(self, topic: str) -> tuple[int, int]:
        """Return the numbers of ready jobs and of dead letters."""
        try:
            await self._landing.landed(topic)
            await self._landing.buried(topic)
            info = await self._services.call(GetGroup(topic, GROUP))
        except NotFoundError:
            return 0, 0
        return info.ready, info.dead
