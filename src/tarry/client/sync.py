"""The client as most people use it.

with Client("localhost:7611") as client:
    client.schedule("orders", b"unpaid?", delay="30m")
    for message in client.consume("orders", group="billing"):
        with message:  # acknowledged at its end, given back after an exception
            handle(message.body)
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar, Unpack

from tarry.api.calls import Calls
from tarry.api.operation import Operation
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.client.bulk import CHUNK_ROWS, BulkSender, Chunks, Progress, batches_of
from tarry.client.carrier import Carrier
from tarry.client.connection import BrokerConnection
from tarry.client.consumer import ConsumeOptions, Consumer, ReceiveOptions, check_seconds
from tarry.client.consuming import ConsumingConnections
from tarry.client.delivery import Delivery
from tarry.client.holding import WORK_S
from tarry.client.producing import IN_DOUBT, Producer
from tarry.client.questions import no_answer
from tarry.client.received import ClientReceiver
from tarry.link.address import BrokerAddress
from tarry.link.credentials import AdminTokenNotice
from tarry.link.places import BrokerPlaces
from tarry.link.tls import ClientTls
from tarry.message.accepted import Accepted
from tarry.message.message import Message
from tarry.message.receipt import Receipt
from tarry.message.rows import Row

R = TypeVar("R")

_open_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Client(Calls):
    """A connection to a broker; thread-safe, connects when first used, and again when it must."""

    def __init__(
        self,
        address: str | BrokerAddress | BrokerPlaces = "localhost:7611",
        *,
        timeout: float = 30.0,
        tls: ClientTls | None = None,
        token: str | None = None,
    ) -> None:
        """Make a client; it connects when first used.

        Args:
            address: HOST:PORT, unix:PATH, or tls://HOST:PORT; several with commas between them, of a broker that
                another machine may take over; or what was parsed.
            timeout: how many seconds a call waits for its answer.
            tls: whom to trust, and what to show; None: by ``address``, with the files that the environment names.
            token: shows a broker that asks who the client is; None: what :mod:`tarry.link.credentials` finds.

        Raises:
            InvalidArgumentError: ``address`` is none, or a file is not what it should be.
        """
        if timeout is None:
            raise InvalidArgumentError("timeout is None; allowed: a number of seconds")
        check_seconds("timeout", timeout)
        self._timeout_s = timeout
        self.places = BrokerPlaces.of(address, tls, token, AdminTokenNotice())
        """The broker's places, and the ways to reach them."""
        self.places.check()
        self.address = self.places.text
        # Each has one of its own: a client is not read while it has too much under way, and calls may take long.
        self._connection = BrokerConnection(self.places)
        self._calls = BrokerConnection(self.places)
        self._receiving = BrokerConnection(self.places)
        self._consuming = ConsumingConnections(self.places)
        self.carrier = Carrier(self._calls, timeout)
        """Carries operations to the broker."""
        self._producer: Producer[Future[Receipt]] = Producer(self._connection.submit, _resolve)
        self._receiver: ClientReceiver | None = None
        self._lock = threading.Lock()
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
        self._closed = False
        _open_clients.add(self)
        for connection in (self._connection, self._calls, self._receiving):
            # Else the loop would keep the connections of a client that was forgotten.
            weakref.finalize(self, connection.close).atexit = False

    def call(self, operation: Operation[R]) -> R:
        """Have the broker carry an operation out; see :class:`tarry.api.calls.Calls`."""
        return self.carrier.call(operation)

    # -- producing -----------------------------------------------------------------------------------------------------

    def _schedule(self, row: Row) -> Receipt:
        """Schedule a message; calls of several threads share a round trip."""
        future: Future[Receipt] = Future()
        self._producer.add(row, future)
        self._producer.pump()
        try:
            return future.result(self._timeout_s)
        except FutureTimeoutError:
            raise no_answer(self.address, self._timeout_s, IN_DOUBT) from None

    def schedule_many(self, messages: Iterable[Message | Mapping[str, Any]]) -> list[Receipt]:
        """Schedule messages, or dicts with the arguments of :meth:`schedule`; return receipts, in order.

        A dict may have ``due_ms``, ``delay_ms`` and ``ttl_ms`` instead of those without ``_ms``.

        They travel in chunks, several at a time; each chunk is accepted whole or not at all.

        Raises:
            InvalidMessageError: ``row`` is the place of the bad message. Its chunk was not accepted, those before were.
            OverloadedError, DiskFullError, UnavailableError: as for :meth:`schedule_batch`.
        """
        chunks = Chunks(messages)
        BulkSender(self._connection.submit, chunks.accept, self._timeout_s).send(chunks)
        return chunks.receipts()

    def schedule_batch(
        self, data: Any, *, chunk_rows: int = CHUNK_ROWS, progress: Progress | None = None
    ) -> list[Accepted]:
        """Schedule the rows of an Arrow table, batch or reader, or of a DataFrame (pandas, Polars, DuckDB, …).

        Columns: ``topic``, ``body``, one of ``due_ms``, ``due``, ``delay_ms``, ``delay``, ``delay_level``; optional
        ``id``, ``key``, ``on_key``, ``tag``, ``properties``, ``ttl_ms``, ``expire_ms``, ``tries``, ``repeat`` (JSON),
        ``order_key``, ``late``. Rows travel in chunks of at most ``chunk_rows`` and 8 MiB, four at a time; **each chunk
        is accepted whole or not at all**. While the broker is overloaded, a refused chunk is sent again, for up to the
        client's timeout.

        Args:
            progress: called for each accepted chunk; also tells what was accepted when this raises.

        Returns:
            What was accepted, by chunk, in the order of the rows.

        Raises:
            InvalidMessageError: ``row`` is the row of ``data``. Its chunk was not accepted; chunks before it were, and
                some after it may have been.
            OverloadedError, DiskFullError: not now; as above.
            UnavailableError: no answer: the rows that the text names may or may not have been accepted.
        """
        return BulkSender(self._connection.submit, progress, self._timeout_s).send(batches_of(data, chunk_rows))

    # -- consuming -----------------------------------------------------------------------------------------------------

    def consume(self, topic: str, *, group: str, **options: Unpack[ConsumeOptions]) -> Consumer:
        """Messages of ``topic`` for ``group``, as they fall due; iterate over it.

        Args:
            options: prefetch, lease, timeout, auto_ack, start, broadcast: see
                :class:`tarry.client.consumer.ConsumeOptions` and :class:`tarry.client.consumer.HoldOptions`.
        """
        self._connection.check_open()
        consumer = Consumer(self._consuming, topic, group, **options)
        self._consumers.add(consumer)
        return consumer

    def receive(self, topic: str, *, group: str, **options: Unpack[ReceiveOptions]) -> list[Delivery]:
        """Receive up to ``max_messages`` ready messages, or none; wait up to ``wait`` seconds for the first.

        Settle them as in :meth:`consume`; :meth:`flush` waits until that is durable.

        Args:
            options: max_messages, wait, lease, start, broadcast: see
                :class:`tarry.client.consumer.ReceiveOptions` and :class:`tarry.client.consumer.HoldOptions`.

        Raises:
            QuotaExceededError: the identity has received, or filtered, too much. It has no message for it: try again.
        """
        return self.receiver().receive((topic, group), **options)

    def receiver(self) -> ClientReceiver:
        """Return what receives for this client, and settles that."""
        with self._lock:
            self._connection.check_open()
            if self._receiver is None:
                self._receiver = ClientReceiver(self._receiving, self._timeout_s)
            return self._receiver

    def flush(self) -> None:
        """Wait until the acks of what :meth:`receive` gave are durable.

        Raises:
            StaleLeaseError, UnavailableError: some were not settled; those messages come again.
        """
        if self._receiver is not None:
            self._receiver.flush()

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for answers under way, send the last acks, close the consumers."""
        self._end(WORK_S)

    def _end(self, work_s: float) -> None:
        """:meth:`close`, with so many seconds for what other threads work on."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._connection.birthplace.is_elsewhere:
            return  # all that is open is the parent's
        for consumer in list(self._consumers):
            consumer.close(work_s)
        if self._receiver is not None:
            self._receiver.close()
        self._producer.close()
        self._receiving.close()
        self._calls.close()
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._fail(error, WORK_S)
        self.close()

    def _fail(self, error: BaseException, work_s: float) -> None:
        """Fail what consumers had in hand and not settled, for this error."""
        for consumer in list(self._consumers):
            consumer.fail(error, work_s)


def _resolve(answers: list[tuple[Future[Receipt], Receipt | TarryError]]) -> None:
    for future, answer in answers:
        if isinstance(answer, TarryError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


# All of them are the parent's.
os.register_at_fork(after_in_child=_open_clients.clear)


@atexit.register
def _close_all() -> None:
    error = getattr(sys, "last_value", None)  # of a program that ends for it
    for client in list(_open_clients):
        # Without waiting for other threads: those that are left are daemons, for which their program does not wait.
        if isinstance(error, BaseException):
            client._fail(error, 0.0)  # noqa: SLF001 - one module
        client._end(0.0)  # noqa: SLF001 - one module
