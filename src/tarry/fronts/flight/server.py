"""The Flight service: calls as operations.

It decides nothing; what the broker refuses reaches the client as it is.

Whatever a handler raises becomes a Flight error with a code: pyarrow would otherwise send the traceback.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from loopgrpc import ANSWER_BYTES, UnreadBytes
from tarry.api.consuming import Subscription
from tarry.api.local import LocalBroker
from tarry.api.operation import Action, Rows
from tarry.api.operations import Receive
from tarry.api.operations.jobs import StageJob
from tarry.api.parsing import from_json
from tarry.api.views import DELIVERY
from tarry.api.wire import SCHEDULE_PATH, STAGE, encode_error, encode_json
from tarry.base.errors import InvalidArgumentError, NotFoundError, TarryError, UnavailableError
from tarry.base.placement import Placement
from tarry.fronts.flight.calls import NAME as CALLS
from tarry.fronts.flight.calls import CallLimits, host_of
from tarry.fronts.flight.guard import ConnectionGuard
from tarry.fronts.flight.receiving import ConsumeStream
from tarry.fronts.flight.requests import (
    ACTIONS,
    CountedReader,
    action_request,
    batches_of,
    consume_command,
    put_command,
    shown,
    subscribe_request,
    ticket_request,
)
from tarry.fronts.flight.sending import PutStream
from tarry.fronts.kit.tls import TlsFiles
from tarry.fronts.kit.unread import check_room
from tarry.message.schema import UNNUMBERED

log = logging.getLogger(__name__)

LOOK_S = 0.25
"""Seconds between checks of a long poll that its client is still there."""

F = TypeVar("F", bound=Callable[..., Any])


def flight_error(error: BaseException) -> fl.FlightError:
    """``error`` as Flight sends it, with the code in ``extra_info``."""
    if isinstance(error, fl.FlightError):
        return error
    if not isinstance(error, TarryError):
        log.error("a call failed", exc_info=error)
        error = TarryError("internal error; see the broker's log")
    kind = fl.FlightUnavailableError if isinstance(error, UnavailableError) else fl.FlightServerError
    return kind(str(error), encode_error(error))


def _coded(handler: F) -> F:
    @functools.wraps(handler)
    def call(*args: Any) -> Any:
        try:
            service, context, *arguments = args
            service.on_call(context)
            return handler(service, context, *arguments)
        except Exception as error:  # noqa: BLE001  every error goes to the client, and bugs to the log
            raise flight_error(error) from None

    return call  # type: ignore[return-value]


class Service(fl.FlightServerBase):  # type: ignore[misc]
    """Serves from construction on; :class:`tarry.fronts.flight.FlightFront` starts and stops it."""

    def __init__(
        self,
        broker: LocalBroker,
        address: str,
        placement: Placement,
        guard: ConnectionGuard,
        calls: CallLimits,
        unread: UnreadBytes,
        tls: TlsFiles | None = None,
    ) -> None:
        self._broker = broker
        self._placement = placement
        self._lock = threading.Lock()
        self._streams: set[PutStream | ConsumeStream] = set()
        self._stopping: UnavailableError | None = None
        self._guard = guard
        self._unread = unread
        if tls is None:
            super().__init__(f"grpc://{address}", middleware={CALLS: calls})
        else:
            super().__init__(f"grpc+tls://{address}", middleware={CALLS: calls}, **_tls_options(tls))

    def on_call(self, context: fl.ServerCallContext) -> None:
        """Prepare a call whose handler is about to run.

        Raises:
            OverloadedError: its peer has too many calls open.
        """
        peer = context.peer()
        self._guard.on_message(peer)
        context.get_middleware(CALLS).claim(peer)

    def stop_streams(self) -> None:
        """Refuse new calls, and say goodbye on the streams."""
        error = UnavailableError("the broker is stopping; try again later")
        with self._lock:
            self._stopping = error
            streams = list(self._streams)
        for stream in streams:
            stream.stop(error)

    # -- streams -------------------------------------------------------------------------------------------------------

    @_coded
    def do_put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
    ) -> None:
        """Schedule batches, or stage them for a bulk job."""
        reader = CountedReader(reader, self._guard, context.peer())
        if descriptor.path == SCHEDULE_PATH:
            self._run(PutStream(self._broker, reader, writer, self._placement))
            return
        command = put_command(descriptor.command) if descriptor.path is None else None
        if not isinstance(command, dict) or command.pop("op", None) != STAGE:
            raise NotFoundError(f"DoPut of {shown(descriptor)}; allowed: the path ['schedule'], or the op {STAGE!r}")
        self._check_serving()
        self._stage(from_json(StageJob, command), reader, writer)

    def _stage(self, job: StageJob, reader: fl.MetadataRecordBatchReader, writer: fl.FlightMetadataWriter) -> None:
        """Write a stream of messages as files of a job's attempt; the answer has what its commit needs."""
        if reader.schema.names != UNNUMBERED.names:
            raise InvalidArgumentError(f"the columns are {reader.schema.names}; allowed: {UNNUMBERED.names}")
        files, topics = self._broker.stage_job(job.number, batches_of(reader))
        writer.write(pa.py_buffer(encode_json({"files": [asdict(file) for file in files], "topics": dict(topics)})))

    @_coded
    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        """Consume."""
        reader = CountedReader(reader, self._guard, context.peer())
        request = subscribe_request(consume_command(descriptor, reader))
        self._check_serving()
        subscription = self._broker.open_subscription(request)
        self._run(
            ConsumeStream(subscription, reader, writer, _now_ms, self._placement, self._unread, host_of(context.peer()))
        )

    def _run(self, stream: PutStream | ConsumeStream) -> None:
        with self._lock:
            self._streams.add(stream)
            stopping = self._stopping
        if stopping is not None:
            stream.stop(stopping)  # stop_streams may have missed it
        try:
            stream.run()
        finally:
            with self._lock:
                self._streams.discard(stream)

    # -- reading -------------------------------------------------------------------------------------------------------

    @_coded
    def do_get(self, context: fl.ServerCallContext, asked: fl.Ticket) -> fl.FlightDataStream:
        """Carry out an operation that is answered by rows."""
        request = ticket_request(asked.ticket)
        self._check_serving()
        peer = context.peer()
        check_room(self._unread, host_of(peer))
        if isinstance(request, Receive):
            return self._receive(context, request)
        rows = request.wire
        assert isinstance(rows, Rows)
        schema, batches = rows.encode(self._broker.call(request))
        return fl.GeneratorStream(schema, _coded_rows(self._sending(peer, batches)))

    def _receive(self, context: fl.ServerCallContext, request: Receive) -> fl.FlightDataStream:
        subscription = self._broker.open_subscription(request.subscription)
        end_s = time.monotonic() + request.wait_ms / 1000
        peer = context.peer()
        host = host_of(peer)
        while True:
            left_s = max(0.0, end_s - time.monotonic())
            batch = self._fetch(subscription, request.max_messages, min(left_s, LOOK_S), host)
            if batch is not None or left_s <= LOOK_S or context.is_cancelled() or self._stopping is not None:
                break
        if context.is_cancelled():
            subscription.close()
            batch = None
        return fl.GeneratorStream(DELIVERY, self._written(peer, batch, subscription))

    def _fetch(self, subscription: Subscription, rows_max: int, wait_s: float, host: str) -> pa.RecordBatch | None:
        """Fetch what there is, if there is room for it: other answers to that address may have come between."""
        if not self._unread.take(host, ANSWER_BYTES, wait_s):
            return None
        self._unread.add(host, -ANSWER_BYTES)
        return subscription.fetch(rows_max, wait_s)

    def _written(self, peer: str, batch: pa.RecordBatch | None, subscription: Subscription) -> Iterator[pa.RecordBatch]:
        """Yield the answer to a receive; dropped before its batch was taken, the messages go back at once."""
        was_read = batch is None or not batch.num_rows
        try:
            if not was_read:
                yield from self._sending(peer, [batch])
            was_read = True
        finally:
            if not was_read:
                subscription.close()

    def _sending(self, peer: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches, each unread until gRPC asks for the next; a connection that takes nothing is cut."""
        host = host_of(peer)
        for batch in batches:
            with self._unread.sending(host, batch.nbytes), self._guard.sending(peer):
                yield batch

    # -- actions -------------------------------------------------------------------------------------------------------

    @_coded
    def list_actions(self, context: fl.ServerCallContext) -> list[tuple[str, str]]:
        """Return the actions and their purposes."""
        return [(name, kind.wire.about) for name, kind in ACTIONS.items() if isinstance(kind.wire, Action)]

    @_coded
    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> list[fl.Result]:
        """Carry out one of :meth:`list_actions`; the result is one JSON value."""
        kind = ACTIONS.get(action.type)
        if kind is None:
            raise NotFoundError(f"no action {action.type!r}; allowed: {', '.join(ACTIONS)}")
        self._check_serving()
        wire = kind.wire
        assert isinstance(wire, Action)
        request = action_request(kind, memoryview(action.body) if action.body is not None else b"")
        result = wire.codec.encode(self._broker.call(request))
        return [fl.Result(pa.py_buffer(encode_json(result)))]

    def _check_serving(self) -> None:
        if self._stopping is not None:
            raise self._stopping

    # -- what there is not ---------------------------------------------------------------------------------------------

    def list_flights(self, context: fl.ServerCallContext, criteria: bytes) -> None:
        """Refused, as all calls about flights are: there are none."""
        raise UnimplementedError

    def get_flight_info(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> None:
        """Refused."""
        raise UnimplementedError

    def get_schema(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> None:
        """Refused."""
        raise UnimplementedError


def _tls_options(files: TlsFiles) -> dict[str, Any]:
    pair = Path(files.certificate).read_bytes(), Path(files.key).read_bytes()
    if files.client_ca is None:
        return {"tls_certificates": [pair]}
    roots = Path(files.client_ca).read_bytes()
    return {"tls_certificates": [pair], "verify_client": True, "root_certificates": roots}


class UnimplementedError(NotImplementedError):
    """A call of Flight that Tarry has no use for: the client gets UNIMPLEMENTED.

    pyarrow has no Flight error of that status; it makes one of this class's base, and adds a traceback to the text,
    unless reading the exception's cause fails while it formats one.
    """

    def __init__(self) -> None:
        super().__init__("Tarry has no flights; allowed: DoPut, DoExchange, DoGet, DoAction, ListActions")

    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise RuntimeError("a traceback is not for the client")


def _coded_rows(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    except Exception as error:  # noqa: BLE001  every error goes to the client, and bugs to the log
        raise flight_error(error) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
