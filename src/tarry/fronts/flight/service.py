"""The methods of Flight: calls as operations.

It decides nothing; what the broker refuses reaches the client as it is. Operations that may wait for the disk run in
threads of a pool.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from loopgrpc import Bidi, Call, Framed, GrpcError, Handler, ServerStream, UnreadBytes, framed
from tarry.api.consuming import Subscription
from tarry.api.local import LocalBroker
from tarry.api.operation import Action, Operation, Rows
from tarry.api.operations import Receive
from tarry.api.operations.jobs import StageJob
from tarry.api.parsing import from_json
from tarry.api.views import DELIVERY
from tarry.api.wire import CONSUME_PATH, SCHEDULE_PATH, STAGE, encode_json
from tarry.base.errors import InvalidArgumentError, NotFoundError, TarryError, UnavailableError
from tarry.fronts.flight.batches import BatchReader
from tarry.fronts.flight.calls import CallLimits
from tarry.fronts.flight.messages import (
    BODY_OF_RESULT,
    METADATA_OF_PUT,
    FlightData,
    arrow_data,
    field,
    read_data,
    read_pair,
    refusal,
    unimplemented,
)
from tarry.fronts.flight.receiving import INTERNAL, LOOK_S, ConsumeStream
from tarry.fronts.flight.requests import ACTIONS, action_request, put_command, subscribe_request, ticket_request
from tarry.fronts.flight.sending import PutStream
from tarry.fronts.kit.groups import ReceiveQueues
from tarry.fronts.kit.receiving import FILTERING_S, poll_now
from tarry.fronts.kit.unread import Room, check_room
from tarry.message.schema import UNNUMBERED

log = logging.getLogger(__name__)

NAME = "arrow.flight.protocol.FlightService"
FIRST_S = 10.0
"""Seconds that a stream may be open without a message: its client says at once what it wants."""
_NO_FLIGHTS = "Tarry has no flights; allowed: DoPut, DoExchange, DoGet, DoAction, ListActions"
_NO_HANDSHAKE = "This service does not have an authentication mechanism enabled."

Answers = AsyncIterator[bytes]


class Service:
    """The service of one broker. On the loop's thread."""

    def __init__(
        self, broker: LocalBroker, pool: Executor, staging: Executor, calls: CallLimits, unread: UnreadBytes
    ) -> None:
        self._broker = broker
        self._pool, self._staging = pool, staging
        self._calls = calls
        self._unread = unread
        self._loop = asyncio.get_running_loop()
        self._queues = ReceiveQueues(self._loop)
        self._streams: set[PutStream | ConsumeStream] = set()
        self._stopping: UnavailableError | None = None

    def handlers(self) -> dict[str, Handler]:
        """Return the methods by their paths."""
        methods: dict[str, Handler] = {
            "DoPut": Bidi(self._answered(self._put)),
            "DoExchange": Bidi(self._answered(self._exchange)),
            "DoGet": ServerStream(self._answered(self._get)),
            "DoAction": ServerStream(self._answered(self._act)),
            "ListActions": ServerStream(self._answered(self._list_actions)),
            "Handshake": Bidi(_refuse(_NO_HANDSHAKE)),
        }
        for name in ("ListFlights", "GetFlightInfo", "GetSchema", "PollFlightInfo"):
            methods[name] = Bidi(_refuse(_NO_FLIGHTS))
        return {f"/{NAME}/{name}": method for name, method in methods.items()}

    def stop(self) -> None:
        """Refuse new calls, say goodbye on the streams, and end receives that wait."""
        self._stopping = UnavailableError("the broker is stopping; try again later")
        self._queues.close()
        for stream in list(self._streams):
            stream.stop(self._stopping)

    def _answered(self, method: Callable[[Any, Call], Answers]) -> Callable[[Any, Call], Answers]:
        """Return the method with its calls counted, and its errors as Arrow's."""

        async def answer(asked: Any, call: Call) -> Answers:
            answers = method(asked, call)
            try:
                self._calls.begin(call)
                async for message in answers:
                    yield message
            except GrpcError:
                raise
            except TarryError as error:
                raise refusal(error) from None
            except Exception:
                log.exception("a call failed")
                raise refusal(INTERNAL) from None
            finally:
                await answers.aclose()  # type: ignore[attr-defined]

        return answer

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        return await self._loop.run_in_executor(self._pool, function, *args)

    def _check_serving(self) -> None:
        if self._stopping is not None:
            raise self._stopping

    # -- streams -------------------------------------------------------------------------------------------------------

    async def _put(self, messages: Answers, call: Call) -> Answers:
        """Schedule batches, or stage them for a bulk job."""
        first, descriptor = await _first_of(messages)
        if descriptor.path == SCHEDULE_PATH:
            stream = PutStream(self._broker, self._run)
            async for answer in self._serve(stream, stream.answers(first, messages)):
                yield answer
            return
        command = put_command(descriptor.command) if descriptor.path is None else None
        if not isinstance(command, dict) or command.pop("op", None) != STAGE:
            raise NotFoundError(f"DoPut of {descriptor}; allowed: the path ['schedule'], or the op {STAGE!r}")
        self._check_serving()
        job = from_json(StageJob, command)
        arguments = job.number, self._pulled(first, messages, call)
        files, topics = await self._loop.run_in_executor(self._staging, self._broker.stage_job, *arguments)
        answer = encode_json({"files": [asdict(file) for file in files], "topics": dict(topics)})
        yield field(METADATA_OF_PUT, answer)

    def _pulled(self, first: FlightData, messages: Answers, call: Call) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a stream that have rows. In a thread, which waits for each."""
        reader = BatchReader()
        if first.header:
            reader.read(first)
        if reader.names != UNNUMBERED.names:
            raise InvalidArgumentError(f"the columns are {reader.names}; allowed: {UNNUMBERED.names}")
        while True:
            raw = asyncio.run_coroutine_threadsafe(_next_of(messages), self._loop).result()
            if raw is None:
                if call.cancelled:
                    raise InvalidArgumentError("the stream could not be read: its client has left")
                return
            data = read_data(raw)
            batch = reader.read(data) if data.header else None
            if batch is not None and batch.num_rows:
                yield batch

    async def _exchange(self, messages: Answers, call: Call) -> Answers:
        """Consume."""
        first, descriptor = await _first_of(messages)
        command = descriptor.command
        if descriptor.path is not None:
            if descriptor.path != CONSUME_PATH:
                raise NotFoundError(f"DoExchange of {descriptor}; allowed: the path ['consume'], or a command")
            command = first.metadata or read_data(await _begun(messages)).metadata
        request = subscribe_request(command)
        self._check_serving()
        subscription = await self._run(self._broker.open_subscription, request)
        stream = ConsumeStream(subscription, self._unread, call.host, _now_ms)
        async for answer in self._serve(stream, stream.answers(messages)):
            yield answer

    async def _serve(self, stream: PutStream | ConsumeStream, answers: Answers) -> Answers:
        self._streams.add(stream)
        if self._stopping is not None:
            stream.stop(self._stopping)
        try:
            async for answer in answers:
                yield answer
        finally:
            self._streams.discard(stream)
            await answers.aclose()  # type: ignore[attr-defined]

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _get(self, asked: bytes, call: Call) -> Answers:
        """Carry out an operation that is answered by rows."""
        request = ticket_request(read_pair(asked)[0])
        self._check_serving()
        if isinstance(request, Receive):
            async for answer in self._receive(request, call.host):
                yield answer
            return
        check_room(self._unread, call.host)
        message, batches = await self._run(self._begin, request, call.host)
        while message is not None:
            yield message  # and go on when it has left
            while self._unread.refusal(call.host) is not None:
                await asyncio.sleep(LOOK_S)
            message = await self._run(_next_data, batches)

    def _begin(self, request: Operation[Any], host: str) -> tuple[Framed, Iterator[pa.RecordBatch]]:
        """Return the message of the schema, and the batches behind it. In a thread."""
        check_room(self._unread, host)  # other answers may have come between
        rows = request.wire
        assert isinstance(rows, Rows)
        schema, batches = rows.encode(self._broker.call(request))
        return arrow_data(schema.serialize(), has_body=False), iter(batches)

    async def _receive(self, request: Receive, host: str) -> Answers:
        """Answer a long poll; dropped before its batch was taken, the messages go back at once."""
        room = Room(self._unread, host)
        room.check()
        subscription = await self._run(self._broker.open_subscription, request.subscription)
        is_taken = False
        try:
            yield arrow_data(DELIVERY.serialize(), has_body=False)
            batch = await self._fetch(subscription, request.max_messages, request.wait_ms / 1000, room)
            room.release()
            if batch is not None:
                yield arrow_data(batch.serialize())
            is_taken = True
        finally:
            room.release()
            if not is_taken:
                subscription.close()

    async def _fetch(
        self, subscription: Subscription, rows_max: int, wait_s: float, room: Room
    ) -> pa.RecordBatch | None:
        room.check()
        batch = await poll_now(self._loop, subscription, rows_max, FILTERING_S)
        if batch is None and wait_s and self._stopping is None:
            received = self._queues.of(subscription.group).receive(subscription, rows_max, room)
            with suppress(TimeoutError):
                batch = await asyncio.wait_for(received, wait_s)
        return batch

    # -- actions -------------------------------------------------------------------------------------------------------

    async def _act(self, asked: bytes, call: Call) -> Answers:
        """Carry out one of :meth:`_list_actions`; the result is one JSON value."""
        name, body = read_pair(asked)
        kind = ACTIONS.get(name.decode(errors="replace"))
        if kind is None:
            raise NotFoundError(f"no action {name.decode(errors='replace')!r}; allowed: {', '.join(ACTIONS)}")
        self._check_serving()
        wire = kind.wire
        assert isinstance(wire, Action)
        result = await self._run(lambda: wire.codec.encode(self._broker.call(action_request(kind, body))))
        yield field(BODY_OF_RESULT, encode_json(result))

    async def _list_actions(self, asked: bytes, call: Call) -> Answers:
        """Answer the actions and their purposes."""
        yield framed(
            field(1, name.encode()) + field(2, kind.wire.about.encode())
            for name, kind in ACTIONS.items()
            if isinstance(kind.wire, Action)
        )


def _refuse(text: str) -> Callable[[Answers, Call], Answers]:
    async def refuse(messages: Answers, call: Call) -> Answers:
        raise unimplemented(text)
        yield b""

    return refuse


async def _begun(messages: Answers) -> bytes:
    """Return one of the first messages, which has to come soon."""
    try:
        async with asyncio.timeout(FIRST_S):
            return await anext(messages)
    except StopAsyncIteration:
        raise InvalidArgumentError("the stream ended before its command") from None
    except TimeoutError:
        raise InvalidArgumentError(
            f"the stream has said nothing for {FIRST_S:g} s; allowed: its command at once"
        ) from None


async def _first_of(messages: Answers) -> tuple[FlightData, Any]:
    first = read_data(await _begun(messages))
    if first.descriptor is None:
        raise InvalidArgumentError("the first message of the stream has no descriptor")
    return first, first.descriptor


async def _next_of(messages: Answers) -> bytes | None:
    return await anext(messages, None)


def _next_data(batches: Iterator[pa.RecordBatch]) -> Framed | None:
    batch = next(batches, None)
    return None if batch is None else arrow_data(batch.serialize())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
