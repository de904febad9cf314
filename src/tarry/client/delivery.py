"""Deliveries: a message as a view of a row of the batch that it came with. Imports nothing slow.

A message is two references. Acknowledging appends a row number to a list; everything else about it happens in bulk.
"""

# The columns of a batch are lists of Any; the properties below say what is in them.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, Self

from tarry.base.delay import Delay, due_from_delay
from tarry.base.errors import InvalidArgumentError
from tarry.client.stream_op import StreamOp
from tarry.message.options import ORDER_KEY
from tarry.message.receipt import id_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Settles(Protocol):
    """The receiver of a delivery's settlements: :class:`tarry.client.settling.Settler`. Any thread."""

    @property
    def closed(self) -> bool:
        """The connection is over: what was not sent by now comes again by itself."""
        ...

    def mark(self, batch: Any) -> None:
        """Note that a row of the batch was acknowledged."""
        ...

    def order(self, op: StreamOp, argument: int, batch: Any, rows: int | list[int] | None, reason: str = "") -> None:
        """Settle a row of the batch, or some, or all that are not settled (None)."""
        ...

    def push(self) -> None:
        """Send what has gathered, in the caller's thread."""
        ...

    def hurry(self) -> None:
        """Have another thread send what has gathered, now."""
        ...


class Keeps(Protocol):
    """Keeps the leases of what is in work: :class:`tarry.client.holding.Holding`. Any thread."""

    def enter(self, batch: Any) -> None:
        """Work at a message of the batch begins."""
        ...

    def leave_work(self, batch: Any) -> None:
        """Note that the work has ended."""
        ...


class ReceivedBatch(Protocol):
    """The batch that messages came with.

    It is a :class:`tarry.client.delivery_batch.DeliveryBatch`, or the same by HTTP.
    """

    settler: Settles
    keeper: Keeps | None
    source: tuple[str, str]
    """Topic and group in which it is settled."""
    acked: list[int]
    """Rows that were acknowledged, in that order."""
    clean: bool
    """False: there are new rows in :attr:`acked` of which the settler knows."""
    arrived_ms: float
    until_s: float
    """Until when, as monotonic time, its messages are this consumer's."""

    @property
    def lists(self) -> Mapping[str, list[Any]]:
        """The columns of a delivery, by name."""
        ...

    def mark(self) -> None:
        """There are new rows in :attr:`acked`."""
        ...

    def is_given_back(self, row: int) -> bool:
        """Return whether a row was settled otherwise than by an acknowledgement. Any thread."""
        ...


