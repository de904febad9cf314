"""The Flight service: which call goes where. It decides nothing; what the broker refuses reaches the client as it is.

Whatever a handler raises becomes a Flight error with a code: pyarrow would otherwise send the traceback.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from tarry import __version__
from tarry.api.views import DELIVERY
from tarry.api.wire import CONSUME_PATH, SCHEDULE_PATH, as_bytes, decode_json, encode_error, encode_json
from tarry.base.errors import InvalidArgumentError, NotFoundError, TarryError, UnavailableError
from tarry.base.message import SCHEMA
from tarry.fronts.flight.bulk import Bulk, StageJob
from tarry.fronts.flight.changes import Changes
from tarry.fronts.flight.commands import (
    Cancelled,
    Consume,
    DeadLetters,
    Extend,
    Intake,
    ListPending,
    Nack,
    Peek,
    Queue,
    Receive,
    Settling,
    parse,
    ticket,
)
from tarry.fronts.flight.consume import ConsumeStream
from tarry.fronts.flight.core import Core, Subscription, TopicPending
from tarry.fronts.flight.groups import Groups
from tarry.fronts.flight.looking import Looking
from tarry.fronts.flight.put import STREAM_ERRORS, PutStream
from tarry.fronts.flight.queues import Queues

log = logging.getLogger(__name__)

LOOK_S = 0.25
"""How often a long poll looks whether its client is still there."""

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
            return handler(*args)
        except Exception as error:  # noqa: BLE001  every error goes to the client, and bugs to the log
            raise flight_error(error) from None

    return call  # type: ignore[return-value]


class Service(fl.FlightServerBase):  # type: ignore[misc]
    """Serves from construction on; :class:`tarry.fronts.flight.FlightFront` starts and stops it."""

    def __init__(self, core: Core, location: str) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._streams: set[PutStream | ConsumeStream] = set()
        self._stopping: UnavailableError | None = None
        self._looking = Looking(core)
        self._bulk = Bulk(core)
        self._queues = Queues(core)
        self._actions: dict[str, tuple[str, Callable[[bytes], Any]]] = {
            "ack": ("settle messages for good", self._ack),
            "nack": ("give messages back, to come again", self._nack),
            "extend": ("hold messages for longer", self._extend),
            "pending": ("what is pending, by topic", lambda _: [_plain(t) for t in core.pending()]),
            "status": ("health and counters", lambda _: core.status()),
            "intake-state": ("what the schedule query plans with", lambda _: core.intake_state()),
            "store-committed": ("the store has a new version", self._store_committed),
            "pipeline-status": ("what the pipeline says of itself", self._pipeline_status),
            "ping": ("is the broker there?", lambda _: {"now_ms": _now_ms(), "version": __version__}),
            **Changes(core).actions(),
            **Groups(core).actions(),
            **self._looking.actions(),
            **self._bulk.actions(),
            **self._queues.actions(),
        }
        super().__init__(location)

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
        if descriptor.path is None and b'"bulk-stage"' in bytes(descriptor.command or b""):
            self._check_serving()
            self._bulk.stage(parse(StageJob, bytes(descriptor.command)), reader, writer)
            return
        if descriptor.path != SCHEDULE_PATH:
            raise NotFoundError(f"DoPut of {_shown(descriptor)}; allowed: the path ['schedule'], or a command")
        self._run(PutStream(self._core, reader, writer))

    @_coded
    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        """Consume."""
        command = parse(Consume, _command(descriptor, reader))
        self._check_serving()
        subscription = self._subscribe(command, command.prefetch)
        self._run(ConsumeStream(subscription, reader, writer, _now_ms))

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
        """Receive, read the intake, look at what is pending, ready, or dead."""
        command = ticket(asked.ticket)
        self._check_serving()
        if isinstance(command, DeadLetters):
            found = self._core.dead_letters(command.topic, command.group, limit=command.limit, after=command.after)
            return fl.RecordBatchStream(pa.Table.from_batches([found]))
        if isinstance(command, ListPending | Peek):
            return self._looking.stream(command)
        if isinstance(command, Intake):
            if command.start > command.end:
                raise InvalidArgumentError(f"start is {command.start}, end {command.end}; allowed: start up to end")
            return fl.GeneratorStream(SCHEMA, _coded_rows(self._core.read_intake(command.start, command.end)))
        if isinstance(command, Queue | Cancelled):
            schema, rows = self._queues.rows(command)
            return fl.GeneratorStream(schema, _coded_rows(rows))
        return self._receive(context, command)

    def _receive(self, context: fl.ServerCallContext, command: Receive) -> fl.FlightDataStream:
        if command.max_messages < 1:
            raise InvalidArgumentError(f"max_messages is {command.max_messages}; allowed: 1 or more")
        holder = self._subscribe(command, command.max_messages)
        end = time.monotonic() + command.wait_ms / 1000
        while True:
            left = max(0.0, end - time.monotonic())
            batch = holder.fetch(command.max_messages, min(left, LOOK_S))
            if batch is not None or left <= LOOK_S or context.is_cancelled() or self._stopping is not None:
                break
        if context.is_cancelled():
            holder.close()
            batch = None
        return fl.GeneratorStream(DELIVERY, _written(batch, holder))

    def _subscribe(self, command: Consume | Receive, prefetch: int) -> Subscription:
        return self._core.subscribe(
            command.topic,
            command.group,
            prefetch=prefetch,
            lease_ms=command.lease_ms,
            start=command.start,
            broadcast=command.broadcast,
        )

    # -- actions -------------------------------------------------------------------------------------------------------

    def list_actions(self, context: fl.ServerCallContext) -> list[tuple[str, str]]:
        """The actions and what they are for."""
        return [(name, text) for name, (text, _) in self._actions.items()]

    @_coded
    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> list[fl.Result]:
        """Carry out one of :meth:`list_actions`; the result is one JSON value."""
        if action.type not in self._actions:
            raise NotFoundError(f"no action {action.type!r}; allowed: {', '.join(self._actions)}")
        self._check_serving()
        result = self._actions[action.type][1](as_bytes(action.body))
        return [fl.Result(pa.py_buffer(encode_json(result)))]

    def _ack(self, body: bytes) -> dict[str, int]:
        command = parse(Settling, body)
        return {"settled": self._core.ack(command.topic, command.group, *command.pairs())}

    def _nack(self, body: bytes) -> dict[str, int]:
        command = parse(Nack, body)
        return {"settled": self._core.nack(command.topic, command.group, *command.pairs(), command.delay_ms)}

    def _extend(self, body: bytes) -> dict[str, int]:
        command = parse(Extend, body)
        return {"settled": self._core.extend(command.topic, command.group, *command.pairs(), command.lease_ms)}

    def _store_committed(self, _: bytes) -> dict[str, Any]:
        self._core.store_committed()
        return {}

    def _pipeline_status(self, body: bytes) -> dict[str, Any]:
        status = decode_json(body)
        if not isinstance(status, dict):
            raise InvalidArgumentError(f"a pipeline's status is {type(status).__name__}; allowed: a JSON object")
        self._core.set_pipeline_status(status)
        return {}

    def _check_serving(self) -> None:
        if self._stopping is not None:
            raise self._stopping


def _coded_rows(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    except Exception as error:  # noqa: BLE001  every error goes to the client, and bugs to the log
        raise flight_error(error) from None


def _written(batch: pa.RecordBatch | None, holder: Subscription) -> Iterator[pa.RecordBatch]:
    """The answer to a receive. Dropped before the batch was taken from it, the messages go back at once."""
    taken = batch is None or not batch.num_rows
    try:
        if not taken:
            yield batch
        taken = True
    finally:
        if not taken:
            holder.close()


def _command(descriptor: fl.FlightDescriptor, reader: fl.MetadataRecordBatchReader) -> bytes:
    if descriptor.path is None:
        return bytes(descriptor.command or b"")
    if descriptor.path != CONSUME_PATH:
        raise NotFoundError(f"DoExchange of {_shown(descriptor)}; allowed: the path ['consume'], or a command")
    try:
        return as_bytes(reader.read_chunk().app_metadata)
    except StopIteration:
        raise InvalidArgumentError(
            "the stream ended before its command, the app metadata of the first message"
        ) from None
    except STREAM_ERRORS as error:
        raise InvalidArgumentError(f"the command could not be read: {error}") from error


def _plain(topic: TopicPending) -> dict[str, Any]:
    if is_dataclass(topic) and not isinstance(topic, type):
        return asdict(topic)
    return {name: getattr(topic, name) for name in ("topic", "pending", "next_due_ms", "ready")}


def _shown(descriptor: fl.FlightDescriptor) -> str:
    return repr(
        descriptor.command if descriptor.path is None else [p.decode("utf-8", "replace") for p in descriptor.path]
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
