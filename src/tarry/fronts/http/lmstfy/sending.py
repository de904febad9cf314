"""Publish, bulk publish and republish: jobs become messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from tarry.fronts.http.exchange import BodyTooLargeError, Headers, HttpRequest, HttpResponse
from tarry.fronts.http.lmstfy.answers import JSON, QueryValues, RefusalError, answer
from tarry.fronts.http.lmstfy.jobs import VERSION_PROPERTY
from tarry.fronts.http.lmstfy.names import GROUP, VERSION, job_id, job_ids, topic_of
from tarry.fronts.http.lmstfy.read_your_writes import Landing
from tarry.fronts.http.lmstfy.settling import Acknowledging
from tarry.fronts.http.services import HttpServices
from tarry.message.rows import PLACES, Row, with_cells

BODY_BYTES_MAX = 1 << 20
JOBS_MAX = 64
BULK_BYTES_MAX = JOBS_MAX * BODY_BYTES_MAX + (1 << 20)
UINT32_MAX, UINT16_MAX = (1 << 32) - 1, (1 << 16) - 1
TTL_S, DELAY_S, TRIES = 86_400, 0, 1
"""Defaults."""

PROPERTIES = PLACES["properties"]
ATTRIBUTE = b"job-attr-"
ATTRIBUTES_MAX, NAME_BYTES_MAX, VALUE_BYTES_MAX = 16, 32, 128


@dataclass(frozen=True, slots=True)
class Options:
    """What a request says of its jobs."""

    delay_ms: int
    ttl_ms: int | None
    tries: int

    def row(self, topic: str, body: bytes, attributes: list[tuple[str, str]] | None) -> Row:
        """A job as a row of values; see :mod:`tarry.message.rows`."""
        said = {"properties": attributes, "ttl_ms": self.ttl_ms, "tries": self.tries}
        return with_cells((topic, body, None, self.delay_ms, None), said)


class Publishing:
    """On the loop's thread."""

    def __init__(self, services: HttpServices, acknowledging: Acknowledging, landing: Landing) -> None:
        self._services = services
        self._acknowledging = acknowledging
        self._landing = landing

    async def publish(self, request: HttpRequest, namespace: str, queue: str) -> HttpResponse:
        """A new job."""
        return await self._publish(request, topic_of(namespace, queue), options_of(QueryValues(request.query)))

    async def republish(self, request: HttpRequest, namespace: str, queue: str, job: str) -> HttpResponse:
        """A new job in the place of another one. That one goes when the new one is durable, so that a crash between the
        two leaves both and never none.
        """
        options = options_of(QueryValues(request.query))
        topic = topic_of(namespace, queue)
        response = await self._publish(request, topic, options)
        await self._acknowledging.discard(topic, job)
        return response

    async def publish_bulk(self, request: HttpRequest, namespace: str, queue: str) -> HttpResponse:
        """Up to 64 jobs, all of them or none."""
        options = options_of(QueryValues(request.query))
        with self._services.bodies.holding(request.headers, BULK_BYTES_MAX):
            return await self._publish_bulk(request, namespace, queue, options)

    async def _publish_bulk(self, request: HttpRequest, namespace: str, queue: str, options: Options) -> HttpResponse:
        try:
            bodies = bodies_of(await request.read(BULK_BYTES_MAX))
        except BodyTooLargeError:
            raise RefusalError(413, "job too large") from None
        attributes = attributes_of(request.headers)
        prefix = "" if attributes is None else VERSION
        topic = topic_of(namespace, queue)
        await self._services.receive_queue(topic, GROUP)
        accepted = await self._services.schedule_rows([options.row(topic, body, attributes) for body in bodies])
        places = list(zip(accepted.seqs.tolist(), accepted.due_ms.tolist(), strict=True))
        if not options.delay_ms:
            self._landing.note(topic, *places[-1])
        return answer(201, {"job_ids": [prefix + id for id in job_ids(topic, places)], "msg": "published"})

    async def _publish(self, request: HttpRequest, topic: str, options: Options) -> HttpResponse:
        with self._services.bodies.holding(request.headers, BODY_BYTES_MAX):
            return await self._publish_one(request, topic, options)

    async def _publish_one(self, request: HttpRequest, topic: str, options: Options) -> HttpResponse:
        try:
            body = await request.read(BODY_BYTES_MAX)
        except BodyTooLargeError:
            raise RefusalError(413, "body too large") from None
        row = options.row(topic, body, attributes_of(request.headers))
        # The group is there before its first message is due, so that retention keeps that for it.
        await self._services.receive_queue(topic, GROUP)
        receipt = await self._services.schedule_row(row)
        if not options.delay_ms:
            self._landing.note(topic, receipt.seq, receipt.due_ms)
        id = ("" if row[PROPERTIES] is None else VERSION) + job_id(topic, receipt.seq, receipt.due_ms)
        return HttpResponse(201, b'{"job_id":"%s","msg":"published"}' % id.encode(), JSON)


