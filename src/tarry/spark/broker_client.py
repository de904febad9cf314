"""Calls to a broker by the link, from the pipeline, the data source and the reports.

It is beside ``tarry.client`` and not on top of it: a Python worker of Spark that imports that client needs 0.1 s more
of CPU to start, and a job has many workers; and a job ends when the broker fails, where a client connects again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa

from tarry.api.jobs import Job, JobState, StagedFile
from tarry.api.operation import known
from tarry.api.operations.queues import CANCELLED_RANGE_MAX
from tarry.api.wire import decode_json, encode_json
from tarry.base.errors import CorruptError, OwnershipLostError
from tarry.link.blocking import BlockingLink
from tarry.link.frames import FrameKind
from tarry.link.places import BrokerPlaces
from tarry.link.ranges import read_range
from tarry.message.admission import MessageLimits
from tarry.message.columns import stream_bytes

CALL_TIMEOUT_S = 10.0
BULK_TIMEOUT_S = 60.0
COMMIT_TIMEOUT_S = 600.0
"""Seconds for a commit, which may have many files, and keys to register."""
READ_TIMEOUT_S = 600.0
"""Seconds for a part of a range; a broker that hangs must not hang the pipeline for ever."""
STAGE_TIMEOUT_S = 3600.0
"""Seconds until rows that were sent are in files, or the next can be sent."""
PART_BYTES = 2 << 20
"""Rows are sent in parts of about this many bytes.

The broker holds one of each task that is not whole.
"""


@dataclass(frozen=True, slots=True)
class IntakeState:
    """The broker's report on its intake.

    Seqs are exclusive ends, times UTC milliseconds of the broker's clock. Every message with ``due_ms <
    fired_until_ms`` and ``seq < fired_seq`` is durably in the ready log: the store does not need it. No file of the
    store that ends before ``expire_until_ms`` is needed any more, and no row of the bulk jobs ``cancelled_jobs``
    (``[number, due_ms, seq]``) from that place on. ``epoch``: the one of this owner of the broker's log, under which
    the store is committed to; None where it is not fenced, and of brokers of before there were epochs.
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
    epoch: int | None = None


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


class _LinkCalls:
    """Calls of one broker by the link. Any thread."""

    def __init__(self, address: str, token: str | None) -> None:
        places = BrokerPlaces.of(address, token=token)
        places.check()
        self._link = BlockingLink(places)
        self.address = places.text
        self.close = self._link.close

    def answer(self, name: str, body: dict[str, Any], timeout_s: float = CALL_TIMEOUT_S) -> Any:
        """Return an operation's answer as plain data."""
        return decode_json(bytes(self._ask({"op": name, **body}, timeout_s)))

    def rows(self, ticket: dict[str, Any]) -> pa.Table:
        """Return the rows for a ticket."""
        try:
            return pa.ipc.open_stream(pa.py_buffer(self._ask(ticket, READ_TIMEOUT_S))).read_all()
        except pa.ArrowException as error:
            raise CorruptError(f"the rows from the broker at {self.address} cannot be read: {error}") from error

    def range(self, goes_on_by: str, ticket: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Yield the rows for a ticket with ``start`` and ``end``, of which ``goes_on_by`` is the column."""
        return read_range(
            self.rows(ticket), lambda start: self.rows({**ticket, "start": start}), goes_on_by, ticket["end"]
        )

    def stage(self, number: int, batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
        """Send batches to be staged; return the one answer to all of them."""
        said = encode_json({"number": number})
        _, answer = self._link.ask(FrameKind.STAGE, said, parts=_parts(batches), timeout_s=STAGE_TIMEOUT_S)
        return dict(decode_json(bytes(answer)))

    def _ask(self, question: dict[str, Any], timeout_s: float) -> memoryview:
        return self._link.ask(FrameKind.CALL, encode_json(question), timeout_s=timeout_s)[1]


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield batches as Arrow streams of about :data:`PART_BYTES`, and the end."""
    for batch in batches:
        rows = max(1, PART_BYTES * batch.num_rows // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            yield stream_bytes(batch.schema, [batch.slice(start, rows)])
    yield b""


class BrokerClient:
    """Connections to one broker, made with the first call.

    ``address``: ``HOST:PORT``, ``unix:PATH`` or ``tls://HOST:PORT``.

    Any thread, of the process that made it.

    Every call raises what the broker reported (:mod:`tarry.base.errors`), or UnavailableError where it cannot be
    reached.
    """

    def __init__(self, address: str, token: str | None = None, *, epoch: int | None = None) -> None:
        """Take a broker's address, or a list; and the token to show, None: this process finds one by itself.

        ``epoch``: that of the owner for which the caller works. Another owner at this address is refused by
        :meth:`state`. None: whoever is there.
        """
        self._broker = _LinkCalls(address, token)
        self._epoch = epoch
        self.close = self._broker.close

    def __enter__(self) -> BrokerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the intake --------------------------------------------------------------------------------------------------

    def state(self) -> IntakeState:
        """Return the progress of the intake, the store and delivery.

        Raises:
            OwnershipLostError: it is of another epoch than the one that this client works for.
        """
        answer = {"epoch": None, **self._broker.answer("intake-state", {})}
        missing = [f.name for f in fields(IntakeState) if f.name not in answer]
        if missing:
            raise CorruptError(
                f"the intake state from {self._broker.address} lacks {missing[0]!r}; given: {sorted(answer)}"
            )
        state = IntakeState(**{f.name: answer[f.name] for f in fields(IntakeState)})
        if self._epoch not in (None, state.epoch):
            raise OwnershipLostError(
                f"the broker at {self._broker.address} is the owner of epoch {state.epoch}; this works for the one of "
                f"epoch {self._epoch}, which has ended, and does nothing more; start it again to work for the new owner"
            )
        return state

    def join(self) -> IntakeState:
        """Return the state, and work for this owner alone from now on.

        For drivers, which plan and commit under one epoch.

        Raises:
            OwnershipLostError: as :meth:`state`.
        """
        state = self.state()
        self._epoch = state.epoch
        return state

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages of ``[start, end)`` in seq order."""
        return self._broker.range("seq", {"op": "intake", "start": start, "end": end})

    def cancelled(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages that cancellations in ``[start, end)`` cancel: columns ``seq`` and ``due_ms``.

        The range is one of the intake.
        """
        for at in range(start, end, CANCELLED_RANGE_MAX):
            part = {"op": "cancelled", "start": at, "end": min(at + CANCELLED_RANGE_MAX, end)}
            yield from self._broker.rows(part).to_batches()

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
        answer = self._broker.stage(number, batches)
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
        return self._broker.range("offset", {"op": "queue", "topic": topic, "start": start, "end": end})

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
        return [batch for batch in self._broker.rows(ticket).to_batches() if batch.num_rows]
