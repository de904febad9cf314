"""Queues by their offsets, for readers that keep their own, as a Spark query does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, runtime_checkable

from tarry.api.needs import Listed, OnBroker, OnTopic, Right
from tarry.api.operation import Action, Codec, Form, Int64, Natural, Operation, Rows, named, row_schema
from tarry.api.settings import Start
from tarry.base.errors import InvalidArgumentError
from tarry.base.record_batch import RecordBatch

Ends = dict[str, tuple[int, int]]
"""First offset that is kept, and end of the queue, by topic."""


CANCELLED_RANGE_MAX = 1 << 22
"""Seqs of the intake whose cancellations are in one answer of the link, which has all of them."""


def batches(schema_name: str) -> tuple[Any, Any]:
    """``encode`` and ``decode`` of a result that is an iterator of batches."""

    def encode(rows: Iterable[RecordBatch]) -> tuple[Any, Iterable[RecordBatch]]:
        return row_schema(schema_name), rows

    return encode, lambda table: iter(table.to_batches())


@runtime_checkable
class HasRange(Protocol):
    """A request for a range of positions."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


def check_range(start: int, end: int) -> None:
    """Check a range of offsets.

    Raises:
        InvalidArgumentError: it ends before it starts.
    """
    if start > end:
        raise InvalidArgumentError(f"start is {start}, end {end}; allowed: start up to end")


def _ends(answer: Mapping[str, Any]) -> Ends:
    return {name: (ends["first"], ends["end"]) for name, ends in answer["topics"].items()}


@dataclass(frozen=True, slots=True)
class GetQueues(Operation[Ends]):
    """Return the first offset that is kept and the end of each topic's queue.

    An unknown topic has (0, 0). Without ``topics``: of all.

    All offsets below an end are durable when this returns: a power failure gives none of them to another message, so
    they may be written down elsewhere.
    """

    wire = Action(
        "queue-state",
        "first offset and end of queues, durable",
        Codec(
            lambda ends: {"topics": {name: {"first": first, "end": end} for name, (first, end) in ends.items()}}, _ends
        ),
    )
    needs = Listed(lambda ends, may: {topic: each for topic, each in ends.items() if may(topic, None)})
    topics: Annotated[Sequence[str] | None, Form(list[str] | None, lambda t: t and list(t), lambda t: t)] = None


@dataclass(frozen=True, slots=True)
class ReadQueue(Operation[Iterator[RecordBatch]]):
    """Read messages of a topic's queue with ``start <= offset < end``, in order.

    The columns are :data:`tarry.api.row_schemas.QUEUED`. Messages that retention has deleted are left out.

    Raises:
        NotFoundError: there is no such topic. InvalidArgumentError: the range is not one of its queue.
    """

    wire = Rows("queue", *batches("QUEUED"), "QUEUED", goes_on_by="offset")
    needs = OnTopic(Right.BROWSE)
    topic: str
    start: Natural
    end: Natural

    def __post_init__(self) -> None:
        check_range(self.start, self.end)


@dataclass(frozen=True, slots=True)
class ReadCancellations(Operation[Iterator[RecordBatch]]):
    """Read the targets of the intake's cancellations with ``start <= seq < end``.

    The columns are :data:`tarry.api.row_schemas.CANCELLED`. Cancellations that have fired and were deleted since are
    left out.
    """

    wire = Rows("cancelled", *batches("CANCELLED"), "CANCELLED", range_max=CANCELLED_RANGE_MAX)
    needs = OnBroker(Right.PIPELINE)
    start: Natural
    end: Natural

    def __post_init__(self) -> None:
        check_range(self.start, self.end)


@dataclass(frozen=True, slots=True)
class FindOffset(Operation[int]):
    """Return the offset of the first kept message of a topic's queue that was due at ``due_ms`` or later.

    Returns the queue's end if there is none.
    """

    wire = Action("queue-offset", "the first offset due at a moment or later", named("offset"))
    needs = OnTopic(Right.LOOK)
    topic: str
    due_ms: Int64


@dataclass(frozen=True, slots=True)
class FollowQueue(Operation[int]):
    """Return the offset below which a group has settled all messages.

    A new group is made, durably, from the earliest message that is kept. ``start``, "earliest" or "latest", makes the
    group begin there, even if it is not new.
    """

    wire = Action("queue-follow", "where a group stands, which is made if it is new", named("offset"))
    needs = OnTopic(Right.CONSUME)
    topic: str
    group: str
    start: Start | None = None


@dataclass(frozen=True, slots=True)
class AdvanceGroup(Operation[int]):
    """Settle all messages below ``offset`` for a group, durably; return the offset that it has reached.

    A group never goes back.

    Raises:
        InvalidArgumentError: the queue does not reach that far.
    """

    wire = Action("queue-advance", "settle for a group all below an offset", named("offset"))
    needs = OnTopic(Right.CONSUME)
    topic: str
    group: str
    offset: Natural
