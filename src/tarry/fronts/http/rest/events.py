"""Consuming as server-sent events: messages as they fall due, on one connection, without a thread.

Each message is leased as by a receive, and settled by the same requests. An event's id names the stream and the
event's number in it; see ``sessions`` for what becomes of it when the client comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pyarrow as pa

from tarry.api.internal_topics import check_open
from tarry.api.needs import Right
from tarry.api.operations.delivery import Subscribe
from tarry.api.parsing import from_texts
from tarry.api.paths import GROUP
from tarry.api.wire import encode_json
from tarry.base.errors import NotFoundError, QuotaExceededError, TarryError, UnavailableError
from tarry.base.event_loop import post
from tarry.fronts.http.errors import error_json
from tarry.fronts.http.rest.answer import SSE, Answer, chosen
from tarry.fronts.http.rest.deliveries import with_delivery
from tarry.fronts.http.rest.description import DescribedBody, Description, Parameter, text_of
from tarry.fronts.http.rest.operations import ENCODING, fields_of, read_fields, take_encoding
from tarry.fronts.http.rest.request import RestRequest
from tarry.fronts.http.rest.rights import CONSUME
from tarry.fronts.http.rest.routes import Names, Route
from tarry.fronts.http.rest.rows import json_of
from tarry.fronts.http.rest.sessions import EventSession, EventSessions
from tarry.fronts.http.services import HttpServices
from tarry.fronts.kit.last_look import holds_back
from tarry.fronts.kit.receiving import give_back, lease_ms_of
from tarry.fronts.kit.unread import Room

PATH = f"{GROUP}/events"
ROWS_MAX = 64
"""Messages that are leased for one write: a client that does not read withholds so many from others."""
ALIVE_S = 10.0
"""Seconds without a message, after which a comment says that the broker is there."""
FULL_S = 1.0
"""Seconds between two looks for room in a consumer that holds as much as it may.

It looks sooner after news of its group.
"""
LAST_EVENT = Parameter(
    "Last-Event-ID", "header", {"type": "string"}, "The id of the last event that came, to go on with its stream."
)

TEXT = """Consume a group's messages as server-sent events, as they fall due.

Each event `message` is a message as JSON, with the `delivery` to settle it by (ack, nack, extend). Up to `prefetch` may
be unsettled at a time. A comment comes at least every ten seconds. An event `error` says why the stream ends.

