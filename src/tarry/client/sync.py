"""The client as most people use it.

with Client("localhost:7611") as client:
    client.schedule("orders", b"unpaid?", delay="30m")
    for message in client.consume("orders", group="billing"):
        handle(message.body)
        message.ack()
"""

from __future__ import annotations

import atexit
import itertools
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from tarry.client.answers import Accepted, Receipt, TopicPending, id_of
from tarry.client.bulk import CHUNK_ROWS, BulkStream, Progress, batches_of
from tarry.client.connection import Connection
from tarry.client.consumer import Consumer, check_seconds
from tarry.client.delivery import Delivery, duration_ms
from tarry.client.producing import Producer
from tarry.client.received import Receiver
from tarry.client.rows import BODY, COLUMNS, ID, Row, make_row, rows_of, to_batch
from tarry.delay import Delay
from tarry.errors import InvalidArgumentError, TarryError, UnavailableError
from tarry.message import Message

MANY_ROWS = 4096
"""Messages in one chunk of schedule_many."""

_open_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Client:
    """A connection to a broker; thread-safe, connects when first used, and again when it must."""

    def __init__(self, address: str = "localhost:7611", *, timeout: float = 30.0) -> None:
        """``address`` is HOST:PORT; ``timeout`` is how many seconds a call waits for its answer.

        Raises:
            InvalidArgumentError: ``address`` is none.
        """
        if timeout is None:
            raise InvalidArgumentError("timeout is None; allowed: a number of seconds")
        check_seconds("timeout", timeout)
        self._timeout_s = timeout
        self.address = address
        self._connection = Connection(address)
        self._producer: Producer[Future[Receipt]] = Producer(self._connection, _resolve)
        self._receiver: Receiver | None = None
        self._lock = threading.Lock()
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
        self._closed = False
        _open_clients.add(self)

    # -- producing -----------------------------------------------------------------------------------------------------

    def schedule(
        self,
        topic: str,
        body: bytes | str,
        *,
        delay: Delay | None = None,
        due: datetime | int | None = None,
        id: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        ttl: float | str | timedelta | None = None,
        tries: int | None = None,
    ) -> Receipt:
        """Schedule a message; when this returns, it is durable. Calls of several threads share a round trip.

        Args:
            topic: where it will be delivered.
            body: what; a text is encoded as UTF-8.
            delay: how long from now: seconds, a timedelta, "1h30m", an aware datetime, ``DelayLevel(n)`` (of RocketMQ's
                default table). At once without ``delay`` and ``due``.
            due: the instant instead: an aware datetime, or UTC milliseconds.
            id, key, tag: the producer's own names for it.
            properties: texts by name.
            ttl: for how long from now it is of use; the same forms as ``delay``.
            tries: how often it is delivered at most.

        Raises:
            InvalidMessageError, InvalidArgumentError: a value is not allowed; nothing was scheduled.
            OverloadedError, DiskFullError: not now; nothing was scheduled, try again later.
            UnavailableError: there was no answer. The message **may have been accepted**; it is never sent twice by
                itself. To schedule it again may make it come twice.
        """
        row = make_row(
            topic, body, delay=delay, due=due, id=id, key=key, tag=tag, properties=properties, ttl=ttl, tries=tries
        )
        future: Future[Receipt] = Future()
        self._producer.add(row, future)
        self._producer.pump()
        try:
            return future.result(self._timeout_s)
        except FutureTimeoutError:
            raise UnavailableError(
                f"no answer from the broker at {self.address} within {self._timeout_s} s; "
                "the message may or may not have been accepted"
            ) from None

    def schedule_many(self, messages: Iterable[Message | Mapping[str, Any]]) -> list[Receipt]:
        """Schedule messages, or dicts with the arguments of :meth:`schedule`; their receipts, in order.

        They travel in chunks, several at a time; each chunk is accepted whole or not at all.

        Raises:
            InvalidMessageError: ``row`` is the place of the bad message. Its chunk was not accepted, those before were.
            OverloadedError, DiskFullError, UnavailableError: as for :meth:`schedule_batch`.
        """
        chunks = _Chunks(messages)
        stream = BulkStream(self._connection, pa.schema(COLUMNS), chunks.accept, self._timeout_s)
        stream.send(chunks)
        return chunks.receipts()

    def schedule_batch(
        self, data: Any, *, chunk_rows: int = CHUNK_ROWS, progress: Progress | None = None
    ) -> list[Accepted]:
        """Schedule the rows of an Arrow table, batch or reader, or of a DataFrame (pandas, Polars, DuckDB, …).

        Columns: ``topic``, ``body``, one of ``due_ms``, ``due``, ``delay_ms``, ``delay``; optional ``id``, ``key``,
        ``tag``, ``properties``, ``ttl_ms``, ``expire_ms``, ``tries``. Rows travel in chunks of at most
        ``chunk_rows`` and 8 MiB, four at a time; **each chunk is accepted whole or not at all**. While the broker is
        overloaded, a refused chunk is sent again, for up to the client's timeout.

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
        schema, batches = batches_of(data, chunk_rows)
        return BulkStream(self._connection, schema, progress, self._timeout_s).send(batches)

    # -- consuming -----------------------------------------------------------------------------------------------------

    def consume(
        self,
        topic: str,
        *,
        group: str,
        prefetch: int = 1000,
        lease: Delay | None = None,
        timeout: float | None = None,
        auto_ack: bool = False,
    ) -> Consumer:
        """Messages of ``topic`` for ``group``, as they fall due; iterate over it.

        Args:
            prefetch: how many unsettled messages may be here. More for herds, 1 for long work.
            lease: for how long a message is this consumer's before it goes to another; the broker's default is 30 s.
            timeout: end when no message came for so many seconds; else it goes on for ever.
            auto_ack: acknowledge each message when the loop asks for the next.
        """
        self._connection.check_open()
        check_seconds("timeout", timeout)
        consumer = Consumer(
            self.address, topic, group, prefetch=prefetch, lease=lease, timeout=timeout, auto_ack=auto_ack
        )
        self._consumers.add(consumer)
        return consumer

    def receive(
        self, topic: str, *, group: str, max_messages: int = 1, wait: float = 0.0, lease: Delay | None = None
    ) -> list[Delivery]:
        """Up to ``max_messages`` messages that are ready, waiting up to ``wait`` seconds for the first; maybe none.

        Settle them as in :meth:`consume`; :meth:`flush` waits until that is durable.
        """
        check_seconds("wait", wait)
        with self._lock:
            self._connection.check_open()
            if self._receiver is None:
                self._receiver = Receiver(self._connection, self._timeout_s)
        lease_ms = None if lease is None else duration_ms(lease, 1)
        return self._receiver.receive((topic, group), max_messages, wait, lease_ms)

    def flush(self) -> None:
        """Wait until the acks of what :meth:`receive` gave are durable.

        Raises:
            StaleLeaseError, UnavailableError: some were not settled; those messages come again.
        """
        if self._receiver is not None:
            self._receiver.flush()

    # -- looking -------------------------------------------------------------------------------------------------------

    def pending(self) -> list[TopicPending]:
        """What is pending, by topic."""
        return [TopicPending(**topic) for topic in self._connection.action("pending", timeout_s=self._timeout_s)]

    def status(self) -> dict[str, Any]:
        """The broker's health and counters."""
        return dict(self._connection.action("status", timeout_s=self._timeout_s))

    def ping(self) -> dict[str, Any]:
        """The broker's clock (``now_ms``) and ``version``.

        Raises:
            UnavailableError: it cannot be reached.
        """
        return dict(self._connection.action("ping", timeout_s=self._timeout_s))

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for answers under way, send the last acks, close the consumers."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for consumer in list(self._consumers):
            consumer.close()
        if self._receiver is not None:
            self._receiver.close()
        self._producer.close()
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Chunks:
    """Batches of messages as they are read from an iterable, and their receipts."""

    def __init__(self, messages: Iterable[Message | Mapping[str, Any]]) -> None:
        self._rows = iter(rows_of(messages))
        self._ids: dict[int, list[str | None]] = {}
        self._receipts: dict[int, list[Receipt]] = {}
        self._next = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while rows := self._take():
            self._ids[self._next] = [row[ID] for row in rows]
            self._next += len(rows)
            yield to_batch(rows, all_columns=True)

    def _take(self) -> list[Row]:
        rows: list[Row] = []
        size = 0
        for row in itertools.islice(self._rows, MANY_ROWS):
            rows.append(row)
            size += len(row[BODY])
            if size >= 8 << 20:
                break
        return rows

    def accept(self, accepted: Accepted) -> None:
        first, rows, token = accepted.first_seq, accepted.count, accepted.token
        ids = self._ids.pop(accepted.row)
        self._receipts[accepted.row] = [
            Receipt(id or id_of(seq), seq, due, first, rows, token)
            for seq, due, id in zip(range(first, first + rows), accepted.due_ms.tolist(), ids, strict=True)
        ]

    def receipts(self) -> list[Receipt]:
        return [receipt for row in sorted(self._receipts) for receipt in self._receipts[row]]


def _resolve(answers: list[tuple[Future[Receipt], Receipt | TarryError]]) -> None:
    for future, answer in answers:
        if isinstance(answer, TarryError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


@atexit.register
def _close_all() -> None:
    # A thread of ours that comes back from gRPC while the interpreter goes away would take the process down with it.
    for client in list(_open_clients):
        client.close()
