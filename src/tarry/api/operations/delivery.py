"""Receiving messages of a group, and settling them: acknowledge, give back, extend a lease."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from tarry.api.bounds import LEASE_MS, PREFETCH
from tarry.api.needs import OnTopic, Right
from tarry.api.operation import Action, Int64, Natural, Operation, Request, Rows, int64_array, int64s, named, one_batch
from tarry.api.settings import Start
from tarry.base.errors import InvalidArgumentError
from tarry.base.record_batch import RecordBatch
from tarry.base.types import Int64s

Column = Annotated[Int64s, int64s(list[Int64])]


@dataclass(frozen=True, slots=True)
class Subscribe(Request):
    """A consumer of a group, with up to ``prefetch`` unsettled messages.

    Args:
        lease_ms: milliseconds for which a message is this consumer's; None: as the group's settings say.
        start: "earliest" or "latest", for a group that is new; "earliest" without it.
        broadcast: this consumer's own name: it gets all messages, as a group of its own, ``group@broadcast``, which
            begins at the latest.
    """

    needs = OnTopic(Right.CONSUME)
    topic: str
    group: str
    _: KW_ONLY
    prefetch: Natural = 1000
    lease_ms: Natural | None = None
    start: Start | None = None
    broadcast: str | None = None

    def __post_init__(self) -> None:
        PREFETCH.check("prefetch", self.prefetch)
        if self.lease_ms is not None:
            LEASE_MS.check("lease_ms", self.lease_ms)


@dataclass(frozen=True, slots=True)
class Receive(Operation[RecordBatch]):
    """Receive up to ``max_messages`` ready messages (:data:`tarry.api.row_schemas.DELIVERY`); maybe none.

    Waits up to ``wait_ms`` for the first. Messages of a broadcast are settled under the consumer's own group. The other
    arguments are those of :class:`Subscribe`.
    """

    wire = Rows("receive", *one_batch("DELIVERY"), "DELIVERY")
    needs = OnTopic(Right.CONSUME)
    topic: str
    group: str
    _: KW_ONLY
    max_messages: Natural = 1
    wait_ms: Natural = 0
    lease_ms: Natural | None = None
    start: Start | None = None
    broadcast: str | None = None

    def __post_init__(self) -> None:
        if self.max_messages < 1 or self.wait_ms < 0:
            raise InvalidArgumentError(
                f"max_messages is {self.max_messages}, wait_ms {self.wait_ms}; allowed: 1 or more, 0 or more"
            )

    @property
    def subscription(self) -> Subscribe:
        """The consumer that receives them."""
        return Subscribe(
            self.topic,
            self.group,
            prefetch=self.max_messages,
            lease_ms=self.lease_ms,
            start=self.start,
            broadcast=self.broadcast,
        )


def _take_pairs(operation: Ack | Nack | Extend) -> None:
    """Make the leases and offsets NumPy arrays, and check that there are as many of both.

    A caller may pass a column of the batch that it received as it is: an Arrow array.

    Raises:
        InvalidArgumentError: they are no whole numbers, or not as many of both.
    """
    import numpy as np  # not there in a client without the native link

    for name in ("leases", "offsets"):
        given = getattr(operation, name)
        if not isinstance(given, np.ndarray):
            object.__setattr__(operation, name, int64_array(given, name))
    leases, offsets = len(operation.leases), len(operation.offsets)
    if leases != offsets:
        raise InvalidArgumentError(f"{leases} leases and {offsets} offsets; allowed: the same number of both")


@dataclass(frozen=True, slots=True, eq=False)
class Ack(Operation[int]):
    """Settle messages for good, durably; return how many.

    Settles the messages of ``offsets``, each under the lease that it was handed out with.

    Raises:
        StaleLeaseError: when some leases were stale; the others are settled all the same.
        NotFoundError: there is no such group.
    """

    wire = Action("ack", "settle messages for good", named("settled"))
    needs = OnTopic(Right.CONSUME)
    topic: str
    group: str
    leases: Column
    offsets: Column

    def __post_init__(self) -> None:
        _take_pairs(self)


@dataclass(frozen=True, slots=True, eq=False)
class Nack(Operation[int]):
    """Give messages back, to come again after ``delay_ms`` (None: the group's back-off).

    Otherwise as :class:`Ack`. A message whose last try this was goes to the dead letters.

    Args:
        reason: why, in words for people who look at the message's history or at its dead letter.
    """

    wire = Action("nack", "give messages back, to come again", named("settled"))
    needs = OnTopic(Right.CONSUME)
    topic: str
    group: str
    leases: Column
    offsets: Column
    delay_ms: Natural | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        _take_pairs(self)
        if self.delay_ms is not None and self.delay_ms < 0:
            raise InvalidArgumentError(f"delay_ms is {self.delay_ms}; allowed: 0 or more")


@dataclass(frozen=True, slots=True, eq=False)
class Extend(Operation[int]):
    """Hold messages for ``lease_ms`` more from now; return how many are still held.

    Extends whole batches as handed out.
    """

    wire = Action("extend", "hold messages for longer", named("settled"))
    needs = OnTopic(Right.CONSUME)
    topic: str
    group: str
    leases: Column
    offsets: Column
    lease_ms: Natural

    def __post_init__(self) -> None:
        _take_pairs(self)
        LEASE_MS.check("lease_ms", self.lease_ms)
