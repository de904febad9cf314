"""The calls that Spark's side makes on a broker, over Arrow Flight."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from tarry.api.admission import Limits
from tarry.api.jobs import StagedFile
from tarry.base.errors import CorruptError
from tarry.base.message import UNNUMBERED
from tarry.spark.pipeline.intake_client import READ_TIMEOUT_S, IntakeClient

COMMIT_TIMEOUT_S = 600.0
"""A commit may have many files, and keys to register."""
SEND_BYTES = 8 << 20
"""Rows are sent in batches of about so many bytes."""


@dataclass(frozen=True, slots=True)
class Job:
    """An attempt of a bulk job, as ``bulk-begin`` answers. Where ``state`` is not "open", there is nothing to do."""

    job: str
    state: str
    number: int
    store_uri: str
    shard: int
    now_ms: int
    limits: Limits
    rows: int


@dataclass(frozen=True, slots=True)
class Staged:
    """What is staged and not committed: files, how many rows of each topic are in them, and how many rows have a key
    (None: not known).
    """

    files: tuple[StagedFile, ...]
    topics: dict[str, int]
    keys: int | None = 0


class BrokerClient(IntakeClient):
    """A connection to a broker at ``HOST:PORT``, used in the process that made it; errors as those of IntakeClient."""

    def __enter__(self) -> BrokerClient:
        return self

    # -- bulk --------------------------------------------------------------------------------------------------------

    def begin(self, job: str, attempt: str | None = None) -> Job:
        """A new attempt of ``job``. With ``attempt``, all who say the same are given the same one."""
        told = self._call("bulk-begin", {"job": job} if attempt is None else {"job": job, "attempt": attempt})
        known = {field.name for field in fields(Limits)}
        limits = {name: value for name, value in told.get("limits", {}).items() if name in known}
        if "levels" in limits:
            limits["levels"] = tuple(limits["levels"])
        return Job(
            job,
            told["state"],
            told["number"],
            told["store_uri"],
            told["shard"],
            told["now_ms"],
            Limits(**limits),
            told.get("rows", 0),
        )

    def reserve(self, number: int, rows: int) -> int:
        """The first of ``rows`` seqs for the caller alone."""
        return int(self._call("bulk-reserve", {"number": number, "rows": rows})["first_seq"])

    def commit(self, number: int, staged: Staged) -> int:
        """Publish; how many rows the job has. To repeat it does no harm."""
        files = [asdict(file) for file in staged.files]
        body = {"number": number, "files": files, "topics": staged.topics, "keys": staged.keys}
        return int(self._call("bulk-commit", body, COMMIT_TIMEOUT_S)["rows"])

    def abort(self, number: int) -> None:
        """Give the attempt up; its files go."""
        self._call("bulk-abort", {"number": number})

    def send(self, number: int, batches: Iterable[pa.RecordBatch]) -> Staged:
        """Have the broker stage these (:data:`tarry.base.message.UNNUMBERED`)."""
        command = json.dumps({"op": "bulk-stage", "number": number}).encode()
        with self._errors():
            options = flight.FlightCallOptions(timeout=READ_TIMEOUT_S)
            writer, answers = self._flight.do_put(
                flight.FlightDescriptor.for_command(command), UNNUMBERED, options=options
            )
            with writer:
                for batch in batches:
                    rows = max(1, SEND_BYTES * batch.num_rows // max(batch.nbytes, 1))
                    for start in range(0, batch.num_rows, rows):
                        writer.write_batch(batch.slice(start, rows))
                writer.done_writing()
                answer = answers.read()
        if answer is None:
            raise CorruptError(f"the broker at {self._address} staged rows and did not say where")
        told = json.loads(answer.to_pybytes())
        return Staged(tuple(StagedFile(**file) for file in told["files"]), dict(told["topics"]), None)

    # -- reading -----------------------------------------------------------------------------------------------------

    def intake_state(self) -> dict[str, Any]:
        """The state of the intake with all that the broker tells, also what the pipeline does not need."""
        return self._call("intake-state", {})

    def cancelled(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """What the cancellations of ``[start, end)`` of the intake name: ``seq`` and ``due_ms``."""
        yield from self._get({"op": "cancelled", "start": start, "end": end})

    def queues(self, topics: list[str] | None = None) -> dict[str, tuple[int, int]]:
        """The first offset kept and the end of each topic's queue; what is below the end is durable."""
        told = self._call("queue-state", {} if topics is None else {"topics": topics}, COMMIT_TIMEOUT_S)
        return {name: (at["first"], at["end"]) for name, at in told["topics"].items()}

    def queue(self, topic: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The messages of ``[start, end)`` that are kept, with their offsets."""
        yield from self._get({"op": "queue", "topic": topic, "start": start, "end": end})

    def follow(self, topic: str, group: str, start: str | None = None) -> int:
        """Where the group stands; it is made when it is new, and moved when ``start`` says where to."""
        return int(self._call("queue-follow", {"topic": topic, "group": group, "start": start})["offset"])

    def advance(self, topic: str, group: str, offset: int) -> int:
        """All below ``offset`` is settled for the group, durably; where it stands then."""
        return int(self._call("queue-advance", {"topic": topic, "group": group, "offset": offset})["offset"])

    def groups(self) -> list[dict[str, Any]]:
        """All groups."""
        return list(self._answer("groups", {}))

    def dead_letters(self, topic: str, group: str, limit: int, after: int | None) -> list[pa.RecordBatch]:
        """A page of dead letters; an empty list: there are no more."""
        ask = {"op": "dead-letters", "topic": topic, "group": group, "limit": limit, "after": after}
        return [batch for batch in self._get(ask) if batch.num_rows]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _get(self, ask: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        ticket = flight.Ticket(json.dumps(ask).encode())
        with self._errors():
            for chunk in self._flight.do_get(ticket, flight.FlightCallOptions(timeout=READ_TIMEOUT_S)):
                if chunk.data is not None:
                    yield chunk.data

    def _call(self, name: str, body: dict[str, Any], timeout_s: float = 60.0) -> dict[str, Any]:
        return dict(self._answer(name, body, timeout_s))

    def _answer(self, name: str, body: dict[str, Any], timeout_s: float = 60.0) -> Any:
        action = flight.Action(name, json.dumps(body).encode())
        with self._errors():
            results = list(self._flight.do_action(action, flight.FlightCallOptions(timeout=timeout_s)))
        return json.loads(results[0].body.to_pybytes() or b"{}") if results else {}
