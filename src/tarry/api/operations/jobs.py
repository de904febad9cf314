"""Bulk jobs: messages that go straight into the store, all of a job in one commit.

A job can be cancelled as a whole.

Users list and cancel jobs; loaders (Spark, above all) begin an attempt, reserve seqs, stage files, and commit or abort.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from annotated_types import Ge, Le
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from tarry.api.jobs import Job, JobCancelled, JobState, StagedFile
from tarry.api.needs import OnBroker, Right
from tarry.api.operation import (
    NOTHING,
    PLAIN,
    Action,
    Codec,
    Form,
    Int64,
    Natural,
    Operation,
    Request,
    known,
    many,
    named,
    row_schema,
)
from tarry.api.outcome import Outcome
from tarry.base.errors import InvalidArgumentError

JOB: Codec[Job] = Codec(
    asdict,
    lambda answer: known(Job, answer, state=JobState(answer["state"])),
)


@dataclass(frozen=True, slots=True)
class ListJobs(Operation[list[Job]]):
    """A bulk job, or those that were begun last, the newest first."""

    wire = Action(
        "bulk-jobs",
        "what is known of jobs",
        Codec(
            lambda jobs: {"jobs": many(JOB).encode(list(jobs))},
            lambda answer: many(JOB).decode(answer["jobs"]),
            "jobs",
        ),
    )
    needs = OnBroker(Right.BULK)
    job: str | None = None
    limit: Annotated[int, Ge(1), Le(10_000)] = 100


@dataclass(frozen=True, slots=True)
class CancelJob(Operation[JobCancelled]):
    """Cancel all that is pending of a bulk job, durably; one that has not committed never will.

    Returns:
        "done" with the number of messages that no consumer will get; "delivered" where none was pending any more;
        "cancelled" where it had been; "unknown".

    Raises:
        UnavailableError, OverloadedError, DiskFullError: not now; nothing was cancelled.
    """

    wire = Action(
        "bulk-cancel",
        "cancel all that is pending of a job",
        Codec(
            asdict,
            lambda answer: JobCancelled(Outcome(answer["outcome"]), int(answer["cancelled"]), int(answer["rows"])),
        ),
    )
    needs = OnBroker(Right.BULK)
    job: str


@dataclass(frozen=True, slots=True)
class BeginJob(Operation[dict[str, Any]]):
    """Begin a new attempt of a job, or return the one that committed it.

    The attempt is plain data: the fields of :class:`tarry.api.jobs.Job`, and ``store_uri``, ``shard``, ``now_ms`` and
    ``limits``. Callers that give the same ``attempt`` share one.
    """

    wire = Action("bulk-begin", "begin an attempt of a bulk job", PLAIN)
    needs = OnBroker(Right.BULK)
    job: str
    attempt: str | None = None


@dataclass(frozen=True, slots=True)
class ReserveSeqs(Operation[int]):
    """The first of ``rows`` seqs for messages of attempt ``number``, which nobody else gets."""

    wire = Action("bulk-reserve", "seqs for messages of an attempt", named("first_seq"))
    needs = OnBroker(Right.BULK)
    number: Natural
    rows: Natural


class _StagedFileJson(TypedDict):
    """A :class:`tarry.api.jobs.StagedFile` as JSON."""

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


Files = Annotated[
    Sequence[StagedFile],
    Form(
        list[_StagedFileJson],
        lambda files: [asdict(f) for f in files],
        lambda values: [StagedFile(**v) for v in values],
    ),
]


@dataclass(frozen=True, slots=True)
class CommitJob(Operation[dict[str, Any]]):
    """Publish all files of attempt ``number`` at once, durably.

    ``topics`` has the number of messages of each topic, ``keys`` the number of messages with a key, if that is known.
    Returns the attempt as plain data, and the ``version`` of the store.
    """

    wire = Action("bulk-commit", "publish all of an attempt at once", PLAIN)
    needs = OnBroker(Right.BULK)
    number: Natural
    files: Files
    topics: Annotated[Mapping[str, int], Form(dict[str, Natural], dict, dict)]
    keys: Natural | None = None


@dataclass(frozen=True, slots=True)
class AbortJob(Operation[None]):
    """Refuse the commit of attempt ``number`` from now on, and remove its files."""

    wire = Action("bulk-abort", "give an attempt up", NOTHING)
    needs = OnBroker(Right.BULK)
    number: Natural


@dataclass(frozen=True, slots=True)
class StageJob(Request):
    """Files of an attempt from a stream of messages, for its commit: a stream's command on the wire."""

    needs = OnBroker(Right.BULK)
    number: Natural


def check_staged_columns(names: Sequence[str] | None) -> None:
    """Check the columns of a stream for :class:`StageJob`.

    Raises:
        InvalidArgumentError: they are not those of messages without a seq.
    """
    allowed = row_schema("UNNUMBERED").names
    if names != allowed:
        raise InvalidArgumentError(f"the columns are {names}; allowed: {allowed}")


def staged_json(files: Sequence[StagedFile], topics: Mapping[str, int]) -> dict[str, Any]:
    """Return the answer to :class:`StageJob`: fields of :class:`CommitJob`."""
    return {"files": [asdict(file) for file in files], "topics": dict(topics)}
