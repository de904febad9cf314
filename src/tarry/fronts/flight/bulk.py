"""Bulk jobs on the wire: what Spark's driver and its tasks call, and what cancels a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.flight as fl
from pydantic import Field

from tarry.api.jobs import Job, StagedFile
from tarry.api.wire import encode_json
from tarry.base.errors import InvalidArgumentError
from tarry.base.message import UNNUMBERED
from tarry.fronts.flight.commands import Command, Int64, Natural, parse
from tarry.fronts.flight.core import Core
from tarry.fronts.flight.put import STREAM_ERRORS


class BeginJob(Command):
    """By name."""

    job: str


class BeginAttempt(BeginJob):
    """Of a job; those who say the same ``attempt`` share one."""

    attempt: str | None = None


class Reserve(Command):
    """Seqs for so many rows."""

    number: Natural
    rows: Natural


class File(Command):
    """A staged file, as :class:`tarry.store.StagedFile` has it."""

    path: str
    shard: Natural
    bucket: str
    rows: Natural
    size: Natural
    due_min_ms: Int64
    due_max_ms: Int64
    seq_min: Int64
    seq_max: Int64
    topic_min: str
    topic_max: str


class CommitJob(Command):
    """All of an attempt."""

    number: Natural
    files: list[File]
    topics: dict[str, Natural]
    keys: Natural | None = None


class Attempt(Command):
    """By number."""

    number: Natural


class ListJobs(Command):
    """One, or the last."""

    job: str | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 100


class StageJob(Command):
    """DoPut."""

    op: Literal["bulk-stage"]
    number: Natural


class Bulk:
    """For one broker."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def actions(self) -> dict[str, tuple[str, Callable[[bytes], Any]]]:
        """What each is for, and what carries it out."""
        return {
            "bulk-begin": ("begin an attempt of a bulk job", self._begin),
            "bulk-reserve": ("seqs for messages of an attempt", self._reserve),
            "bulk-commit": ("publish all of an attempt at once", self._commit),
            "bulk-abort": ("give an attempt up", self._abort),
            "bulk-cancel": ("cancel all that is pending of a job", self._cancel),
            "bulk-jobs": ("what is known of jobs", self._jobs),
        }

    def stage(self, command: StageJob, reader: fl.MetadataRecordBatchReader, writer: fl.FlightMetadataWriter) -> None:
        """Write a stream of messages as files of an attempt, and answer with what :meth:`_commit` needs of them."""
        if reader.schema.names != UNNUMBERED.names:
            raise InvalidArgumentError(f"the columns are {reader.schema.names}; allowed: {UNNUMBERED.names}")
        files, topics = self._core.bulk.stage(command.number, _batches(reader))
        writer.write(pa.py_buffer(encode_json({"files": [asdict(file) for file in files], "topics": dict(topics)})))

    def _begin(self, body: bytes) -> dict[str, Any]:
        command = parse(BeginAttempt, body)
        found, state = self._core.bulk.begin(command.job, command.attempt), self._core.intake_state()
        about = {name: state[name] for name in ("store_uri", "shard", "now_ms")}
        return {**plain_job(found), **about, "limits": asdict(self._core.bulk.limits)}

    def _reserve(self, body: bytes) -> dict[str, Any]:
        command = parse(Reserve, body)
        return {"first_seq": self._core.bulk.reserve(command.number, command.rows)}

    def _commit(self, body: bytes) -> dict[str, Any]:
        command = parse(CommitJob, body)
        files = [StagedFile(**file.model_dump()) for file in command.files]
        job, version = self._core.bulk.commit(command.number, files, command.topics, command.keys)
        return {**plain_job(job), "version": version}

    def _abort(self, body: bytes) -> dict[str, Any]:
        self._core.bulk.abort(parse(Attempt, body).number)
        return {}

    def _cancel(self, body: bytes) -> dict[str, Any]:
        return asdict(self._core.cancel_job(parse(BeginJob, body).job))

    def _jobs(self, body: bytes) -> dict[str, Any]:
        command = parse(ListJobs, body)
        return {"jobs": [plain_job(job) for job in self._core.jobs(command.job, limit=command.limit)]}


def plain_job(job: Job) -> dict[str, Any]:
    """A job as JSON."""
    return asdict(job)


def _batches(reader: fl.MetadataRecordBatchReader) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return
        except STREAM_ERRORS as error:
            raise InvalidArgumentError(f"the stream could not be read: {error}") from error
        if chunk.data is not None and chunk.data.num_rows:
            yield chunk.data
