"""Calls to a broker over Arrow Flight, from the pipeline, the data source and the reports.

It is beside ``tarry.client`` and not on top of it: a Python worker of Spark that imports that client needs 0.1 s more
of CPU to start, and a job has many workers; and a job ends when the broker fails, where a client connects again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from tarry.api.jobs import Job, JobState, StagedFile
from tarry.api.operation import known
from tarry.base.errors import CorruptError, TarryError, UnavailableError, from_wire
from tarry.message.admission import MessageLimits
from tarry.message.schema import UNNUMBERED

CALL_TIMEOUT_S = 10.0
BULK_TIMEOUT_S = 60.0
COMMIT_TIMEOUT_S = 600.0
"""Seconds for a commit, which may have many files, and keys to register."""
READ_TIMEOUT_S = 3600.0
"""Seconds for all of one range; a broker that hangs must not hang the pipeline for ever."""
SEND_BYTES = 8 << 20
"""Rows are sent in batches of about this many bytes."""


@dataclass(frozen=True, slots=True)
class IntakeState:
    """The broker's report on its intake.

    Seqs are exclusive ends, times UTC milliseconds of the broker's clock. Every message with ``due_ms <
    fired_until_ms`` and ``seq < fired_seq`` is durably in the ready log: the store does not need it. No file of the
    store that ends before ``expire_until_ms`` is needed any more, and no row of the bulk jobs ``cancelled_jobs``
    (``[number, due_ms, seq]``) from that place on.
    """

    first_seq: int
    durable_seq: int
    committed_seq: int
    waiting_bytes: int
    oldest_ms: int | None
    fired_until_ms: int
    fired_seq: int
    expire_until_ms: int
    cancelled_jobs: list[list[int]]
    now_ms: int
    shard: int
    store_uri: str
    table_id: str


@dataclass(frozen=True, slots=True)
class BulkAttempt:
    """An attempt of a bulk job, as ``bulk-begin`` answers; ``number`` is the attempt's.

    If ``state`` is not "open", there is nothing to do, and ``rows`` and ``topics`` are those that were committed.
    """

    job: str
    state: str
    number: int
    store_uri: str
    table_id: str
    shard: int
    now_ms: int
    limits: MessageLimits
    rows: int
    topics: dict[str, int]


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows that are staged and not committed.

    The files, the number of rows of each topic in them, and the number of rows with a key (None: not counted).
    """

    files: tuple[StagedFile, ...]
    topics: dict[str, int]
    keys: int | None = 0