class Delivery:
    """One message, handed out to this consumer until it is settled or its lease ends.

    It is a view of the batch that it came with, and keeps that in memory. In a ``with`` block it stays this consumer's
    until the end of the block, and is acknowledged there; after an exception it is given back, with its text as reason.
    """

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: ReceivedBatch, row: int) -> None:
        self._batch = batch
        self._row = row

    @property
    def row(self) -> int:
        """Row of the message in its batch."""
        return self._row

    def __enter__(self) -> Self:
        """Begin the work on the message.

        Raises:
            StaleLeaseError: it is not this consumer's any more: its lease is over, or its consumer has ended.
        """
        if self._batch.keeper is not None:
            self._batch.keeper.enter(self._batch)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.ack()
        else:
            self.nack(reason=reason_of(error))
        if self._batch.keeper is not None:
            self._batch.keeper.leave_work(self._batch)

    async def __aenter__(self) -> Self:
        """As without ``async``: nothing is waited for; see :meth:`ack`."""
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.__exit__(kind, error, traceback)

    def ack(self) -> None:
        """Acknowledge the message: it never comes again.

        Returns at once: acks travel together, within milliseconds. To acknowledge it once more is accepted, and does
        nothing.
        """
        batch = self._batch
        batch.acked.append(self._row)
        if batch.clean:
            batch.mark()

    def nack(self, delay: Delay | None = None, *, reason: str = "") -> None:
        """Give the message back: it comes again after ``delay`` (default: by the group's back-off).

        ``reason``: why, for who looks at its history, or at the dead letter that it becomes.
        """
        self._order(*nacked(delay, reason), reason)

    def reject(self, *, reason: str = "") -> None:
        """Make it a dead letter at once, whatever tries are left: no consumer will ever be able to handle it.

        ``reason``: as of :meth:`nack`.

        Raises:
            InvalidArgumentError: it comes of ``receive``; of ``consume`` it may be rejected.
        """
        self._check_consumed("reject")
        check_reason(reason)
        self._order(StreamOp.REJECT, 0, reason)

    def release(self) -> None:
        """Give it back as if it had not been handed out: it is ready at once, as the same try.

        Raises:
            InvalidArgumentError: it comes of ``receive``; of ``consume`` it may be released.
        """
        self._check_consumed("release")
        self._order(StreamOp.RETURN, 0)

    def _check_consumed(self, what: str) -> None:
        if self._batch.keeper is None:
            raise InvalidArgumentError(f"{what} of a message of receive(); allowed: of consume(), or nack()")

    @property
    def lost(self) -> bool:
        """True if it is not this consumer's any more, so that nothing that is said of it here counts.

        Its lease is over, and others have it or will; or it was given back or rejected.
        """
        batch = self._batch
        return batch.settler.closed or time.monotonic() >= batch.until_s or batch.is_given_back(self._row)

    @property
    def settled(self) -> bool:
        """True once it was acknowledged, given back or rejected here: what is said of it later does not count."""
        batch = self._batch
        return self._row in batch.acked or batch.is_given_back(self._row)

    def extend(self, lease: Delay) -> None:
        """Hold it for ``lease`` from now, because the work takes longer. So is the batch that it came with."""
        self._order(StreamOp.EXTEND, duration_ms("lease", lease, 1))

    def _order(self, op: StreamOp, argument: int, reason: str = "") -> None:
        self._batch.settler.order(op, argument, self._batch, self._row, reason)

    @property
    def topic(self) -> str:
        return self._batch.lists["topic"][self._row]

    @property
    def group(self) -> str:
        """The consumer group that it was handed out to."""
        return self._batch.source[1]

    @property
    def body(self) -> bytes:
        return self._batch.lists["body"][self._row]

    @property
    def id(self) -> str:
        """The producer's id, or one made from :attr:`seq`."""
        return self._batch.lists["id"][self._row] or id_of(self.seq)

    @property
    def key(self) -> str | None:
        return self._batch.lists["key"][self._row]

    @property
    def tag(self) -> str | None:
        return self._batch.lists["tag"][self._row]

    @property
    def properties(self) -> dict[str, str]:
        """The producer's properties, and Tarry's own, which begin with "tarry."; empty if there are none."""
        return self._batch.lists["properties"][self._row]

    @property
    def order_key(self) -> str | None:
        """Order key: messages of one are delivered in order; see :meth:`Client.schedule`."""
        return self.properties.get(ORDER_KEY)

    @property
    def due_ms(self) -> int:
        """Due time in UTC milliseconds."""
        return self._batch.lists["due_ms"][self._row]

    @property
    def due(self) -> datetime:
        """Due time as an aware datetime."""
        return _EPOCH + timedelta(milliseconds=self.due_ms)

    @property
    def born_ms(self) -> int:
        """Time at which the broker accepted it, in UTC milliseconds."""
        return self._batch.lists["born_ms"][self._row]

    @property
    def expire_ms(self) -> int | None:
        """Time at which it stops being of use, in UTC milliseconds."""
        return self._batch.lists["expire_ms"][self._row]

    @property
    def attempt(self) -> int:
        """Number of this delivery; 1 is the first."""
        return self._batch.lists["attempt"][self._row]

    @property
    def offset(self) -> int:
        """Its offset in the topic's queue."""
        return self._batch.lists["offset"][self._row]

    @property
    def seq(self) -> int:
        """The broker's number for it."""
        return self._batch.lists["seq"][self._row]

    @property
    def lateness_ms(self) -> float:
        """From its due time to its arrival at this client, by this machine's clock."""
        return self._batch.arrived_ms - self.due_ms

    def __repr__(self) -> str:
        body = self.body if len(self.body) <= 40 else self.body[:40] + b"..."
        fields = f"topic={self.topic!r}, id={self.id!r}, due_ms={self.due_ms}, attempt={self.attempt}"
        return f"Delivery({fields}, body={body!r})"


def reason_of(error: BaseException) -> str:
    """Return the text of an exception, as the reason why a message was not handled."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as unprintable:  # noqa: BLE001 - a message that fails must not end who handles all others
        return f"{name}: its text cannot be made ({type(unprintable).__name__})"
    return f"{name}: {text}" if text else name


def check_reason(reason: str) -> None:
    """Refuse what is no text here, before it travels with what is said of other messages.

    Raises:
        InvalidArgumentError: it is none, an exception, say.
    """
    if not isinstance(reason, str):
        raise InvalidArgumentError(f"reason is {reason!r}; allowed: a text")


def nacked(delay: Delay | None, reason: str) -> tuple[StreamOp, int]:
    check_reason(reason)
    return StreamOp.FAIL if reason else StreamOp.NACK, -1 if delay is None else duration_ms("delay", delay, 0)


def duration_ms(name: str, duration: Delay, least: int) -> int:
    """Milliseconds of a duration from now; an instant is refused. ``name``: what an error calls it.

    Raises:
        InvalidArgumentError: it is none, or is less than ``least``.
    """
    try:
        ms = due_from_delay(duration, 0, name=name)
    except InvalidArgumentError as error:
        why = str(error).partition("; allowed: ")[0]
        raise type(error)(f"{why}; allowed: {least} ms or more: seconds, a timedelta, '30s'") from error
    if due_from_delay(duration, 1) == ms:
        raise InvalidArgumentError(
            f"{name} {duration!r} is an instant; allowed: a duration: seconds, a timedelta, '30s'"
        )
    if not least <= ms < 1 << 62:
        raise InvalidArgumentError(f"{name} {duration!r} is {ms} ms; allowed: {least} ms or more")
    return ms