A client that comes back with `Last-Event-ID`, as browsers do by themselves, goes on with its stream: what was sent
after that event comes again at once, and what it got before is still leased to it. What nobody settles comes again when
its lease ends."""


class Events:
    """The endpoint."""

    def __init__(self, services: HttpServices) -> None:
        self._sessions = EventSessions(services.loop)

    def routes(self) -> Iterator[Route]:
        fields = fields_of(Subscribe)
        _, texts = text_of(Subscribe)
        parameters = (
            *(Parameter(name, "path", fields.pop(name), "", True) for name in ("topic", "group")),
            *(Parameter(name, "query", schema, texts.get(name, "")) for name, schema in fields.items()),
            ENCODING,
            LAST_EVENT,
        )
        events = DescribedBody("The events.", {SSE: {"type": "string"}})
        about = Description("events", "consuming", TEXT, parameters, None, {200: events}, needs=CONSUME)
        yield Route("GET", PATH, self.consume, about)

    async def consume(self, request: RestRequest, names: Names) -> Answer:
        """Begin a stream, or go on with one."""
        chosen(request, SSE)
        is_base64 = take_encoding(request)
        values, _ = await read_fields(request, names, ())
        subscribe = from_texts(Subscribe, values)
        check_open(subscribe)
        desk = request.desk
        name = subscribe.group if subscribe.broadcast is None else f"{subscribe.group}@{subscribe.broadcast}"
        desk.principal.check(Right.CONSUME, subscribe.topic, name, asked=request.asked)
        if request.method == "HEAD":
            return Answer(media_type=SSE)
        last = request.header("last-event-id")
        session = self._sessions.resume(last, subscribe.topic, name, desk.principal.name) if last else None
        if session is None:
            self._sessions.check_room(desk.principal)
            session = await _open(subscribe, desk)
            self._sessions.add(session)
        return Answer(body=self._events(session, request, is_base64), media_type=SSE)

    async def _events(self, session: EventSession, request: RestRequest, is_base64: bool) -> AsyncIterator[bytes]:
        left = request.watch()
        replaced = session.replaced
        replacing = asyncio.ensure_future(replaced.wait())
        try:
            yield b"retry: 1000\n: the stream begins\n\n"
            while not (left.done() or replaced.is_set()):
                batch = await _next(request.desk.loop, session, (left, replacing), request.room)
                if batch is None:
                    yield b": still here\n\n"
                    continue
                for part in _written(session, batch, is_base64):
                    yield part
                request.room.release()
            if request.refused is not None:
                raise request.refused
        except TarryError as error:
            yield b"event: error\ndata: " + encode_json(error_json(error)) + b"\n\n"
        finally:
            left.cancel()
            replacing.cancel()
            if not replaced.is_set():
                self._sessions.rest(session)


async def _open(subscribe: Subscribe, desk: HttpServices) -> EventSession:
    queue = await desk.receive_queue(
        subscribe.topic, subscribe.group, start=subscribe.start, broadcast=subscribe.broadcast
    )
    lease_ms = lease_ms_of(queue.group, desk.broker, subscribe.lease_ms)
    account = desk.principal.account
    subscription = queue.group.subscribe(prefetch=subscribe.prefetch, lease_ms=lease_ms, account=account)
    return EventSession(queue, subscription, subscribe.prefetch, lease_ms, desk.principal.name)


def _written(session: EventSession, batch: pa.RecordBatch, is_base64: bool) -> Iterator[bytes]:
    """Yield the events of a batch, one by one; give back the rest if that ends early."""
    ids = session.add(batch)
    sent = 0
    try:
        for sent in range(batch.num_rows):
            if holds_back(session.group, batch.slice(sent)):  # the client may read slowly
                return
            [row] = batch.slice(sent, 1).to_pylist()
            text = encode_json(with_delivery(json_of(row, always_base64=is_base64)))
            yield b"id: %s\nevent: message\ndata: %s\n\n" % (next(ids).encode(), text)
        sent = batch.num_rows
    finally:
        give_back(session.group, batch.slice(sent))


async def _next(
    loop: asyncio.AbstractEventLoop, session: EventSession, ends: tuple[asyncio.Future[Any], ...], room: Room
) -> pa.RecordBatch | None:
    """Wait for the next messages; None after :data:`ALIVE_S`, or when one of ``ends`` is done.

    Raises:
        TarryError: there will be no more messages.
    """
    until_s = loop.time() + ALIVE_S
    while not session.room:
        # Not in the queue of the group's receives: a consumer without room would hold up those behind it.
        await _wait_for_news(loop, session, ends)
        if loop.time() >= until_s or any(end.done() for end in ends):
            return None
        if not session.room and room.is_free:
            # Nobody else may ask, and leases end when somebody does.
            batch, _ = session.subscription.poll(ROWS_MAX)
            if batch is not None:
                room.hold(batch.nbytes)
                return batch
    received = session.waiting = session.queue.receive(
        session.subscription, min(ROWS_MAX, session.room), room, is_patient=True
    )
    try:
        await asyncio.wait((received, *ends), timeout=until_s - loop.time(), return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_done = received.done() or not received.cancel()
    if not is_done or received.cancelled():
        return None
    try:
        batch = received.result()
    except QuotaExceededError:
        return None  # of a broker elsewhere: its filter takes more than its identity may use
    if batch is None:
        raise _ended(session)
    if any(end.done() for end in ends):
        give_back(session.group, batch)
        return None
    return batch


async def _wait_for_news(
    loop: asyncio.AbstractEventLoop, session: EventSession, ends: tuple[asyncio.Future[Any], ...]
) -> None:
    news: asyncio.Future[None] = loop.create_future()
    stop_listening = session.group.listen(lambda: post(loop, _set, news))
    try:
        if not session.room:
            await asyncio.wait((news, *ends), timeout=FULL_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop_listening()


def _set(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)


def _ended(session: EventSession) -> TarryError:
    if session.group.deleted:
        # Not to be tried again: that would make the group anew, and begin at its beginning.
        return NotFoundError("the group was deleted")
    return UnavailableError("the broker is stopping; try again later")
