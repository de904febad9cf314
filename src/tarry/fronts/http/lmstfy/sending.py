"""Publish, bulk publish and republish: jobs become messages.

A plain job, of a request that has come whole and for a queue that is known, goes with others to the broker without a
task and without a further check. All else, what the broker refuses above all, takes the way of every message.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from tarry.fronts.http.exchange import BodyTooLargeError, Headers, HttpResponse
from tarry.fronts.http.lmstfy.answers import JSON_LINE, QueryValues, RefusalError
from tarry.fronts.http.lmstfy.bulk import BODY_BYTES_MAX, BULK_BYTES_MAX, bodies_of
from tarry.fronts.http.lmstfy.job_queue import JobEntry, JobQueue, Plain
from tarry.fronts.http.lmstfy.jobs import VERSION_PROPERTY
from tarry.fronts.http.lmstfy.names import GROUP, VERSION, job_ids
from tarry.fronts.http.lmstfy.request import LmstfyRequest
from tarry.fronts.http.lmstfy.settling import Acknowledging
from tarry.fronts.http.read_your_writes import Landing
from tarry.fronts.http.services import HttpServices
from tarry.fronts.kit.receiving import ReceiveQueue
from tarry.message.rows import Row, with_cells
from tarry.message.topics import is_topic
from tarry.repeat import SPREAD_MS_MAX

UINT32_MAX, UINT16_MAX = (1 << 32) - 1, (1 << 16) - 1
TTL_S, DELAY_S, TRIES = 86_400, 0, 1
"""Defaults."""

ATTRIBUTE = b"job-attr-"
VERSION_WANTED = b"enable-job-version"
ATTRIBUTES_MAX, NAME_BYTES_MAX, VALUE_BYTES_MAX = 16, 32, 128


@dataclass(frozen=True, slots=True)
class Options:
    """The options that a request gives for its jobs."""

    delay_ms: int
    ttl_ms: int | None
    tries: int
    spread_ms: int = 0
    """Tarry's own: the job is ready at some moment within this time after its delay."""

    def row(self, topic: str, body: bytes, attributes: list[tuple[str, str]] | None) -> Row:
        """Return a job as a row of values; see :mod:`tarry.message.rows`."""
        said: dict[str, Any] = {"properties": attributes, "ttl_ms": self.ttl_ms, "tries": self.tries}
        if self.spread_ms:
            said["spread_ms"] = self.spread_ms
        return with_cells((topic, body, None, self.delay_ms, None), said)


class Publish(NamedTuple):
    """The parts that publish requests with one target share."""

    options: Options
    queue: ReceiveQueue | None
    """None: its group may be new."""
    plain: Plain | None
    """None: the options are for the broker to check."""


