"""The methods of Flight: calls as operations.

It decides nothing; what the broker refuses reaches the client as it is. What may wait for the disk runs in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pyarrow as pa

from loopgrpc import Bidi, Call, Framed, GrpcError, Handler, ServerStream, StatusCode, UnreadBytes, framed
from tarry.api.consuming import Subscription
from tarry.api.local import LocalBroker
from tarry.api.operation import Action, Operation, Rows
from tarry.api.operations import Receive
from tarry.api.operations.jobs import StageJob, check_staged_columns, staged_json
from tarry.api.parsing import from_json
from tarry.api.row_schemas import DELIVERY
from tarry.api.wire import SCHEDULE_PATH, STAGE, encode_json
from tarry.base.arrow_feed import BatchReader
from tarry.base.errors import InvalidArgumentError, NotFoundError, TarryError, UnavailableError
from tarry.base.event_loop import iterate
from tarry.fronts.flight.messages import RESULT, FlightData, arrow_data, field, read_data, read_pair
from tarry.fronts.flight.requests import ACTIONS, action_request, put_command, ticket_request
from tarry.fronts.flight.sending import PutStream
from tarry.fronts.kit.callers import Callers
from tarry.fronts.kit.groups import ReceiveQueues
from tarry.fronts.kit.last_look import holds_back
from tarry.fronts.kit.peer_proof import certificate_of
from tarry.fronts.kit.receiving import CROWDED_S, FILTERING_S, WAIT_S_MAX, poll_now, receive_within
from tarry.fronts.kit.unread import Room, check_room
from tarry.identity.principal import Principal
from tarry.identity.seen import SeenBroker

NAME = "arrow.flight.protocol.FlightService"
FIRST_S = 10.0
"""Seconds that a stream may be open without a message: its client says at once what it wants."""
_NOT_HERE = (
    "Tarry has neither flights nor DoExchange; allowed: DoPut, DoGet (op 'receive' for messages), DoAction, ListActions"
)

Messages = AsyncIterator[bytes]


class Service:
    """The service of one broker; ``staging`` has the threads of bulk jobs' streams. On the loop's thread."""

    def __init__(self, broker: LocalBroker, pool: Executor, staging: Executor, unread: UnreadBytes) -> None:
        self._broker, self._pool, self._staging, self._unread = broker, pool, staging, unread
        self._loop = asyncio.get_running_loop()
        self._callers = Callers(broker, self._loop, "flight")
        self._queues = ReceiveQueues(self._loop)
        self._streams: set[PutStream] = set()
        self._stopping: UnavailableError | None = None

    def handlers(self) -> dict[str, Handler]:
        """Return the methods by their paths."""
        methods: dict[str, Handler] = {
            "DoPut": Bidi(self._put),
            "DoGet": ServerStream(self._get),
            "DoAction": ServerStream(self._act),
            "ListActions": ServerStream(self._list_actions),
            **dict.fromkeys(("ListFlights", "GetFlightInfo", "GetSchema", "PollFlightInfo"), ServerStream(_refuse)),
            "DoExchange": Bidi(_refuse),
        }
        return {f"/{NAME}/{name}": method for name, method in methods.items()}

    def stop(self) -> None:
        """Refuse new calls, say goodbye on the streams, and end receives that wait."""
        self._stopping = UnavailableError("the broker is stopping; try again later")
        self._callers.close()
        self._queues.close()
        for stream in self._streams:
            stream.stop(self._stopping)

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        return await self._loop.run_in_executor(self._pool, function, *args)

    def _check_serving(self) -> None:
        if self._stopping is not None:
            raise self._stopping

    def _seen(self, call: Call) -> SeenBroker:
        """Return the broker as the caller sees it, before anything else of the call is read.

        Raises:
            UnauthenticatedError: the caller has to say who it is, and does not.
        """
        shown = call.metadata.get("authorization")
        authenticator = self._callers.authenticator
        if not shown:
            principal = authenticator.by_token(None, certificate_of(call.principal), peer=call.host)
        else:
            kind, _, token = shown.partition(" ")
            # Another kind is none that is taken here, and no reason to look at the certificate.
            principal = authenticator.by_token(token.strip() if kind.lower() == "bearer" else "", peer=call.host)
        return SeenBroker(self._broker, principal, principal.asks(call.host))

    def trusts(self, call: Call) -> bool:
        """Return whether a call shows who it is of, or need not."""
        try:
            return self._seen(call) is not None
        except TarryError:
            return False

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _put(self, messages: Messages, call: Call) -> bytes | Messages:
        """Schedule batches, or stage them for a bulk job."""
        broker = self._seen(call)
        first = await _first_of(messages)
        if first.path == SCHEDULE_PATH:
            return self._open_stream(broker, call).answers(first, messages)
        command = put_command(first.command) if first.path is None else None
        if not isinstance(command, dict) or command.pop("op", None) != STAGE:
            raise NotFoundError(f"DoPut of {first.asked}; allowed: the path ['schedule'], or the op {STAGE!r}")
        self._check_serving()
        job = from_json(StageJob, command)
        batches = self._staged(first, iterate(self._loop, messages), call)
        files, topics = await self._loop.run_in_executor(self._staging, broker.stage_job, job.number, batches)
        return field(RESULT, encode_json(staged_json(files, topics)))

    def _staged(self, first: FlightData, messages: Iterator[bytes], call: Call) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a stream that have rows. In a thread."""
        reader = BatchReader()
        for data in chain((first,), map(read_data, messages)):
            batch = reader.read(data.header, data.body) if data.header else None
            check_staged_columns(reader.names)
            if batch is not None and batch.num_rows:
                yield batch
        if call.cancelled:
            raise InvalidArgumentError("the stream could not be read: its client has left")

    def _open_stream(self, broker: SeenBroker, call: Call) -> PutStream:
        stream = PutStream(broker, self._run)
        self._streams.add(stream)
        self._callers.add(stream, broker.principal, stream.stop, counts=True)
        call.on_done(lambda _: self._forget(stream))
        if self._stopping is not None:
            stream.stop(self._stopping)
        return stream

    def _forget(self, stream: PutStream) -> None:
        self._streams.discard(stream)
        self._callers.remove(stream)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _get(self, asked: bytes, call: Call) -> Messages:
        """Carry out an operation that is answered by rows."""
        broker = self._seen(call)
        request = ticket_request(read_pair(asked)[0])
        self._check_serving()
        check_room(self._unread, call.host)
        if isinstance(request, Receive):
            return self._receive(broker, request, call.host)
        schema, batches = await self._run(self._begin, broker, request, call.host)
        return self._rows(broker.principal, schema, batches, call.host)

    def _begin(
        self, broker: SeenBroker, request: Operation[Any], host: str
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Carry out an operation. In a thread."""
        check_room(self._unread, host)  # other answers may have come between
        rows = request.wire
        assert isinstance(rows, Rows)
        schema, batches = rows.encode(broker.call(request))
        return schema, iter(batches)

    async def _rows(
        self, principal: Principal, schema: pa.Schema, batches: Iterator[pa.RecordBatch], host: str
    ) -> Messages:
        """Yield batches, each made when the last has left and there is room."""
        with self._refused(principal) as refused:
            yield arrow_data(schema.serialize(), has_body=False)
            while (message := await self._run(_next_data, batches)) is not None:
                _check(refused)
                yield message
                while self._unread.refusal(host) is not None:
                    await asyncio.sleep(CROWDED_S)
                    _check(refused)

    @contextmanager
    def _refused(self, principal: Principal, *, counts: bool = False) -> Iterator[asyncio.Future[TarryError]]:
        """Note whose an answer under way is; the future is done once its caller is not known any more.

        ``counts``: as one of its identity's connections.

        Raises:
            QuotaExceededError: these are too many.
        """
        refused: asyncio.Future[TarryError] = self._loop.create_future()

        def refuse(error: TarryError) -> None:
            if not refused.done():  # each look at the callers tells it again
                refused.set_result(error)

        self._callers.add(refused, principal, refuse, counts=counts)
        try:
            yield refused
        finally:
            self._callers.remove(refused)

    async def _receive(self, broker: SeenBroker, request: Receive, host: str) -> Messages:
        """Answer a long poll; dropped before its batch was taken, the messages go back at once."""
        wait_s = min(request.wait_ms / 1000, WAIT_S_MAX)
        with self._refused(broker.principal, counts=bool(wait_s)) as refused:
            subscription = await self._run(broker.open_subscription, request.subscription)
            room, is_taken = Room(self._unread, host), False
            try:
                yield arrow_data(DELIVERY.serialize(), has_body=False)
                room.check()  # other answers may have come between
                batch = await self._batch(subscription, request.max_messages, wait_s, room, refused)
                _check(refused)  # what it was handed in that moment goes back
                room.release()  # whoever sends it counts it from here
                if batch is not None:
                    encoded = arrow_data(batch.serialize())
                    if not holds_back(subscription.group, batch):
                        yield encoded
                is_taken = True
            finally:
                room.release()
                if not is_taken:
                    subscription.close()

    async def _batch(
        self, subscription: Subscription, rows_max: int, wait_s: float, room: Room, refused: asyncio.Future[TarryError]
    ) -> pa.RecordBatch | None:
        """Return messages; None: none came within ``wait_s`` seconds, or until the caller was ``refused``."""
        batch = await poll_now(self._loop, subscription, rows_max, FILTERING_S, waits_later=wait_s > 0)
        if batch is None and wait_s and self._stopping is None:
            queue = self._queues.of(subscription.group)
            batch = await receive_within(queue, subscription, rows_max, wait_s, room, refused)
        return batch

    # -- actions -------------------------------------------------------------------------------------------------------

    async def _act(self, asked: bytes, call: Call) -> bytes:
        """Carry out one of :meth:`_list_actions`; the result is one JSON value."""
        broker = self._seen(call)
        name, body = read_pair(asked)
        kind = ACTIONS.get(name.decode(errors="replace"))
        if kind is None:
            raise NotFoundError(f"no action {name.decode(errors='replace')!r}; allowed: {', '.join(ACTIONS)}")
        self._check_serving()
        wire = kind.wire
        assert isinstance(wire, Action)
        result = await self._run(lambda: wire.codec.encode(broker.call(action_request(kind, body))))
        return field(RESULT, encode_json(result))

    async def _list_actions(self, asked: bytes, call: Call) -> bytes:
        """Return the actions and their purposes."""
        self._seen(call)
        wires = {name: kind.wire for name, kind in ACTIONS.items() if isinstance(kind.wire, Action)}
        return framed(field(1, name.encode()) + field(2, wire.about.encode()) for name, wire in wires.items())


async def _refuse(asked: bytes | Messages, call: Call) -> bytes:
    raise GrpcError(StatusCode.UNIMPLEMENTED, _NOT_HERE)


async def _first_of(messages: Messages) -> FlightData:
    """Return a stream's first message, which has to come soon."""
    try:
        async with asyncio.timeout(FIRST_S):
            return read_data(await anext(messages))
    except StopAsyncIteration:
        raise InvalidArgumentError("the stream ended before its client had said what it wants") from None
    except TimeoutError:
        raise InvalidArgumentError(f"the stream has said nothing for {FIRST_S:g} s") from None


def _check(refused: asyncio.Future[TarryError]) -> None:
    if refused.done():
        raise refused.result()


def _next_data(batches: Iterator[pa.RecordBatch]) -> Framed | None:
    batch = next(batches, None)
    return None if batch is None else arrow_data(batch.serialize())
