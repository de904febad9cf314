"""The native link as a client's way to its broker."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar, Unpack

from tarry.api.operation import Operation
from tarry.base.errors import TarryError
from tarry.client.bulk import BulkSender, Chunks, Progress, batches_of
from tarry.client.carrier import Carrier
from tarry.client.connection import BrokerConnection
from tarry.client.consume_options import ConsumeOptions, ReceiveOptions
from tarry.client.consumer import Consumer
from tarry.client.consuming import ConsumingConnections
from tarry.client.delivery import Delivery
from tarry.client.producing import Producer
from tarry.client.questions import no_answer
from tarry.client.received import ClientReceiver
from tarry.client.way import IN_DOUBT
from tarry.link.places import BrokerPlaces
from tarry.message.accepted import Accepted
from tarry.message.message import Message
from tarry.message.receipt import Receipt
from tarry.message.rows import Row

R = TypeVar("R")


class NativeWay:
    """A :class:`tarry.client.way.Way`; connects when first used, and again when it must."""

    def __init__(self, places: BrokerPlaces, timeout_s: float) -> None:
        """``timeout_s``: how long a call waits for its answer.

        Raises:
            InvalidArgumentError: a file of TLS is not what it should be.
        """
        self._timeout_s = timeout_s
        self.places = places
        """The broker's places, and the ways to reach them."""
        self.places.check()
        self.address = self.places.text
        # Each has one of its own: a client is not read while it has too much under way, and calls may take long.
        self.connection = BrokerConnection(self.places)
        """For what is produced."""
        self.calls = BrokerConnection(self.places)
        """For operations."""
        self._receiving = BrokerConnection(self.places)
        self._consuming = ConsumingConnections(self.places)
        self.carrier = Carrier(self.calls, timeout_s)
        """Carries operations to the broker."""
        self._producer: Producer[Future[Receipt]] = Producer(self.connection.submit, _resolve)
        self._receiver: ClientReceiver | None = None
        self._lock = threading.Lock()
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
        for connection in (self.connection, self.calls, self._receiving):
            # Else the loop would keep the connections of a client that was forgotten.
            weakref.finalize(self, connection.close).atexit = False

    def call(self, operation: Operation[R]) -> R:
        """Have the broker carry an operation out."""
        return self.carrier.call(operation)

    def schedule(self, row: Row) -> Receipt:
        """Schedule a message; calls of several threads share a round trip."""
        future: Future[Receipt] = Future()
        self._producer.add(row, future)
        self._producer.pump()
        try:
            return future.result(self._timeout_s)
        except FutureTimeoutError:
            raise no_answer(self.address, self._timeout_s, IN_DOUBT) from None

    def schedule_many(self, messages: Iterable[Message | Mapping[str, Any]]) -> list[Receipt]:
        """See :meth:`tarry.client.Client.schedule_many`."""
        chunks = Chunks(messages)
        BulkSender(self.connection.submit, chunks.accept, self._timeout_s).send(chunks)
        return chunks.receipts()

    def schedule_batch(self, data: Any, *, chunk_rows: int, progress: Progress | None) -> list[Accepted]:
        """See :meth:`tarry.client.Client.schedule_batch`."""
        return BulkSender(self.connection.submit, progress, self._timeout_s).send(batches_of(data, chunk_rows))

    def consume(self, topic: str, group: str, **options: Unpack[ConsumeOptions]) -> Consumer:
        """See :meth:`tarry.client.Client.consume`."""
        self.connection.check_open()
        consumer = Consumer(self._consuming, topic, group, **options)
        self._consumers.add(consumer)
        return consumer

    def receive(self, topic: str, group: str, **options: Unpack[ReceiveOptions]) -> list[Delivery]:
        """See :meth:`tarry.client.Client.receive`."""
        return self.receiver().receive((topic, group), **options)

    def receiver(self) -> ClientReceiver:
        """Return what receives for this client, and settles that."""
        with self._lock:
            self.connection.check_open()
            if self._receiver is None:
                self._receiver = ClientReceiver(self._receiving, self._timeout_s)
            return self._receiver

    def flush(self) -> None:
        """See :meth:`tarry.client.Client.flush`."""
        if self._receiver is not None:
            self._receiver.flush()

    def close(self, work_s: float) -> None:
        """Wait for answers under way, send the last acks, close the consumers."""
        if self.connection.birthplace.is_elsewhere:
            return  # all that is open is the parent's
        for consumer in list(self._consumers):
            consumer.close(work_s)
        if self._receiver is not None:
            self._receiver.close()
        self._producer.close()
        self._receiving.close()
        self.calls.close()
        self.connection.close()

    def fail(self, error: BaseException, work_s: float) -> None:
        """Fail what consumers had in hand and not settled, for this error."""
        for consumer in list(self._consumers):
            consumer.fail(error, work_s)


def _resolve(answers: list[tuple[Future[Receipt], Receipt | TarryError]]) -> None:
    for future, answer in answers:
        if isinstance(answer, TarryError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