class _FlightCalls:
    """Calls of one broker. Its reported errors are raised as Tarry's."""

    def __init__(self, address: str) -> None:
        self.address = address
        with self._errors():
            self._flight = flight.FlightClient(f"grpc://{address}")
        self.close = self._flight.close

    def answer(self, name: str, body: dict[str, Any], timeout_s: float = CALL_TIMEOUT_S) -> Any:
        """Return an action's answer as plain data."""
        action = flight.Action(name, json.dumps(body).encode())
        with self._errors():
            results = list(self._flight.do_action(action, flight.FlightCallOptions(timeout=timeout_s)))
        return json.loads(results[0].body.to_pybytes() or b"{}") if results else {}

    def stream(self, ticket: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Yield the batches for a ticket."""
        options = flight.FlightCallOptions(timeout=READ_TIMEOUT_S)
        with self._errors():
            for chunk in self._flight.do_get(flight.Ticket(json.dumps(ticket).encode()), options):
                if chunk.data is not None:
                    yield chunk.data

    def put(self, command: dict[str, Any], schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
        """Send batches; return the one answer to all of them."""
        with self._errors():
            options = flight.FlightCallOptions(timeout=READ_TIMEOUT_S)
            descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
            writer, answers = self._flight.do_put(descriptor, schema, options=options)
            with writer:
                for batch in batches:
                    rows = max(1, SEND_BYTES * batch.num_rows // max(batch.nbytes, 1))
                    for start in range(0, batch.num_rows, rows):
                        writer.write_batch(batch.slice(start, rows))
                writer.done_writing()
                raw = answers.read()
        if raw is None:
            raise CorruptError(f"the broker at {self.address} took rows and did not answer")
        return dict(json.loads(raw.to_pybytes()))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except flight.FlightError as error:
            raise self._translated(error) from error
        except pa.ArrowException as error:
            raise self._unreachable(error) from error

    def _translated(self, error: flight.FlightError) -> TarryError:
        try:
            reported = json.loads(error.extra_info)
            return from_wire(reported["code"], reported["message"])
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        if isinstance(error, (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError)):
            return self._unreachable(error)
        return TarryError(f"the broker at {self.address} failed: {_first_line(error)}")

    def _unreachable(self, error: BaseException) -> UnavailableError:
        return UnavailableError(f"the broker at {self.address} cannot be reached: {_first_line(error)}")


class BrokerClient:
    """A connection to a broker at ``HOST:PORT``, made with the first call.

    Use it in the process that made it.

    Every call raises what the broker reported (:mod:`tarry.base.errors`), or UnavailableError where it cannot be
    reached.
    """

    def __init__(self, address: str) -> None:
        self._broker = _FlightCalls(address)
        self.close = self._broker.close

    def __enter__(self) -> BrokerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the intake --------------------------------------------------------------------------------------------------

    def state(self) -> IntakeState:
        """Return the progress of the intake, the store and delivery."""
        answer = self._broker.answer("intake-state", {})
        missing = [f.name for f in fields(IntakeState) if f.name not in answer]
        if missing:
            raise CorruptError(
                f"the intake state from {self._broker.address} lacks {missing[0]!r}; given: {sorted(answer)}"
            )
        return IntakeState(**{f.name: answer[f.name] for f in fields(IntakeState)})

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages of ``[start, end)`` in seq order."""
        return self._broker.stream({"op": "intake", "start": start, "end": end})

    def cancelled(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages that cancellations in ``[start, end)`` cancel: columns ``seq`` and ``due_ms``.

        The range is one of the intake.
        """
        return self._broker.stream({"op": "cancelled", "start": start, "end": end})

    def store_committed(self) -> None:
        """Notify the broker that the store has a new version, durably."""
        self._broker.answer("store-committed", {})

    def report(self, status: dict[str, Any]) -> None:
        """Send the status of a job of the pipeline, which the broker shows."""
        self._broker.answer("pipeline-status", status)

    # -- bulk jobs ---------------------------------------------------------------------------------------------------

    def begin(self, job: str, attempt: str | None = None) -> BulkAttempt:
        """Begin a new attempt of ``job``.

        All callers that give the same ``attempt`` get the same one.
        """
        body = {"job": job} if attempt is None else {"job": job, "attempt": attempt}
        answer = self._broker.answer("bulk-begin", body, BULK_TIMEOUT_S)
        allowed = {field.name for field in fields(MessageLimits)}
        limits = {name: value for name, value in answer.get("limits", {}).items() if name in allowed}
        if "levels" in limits:
            limits["levels"] = tuple(limits["levels"])
        names = ("state", "number", "store_uri", "table_id", "shard", "now_ms", "rows", "topics")
        return BulkAttempt(job=job, limits=MessageLimits(**limits), **{name: answer[name] for name in names})

    def job(self, job: str) -> Job | None:
        """Return the last attempt of a job; None if there was none."""
        found = self._broker.answer("bulk-jobs", {"job": job}, BULK_TIMEOUT_S)["jobs"]
        return known(Job, found[0], state=JobState(found[0]["state"])) if found else None

    def reserve(self, number: int, rows: int) -> int:
        """Reserve ``rows`` seqs for the caller; return the first of them."""
        return int(self._broker.answer("bulk-reserve", {"number": number, "rows": rows}, BULK_TIMEOUT_S)["first_seq"])

    def commit(self, number: int, staged: Staged) -> int:
        """Publish the staged rows; return the number of the job's rows. It may be repeated."""
        files = [asdict(file) for file in staged.files]
        body = {"number": number, "files": files, "topics": staged.topics, "keys": staged.keys}
        return int(self._broker.answer("bulk-commit", body, COMMIT_TIMEOUT_S)["rows"])

    def abort(self, number: int) -> None:
        """Give an attempt up; the broker deletes its files."""
        self._broker.answer("bulk-abort", {"number": number}, BULK_TIMEOUT_S)

    def send(self, number: int, batches: Iterable[pa.RecordBatch]) -> Staged:
        """Send rows (:data:`tarry.message.schema.UNNUMBERED`), which the broker stages."""
        answer = self._broker.put({"op": "bulk-stage", "number": number}, UNNUMBERED, batches)
        return Staged(tuple(known(StagedFile, file) for file in answer["files"]), dict(answer["topics"]), None)

    # -- queues ------------------------------------------------------------------------------------------------------

    def queues(self, topics: list[str] | None = None) -> dict[str, tuple[int, int]]:
        """Return each topic's first kept offset and the end of its queue.

        Everything below the end is durable.
        """
        answer = self._broker.answer("queue-state", {} if topics is None else {"topics": topics}, COMMIT_TIMEOUT_S)
        return {name: (at["first"], at["end"]) for name, at in answer["topics"].items()}

    def queue(self, topic: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages of ``[start, end)`` that are kept, with their offsets."""
        return self._broker.stream({"op": "queue", "topic": topic, "start": start, "end": end})

    def follow(self, topic: str, group: str, start: str | None = None) -> int:
        """Return a group's offset.

        The group is created if it is new, and moved if ``start`` is given.
        """
        body = {"topic": topic, "group": group, "start": start}
        return int(self._broker.answer("queue-follow", body, BULK_TIMEOUT_S)["offset"])

    def advance(self, topic: str, group: str, offset: int) -> int:
        """Settle all messages below ``offset`` for the group, durably; return its offset afterwards."""
        body = {"topic": topic, "group": group, "offset": offset}
        return int(self._broker.answer("queue-advance", body, BULK_TIMEOUT_S)["offset"])

    def groups(self) -> list[dict[str, Any]]:
        """Return all groups."""
        return list(self._broker.answer("groups", {}, BULK_TIMEOUT_S))

    def dead_letters(self, topic: str, group: str, limit: int, after: int | None) -> list[pa.RecordBatch]:
        """Return a page of dead letters; empty after the last one."""
        ticket = {"op": "dead-letters", "topic": topic, "group": group, "limit": limit, "after": after}
        return [batch for batch in self._broker.stream(ticket) if batch.num_rows]


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