def options_of(query: QueryValues) -> Options:
    """
    Raises:
        RefusalError: a value is not allowed.
    """
    delay_s = query.natural("delay", DELAY_S, UINT32_MAX)
    ttl_s = query.natural("ttl", TTL_S, UINT32_MAX)
    if 0 < ttl_s < delay_s:
        raise RefusalError(400, "ttl is shorter than delay")
    tries = query.natural("tries", TRIES, UINT16_MAX)
    if not tries:
        raise RefusalError(400, "tries shouldn't be zero")
    return Options(delay_s * 1000, ttl_s * 1000 or None, tries)


def attributes_of(headers: Headers) -> list[tuple[str, str]] | None:
    """A job's attributes, of the headers that begin with Job-Attr-, and that it has a version; None: neither is wanted.

    Raises:
        RefusalError: they are too many.
    """
    wanted = False
    found: dict[str, str] = {}
    for name, value in headers:
        if name == b"enable-job-version":
            wanted = value.upper() == b"YES"
        elif name.startswith(ATTRIBUTE) and value:
            key = name[len(ATTRIBUTE) :][:NAME_BYTES_MAX].decode(errors="replace")
            found.setdefault(key, value[:VALUE_BYTES_MAX].decode(errors="replace"))
    if not wanted:
        return None
    if len(found) > ATTRIBUTES_MAX:
        raise RefusalError(400, f"too many attributes, cannot exceed {ATTRIBUTES_MAX}")
    return [*found.items(), (VERSION_PROPERTY, VERSION)]


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)


_DECODER: Any = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=str, parse_float=str)
_SPACE = " \t\r\n"


def bodies_of(body: bytes) -> list[bytes]:
    """The jobs of a bulk.

    Raises:
        RefusalError: there are none, or too many, or one is too large.
    """
    bodies = split(body)
    if not bodies:
        raise RefusalError(400, "no jobs")
    if len(bodies) > JOBS_MAX:
        raise RefusalError(400, "too many jobs")
    if any(len(body) > BODY_BYTES_MAX for body in bodies):
        raise RefusalError(413, "job too large")
    return bodies


def split(body: bytes) -> list[bytes]:
    """The elements of a JSON array as they are written; none of ``null``.

    Raises:
        RefusalError: it is no array.
    """
    # As Latin-1 each byte is a character: what is in a text need not be UTF-8, and places are those of the bytes.
    text = body.decode("latin-1")
    try:
        return _elements(body, text)
    except (ValueError, IndexError, RecursionError):
        raise RefusalError(400, "request body should be an array of objects") from None


def _elements(body: bytes, text: str) -> list[bytes]:
    stripped = text.strip(_SPACE)
    if stripped == "null":
        return []
    at = text.index(stripped) + 1 if stripped[0] == "[" else -1
    end = len(text.rstrip(_SPACE)) - 1
    if at < 0 or text[end] != "]":
        raise ValueError
    found = []
    at = _skip(text, at)
    while at < end:
        _, stop = _DECODER.raw_decode(text, at)
        found.append(body[at:stop])
        at = _skip(text, stop)
        if at < end:
            if text[at] != ",":
                raise ValueError
            at = _skip(text, at + 1)
            if at >= end:
                raise ValueError
    if at != end:
        raise ValueError
    return found


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