class Publishing:
    """On the event loop's thread."""

    def __init__(self, services: HttpServices, acknowledging: Acknowledging, landing: Landing) -> None:
        self._services = services
        self._acknowledging = acknowledging
        self._landing = landing
        self._jobs = JobQueue(services.broker, services.loop, landing)
        services.on_close(self._jobs.close)
        config = services.broker.config
        self._body_bytes_max = min(BODY_BYTES_MAX, config.body_bytes_max)
        self._delay_ms_max = config.delay_ms_max

    def publish(self, request: LmstfyRequest, *, several: bool = False) -> Awaitable[HttpResponse] | None:
        """Publish a new job; or ``several``, up to 64, all of them or none."""
        publish, http = request.target.known, request.http
        if publish is None or publish.queue.group.closed:
            publish = self._look(request)
        is_here = http.complete and not request.principal.is_bounded
        if publish.plain is not None and publish.queue is not None and is_here:
            bodies = bodies_of(http.whole()) if several else [http.whole()]
            if max(map(len, bodies)) <= self._body_bytes_max and VERSION_WANTED not in dict(http.headers):
                on_published = _on_published_in_bulk if several else _on_published
                self._jobs.add(JobEntry(publish.plain, bodies, partial(on_published, request), request.refuse))
                return None
        return self._publish(request, publish.options, several=several)

    async def republish(self, request: LmstfyRequest) -> HttpResponse:
        """Publish a new job in the place of another one.

        The old one goes when the new one is durable, so that a crash between the two leaves both and never none.
        """
        response = await self._publish(request, options_of(QueryValues(request.http.query)), several=False)
        await self._acknowledging.discard(request.target.topic, request.target.job)
        return response

    # -- what may have to wait ---------------------------------------------------------------------------------------

    async def _publish(self, request: LmstfyRequest, options: Options, *, several: bool) -> HttpResponse:
        http, topic, bytes_max = request.http, request.target.topic, BULK_BYTES_MAX if several else BODY_BYTES_MAX
        await request.principal.in_turn()
        with self._services.bodies.holding(http.headers, bytes_max):
            try:
                body = await http.read(bytes_max)
            except BodyTooLargeError:
                raise RefusalError(413, "job too large" if several else "body too large") from None
            bodies = bodies_of(body) if several else [body]
            attributes = attributes_of(http.headers)
            request.principal.charge(len(bodies), sum(map(len, bodies)), (topic,))
            # The group is there before its first message is due, so that retention keeps that for it.
            await self._services.receive_queue(topic, GROUP)
            rows = [options.row(topic, body, attributes) for body in bodies]
            places = await (self._schedule_all(rows) if several else self._schedule(rows[0]))
        if not options.delay_ms + options.spread_ms:
            self._landing.note(topic, *places[-1])
        prefix = "" if attributes is None else VERSION
        ids = [prefix + id for id in job_ids(topic, places)]
        return published_in_bulk(ids) if several else published(ids[0])

    async def _schedule(self, row: Row) -> list[tuple[int, int]]:
        """Schedule a job with those of other requests; return its place."""
        receipt = await self._services.schedule_row(row)
        return [(receipt.seq, receipt.due_ms)]

    async def _schedule_all(self, rows: list[Row]) -> list[tuple[int, int]]:
        accepted = await self._services.schedule_rows(rows)
        return list(zip(accepted.seqs.tolist(), accepted.due_ms.tolist(), strict=True))

    # ----------------------------------------------------------------------------------------------------------------

    def _look(self, request: LmstfyRequest) -> Publish:
        target = request.target
        options, queue = options_of(QueryValues(request.http.query)), self._services.known_queue(target.topic, GROUP)
        if not is_topic(target.topic) or not self._is_allowed(options):
            return Publish(options, queue, None)
        publish = Publish(options, queue, Plain(target.topic, options.delay_ms, options.ttl_ms, options.tries))
        target.known = None if queue is None else publish
        return publish

    def _is_allowed(self, options: Options) -> bool:
        lives = options.ttl_ms is None or options.ttl_ms > options.delay_ms
        return lives and not options.spread_ms and options.delay_ms <= self._delay_ms_max


def published(id: str) -> HttpResponse:
    """Return the answer of a job's publication."""
    return HttpResponse(201, b'{"job_id":"%s","msg":"published"}' % id.encode(), (), JSON_LINE)


def published_in_bulk(ids: list[str]) -> HttpResponse:
    """Return the answer of a bulk's publication."""
    return HttpResponse(201, b'{"job_ids":["%s"],"msg":"published"}' % '","'.join(ids).encode(), (), JSON_LINE)


def _on_published(request: LmstfyRequest, ids: list[str]) -> None:
    request.answer(published(ids[0]))


def _on_published_in_bulk(request: LmstfyRequest, ids: list[str]) -> None:
    request.answer(published_in_bulk(ids))


def options_of(query: QueryValues) -> Options:
    """Return the options in a query.

    Raises:
        RefusalError: a value is not allowed.
    """
    delay_s = query.natural("delay", DELAY_S, UINT32_MAX)
    spread_s = query.natural("spread", 0, SPREAD_MS_MAX // 1000)
    ttl_s = query.natural("ttl", TTL_S, UINT32_MAX)
    if 0 < ttl_s < delay_s + spread_s:
        raise RefusalError(400, "ttl is shorter than delay" + (" and spread" if spread_s else ""))
    tries = query.natural("tries", TRIES, UINT16_MAX)
    if not tries:
        raise RefusalError(400, "tries shouldn't be zero")
    return Options(delay_s * 1000, ttl_s * 1000 or None, tries, spread_s * 1000)


def attributes_of(headers: Headers) -> list[tuple[str, str]] | None:
    """Return a job's attributes: the headers that begin with Job-Attr-, and its version if wanted.

    None: the request asks for neither.

    Raises:
        RefusalError: they are too many.
    """
    wanted = False
    found: dict[str, str] = {}
    for name, value in headers:
        if name == VERSION_WANTED:
            wanted = value.upper() == b"YES"
        elif name.startswith(ATTRIBUTE) and value:
            key = name[len(ATTRIBUTE) :][:NAME_BYTES_MAX].decode(errors="replace")
            found.setdefault(key, value[:VALUE_BYTES_MAX].decode(errors="replace"))
    if not wanted:
        return None
    if len(found) > ATTRIBUTES_MAX:
        raise RefusalError(400, f"too many attributes, cannot exceed {ATTRIBUTES_MAX}")
    return [*found.items(), (VERSION_PROPERTY, VERSION)]
