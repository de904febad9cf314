"""The ways in which a client reaches its broker: by the native link, or by HTTP. Imports nothing slow.

:class:`tarry.client.Client` is the same for both; it chooses by the address that it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from tarry.api.operation import Operation
from tarry.api.operations import AdvanceClock, BeginBackup, CancelJob
from tarry.client.consume_options import ConsumeOptions, ReceiveOptions
from tarry.client.delivery import Delivery
from tarry.message.message import Message
from tarry.message.receipt import Receipt
from tarry.message.rows import Row

if TYPE_CHECKING:
    from tarry.client.bulk import Progress
    from tarry.client.delivery_batch import DeliveryBatch
    from tarry.message.accepted import Accepted

R = TypeVar("R")
log = logging.getLogger(__name__)

WORK_S = 30.0
"""Seconds that closing waits for messages that are worked on in ``with`` blocks."""
IN_DOUBT = "; the message may or may not have been accepted"
"""Consequence of an answer that did not come."""
LONG_S = 600.0
"""To count what is pending of a job takes a second for some ten million messages.

To let a month pass on a test clock takes as long as what happens in it. A backup begins with a
checkpoint, and waits for a bulk job that is being committed.
"""
_LONG = (CancelJob, AdvanceClock, BeginBackup)


def patience_s(operation: Operation[Any], timeout_s: float) -> float:
    """Return how long the answer to an operation is waited for; ``timeout_s``: the client's."""
    return max(timeout_s, LONG_S) if isinstance(operation, _LONG) else timeout_s


def handle_each(messages: Iterable[Delivery], handle: Callable[[Delivery], object]) -> None:
    """Call ``handle`` with each message, and acknowledge it when that returns.

    After an exception, which is logged, the message is given back.
    """
    for message in messages:
        try:
            with message:
                handle(message)
        except Exception:
            log.exception("message %s of topic %s could not be handled", message.id, message.topic)


class Consumes(Protocol):
    """Messages of a topic for a group, as they fall due: see :class:`tarry.client.consumer.Consumer`."""

    def __iter__(self) -> Iterator[Delivery]: ...
    def batches(self) -> Iterator[DeliveryBatch]:
        """Yield batches, for columnar consumers: ``batch.data`` is Arrow. ``auto_ack`` does not apply."""
        ...

    def run(self, handle: Callable[[Delivery], object]) -> None:
        """Call ``handle`` with each message, and acknowledge it when that returns."""
        ...

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until all acks so far are durable in the broker."""
        ...

    def close(self, timeout: float = WORK_S) -> None:
        """Send the last acks, wait until they are durable, give back the rest."""
        ...

    def fail(self, error: BaseException, timeout: float = WORK_S) -> None:
        """Give back what was handed out and is not settled: ``error`` is why; then :meth:`close`."""
        ...

    def __enter__(self) -> Consumes: ...
    def __exit__(self, _: object, error: BaseException | None, __: object) -> None: ...


class Way(Protocol):
    """One client's way to its broker. Any thread; the methods are those of :class:`tarry.client.Client`."""

    address: str

    def call(self, operation: Operation[R]) -> R:
        """Have the broker carry an operation out."""
        ...

    def schedule(self, row: Row) -> Receipt:
        """Schedule the message of a row."""
        ...

    def schedule_many(self, messages: Iterable[Message | Mapping[str, Any]]) -> list[Receipt]:
        """Schedule messages; return receipts, in order."""
        ...

    def schedule_batch(self, data: Any, *, chunk_rows: int, progress: Progress | None) -> list[Accepted]:
        """Schedule the rows of an Arrow table, batch or reader, or of a DataFrame."""
        ...

    def consume(self, topic: str, group: str, **options: Unpack[ConsumeOptions]) -> Consumes:
        """Messages as they fall due."""
        ...

    def receive(self, topic: str, group: str, **options: Unpack[ReceiveOptions]) -> list[Delivery]:
        """Receive ready messages, or none."""
        ...

    def flush(self) -> None:
        """Wait until the acks of what :meth:`receive` gave are durable."""
        ...

    def close(self, work_s: float) -> None:
        """End it, with so many seconds for what other threads work on."""
        ...

    def fail(self, error: BaseException, work_s: float) -> None:
        """Fail what consumers had in hand and not settled, for this error."""
        ...
