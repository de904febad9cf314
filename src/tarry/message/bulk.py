"""Bulk jobs in numbers and rows: the seqs of what they load, and what the intake's log says of them.

A job loads messages straight into the store. Each attempt of one has a *number*, and its messages the seqs
``2**62 + number * 2**40 + row``: above all that the intake ever assigns, so that ``committed_seq`` speaks of the intake
alone, and so that the job of a message can be told from its seq.

That a job is committed, and that it is cancelled, are rows of the intake, one for each topic (kinds JOB and
JOB_CANCELLED): so counts, checkpoint and recovery see it at one place in the order of everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tarry.base.errors import CorruptError
from tarry.base.types import Int64s, Mask, at_or_after
from tarry.message.schema import UNNUMBERED, Kind, absent, kinds_of

SEQ_MIN = 1 << 62
"""The lowest seq of a bulk job."""
ROWS_MAX = 1 << 40
"""Most messages of one attempt."""
NUMBERS_MAX = 1 << 22
"""Attempts there can ever be."""
_SHIFT = 40


def first_seq(number: int) -> int:
    """Return the lowest seq of an attempt."""
    return SEQ_MIN + (number << _SHIFT)


def number_of(seq: int) -> int:
    """Return the attempt to which a seq of a bulk job belongs."""
    return (seq - SEQ_MIN) >> _SHIFT


def prefix_of(number: int) -> str:
    """Return the prefix of the names of an attempt's staged files."""
    return f"bulk-{number}-"


def among(seq: Int64s, numbers: Iterable[int]) -> Mask:
    """Mark the messages with these seqs that belong to one of these attempts."""
    wanted = list(numbers)
    if not wanted or not len(seq) or int(seq.max()) < SEQ_MIN:
        return np.zeros(len(seq), np.bool_)
    return (seq >= SEQ_MIN) & np.isin((seq - SEQ_MIN) >> _SHIFT, wanted)


class CancelledJobs:
    """Cancelled attempts, each from a place in the order of ``(due_ms, seq)`` on.

    What lies before that place had been delivered. One object for all who must know; it is changed by the intake's
    writer alone.
    """

    def __init__(self) -> None:
        self._since: dict[int, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._since)

    def update(self, since: Mapping[int, tuple[int, int]]) -> None:
        """Cancel these attempts, too, each from a place on."""
        self._since.update(since)

    def keep(self, numbers: Iterable[int]) -> None:
        """Forget all attempts but these."""
        several = set(numbers)
        for number in [n for n in list(self._since) if n not in several]:
            del self._since[number]

    def mask(self, due_ms: Int64s, seq: Int64s) -> Mask:
        """Mark the messages with these due times and seqs that are cancelled with their job."""
        cancelled = np.zeros(len(seq), np.bool_)
        if not self._since or not len(seq) or int(seq.max()) < SEQ_MIN:
            return cancelled
        numbers = (seq - SEQ_MIN) >> _SHIFT
        for number in np.unique(numbers[seq >= SEQ_MIN]).tolist():
            if (since := self._since.get(number)) is not None:
                cancelled |= (numbers == number) & at_or_after(due_ms, seq, since)
        return cancelled

    def to_wire(self) -> list[list[int]]:
        """Return ``[number, due_ms, seq]`` of each attempt: it is cancelled from that place on."""
        return [[number, *since] for number, since in sorted(self._since.items())]

    @classmethod
    def of_wire(cls, wire: Iterable[Sequence[int]]) -> CancelledJobs:
        """Return the object of which :meth:`to_wire` gave this."""
        jobs = cls()
        jobs.update({number: (due_ms, seq) for number, due_ms, seq in wire})
        return jobs

    def numbers(self) -> list[int]:
        """Numbers of the attempts, ascending."""
        return sorted(self._since)

    def since(self, number: int) -> tuple[int, int]:
        """From which place on an attempt is cancelled. Raises KeyError: it is not."""
        return self._since[number]


class JobRow(NamedTuple):
    """Number of messages of a topic that an attempt brought (kind JOB), or that were cancelled with it.

    ``since``: a place in the order, from which on they were cancelled.
    """

    kind: Kind
    number: int
    topic: str
    rows: int
    since: tuple[int, int] | None


def job_rows(
    kind: Kind, number: int, topics: Mapping[str, int], now_ms: int, since: tuple[int, int] | None = None
) -> pa.RecordBatch:
    """Rows of UNNUMBERED for :class:`JobRow`, one a topic; due at once, as nothing waits for them."""
    count, place = len(topics), {} if since is None else {"since": since}
    columns = dict(absent(count))
    columns |= {
        "topic": pa.array(list(topics), pa.string()),
        "due_ms": pa.array(np.full(count, now_ms, np.int64)),
        "born_ms": pa.array(np.full(count, now_ms, np.int64)),
        "body": pa.array([json.dumps({"number": number, "rows": rows, **place}).encode() for rows in topics.values()]),
        "kind": pa.array(np.full(count, kind, np.int8)),
    }
    return pa.RecordBatch.from_arrays([columns[f.name] for f in UNNUMBERED], schema=UNNUMBERED)


def read_job_rows(batch: pa.RecordBatch) -> list[JobRow]:
    """Read the rows about jobs of a batch of the intake, in its order.

    Raises:
        CorruptError: a row of these kinds says something else.
    """
    kinds = kinds_of(batch)
    rows = np.flatnonzero((kinds == Kind.JOB) | (kinds == Kind.JOB_CANCELLED))
    job_rows = []
    for row in rows.tolist():
        body = batch.column("body")[row].as_py()
        try:
            fields = json.loads(body)
            number, count = int(fields["number"]), int(fields["rows"])
            since = (int(fields["since"][0]), int(fields["since"][1])) if "since" in fields else None
        except (ValueError, LookupError, TypeError) as error:
            raise CorruptError(f"a row about a bulk job is {body!r:.80}") from error
        job_rows.append(JobRow(Kind(int(kinds[row])), number, batch.column("topic")[row].as_py(), count, since))
    return job_rows
