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
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from tarry.api.calls import Calls
from tarry.api.operation import Operation
from tarry.base.errors import InvalidArgumentError
from tarry.base.extras import native_missing, needs_native
from tarry.client.consume_options import ConsumeOptions, ReceiveOptions, check_seconds
from tarry.client.delivery import Delivery
from tarry.client.http.address import is_http
from tarry.client.way import WORK_S, Consumes, Way
from tarry.link.tls import ClientTls
from tarry.message.message import Message
from tarry.message.receipt import Receipt
from tarry.message.rows import Row

if TYPE_CHECKING:
    from tarry.client.bulk import Progress
    from tarry.client.native import NativeWay
    from tarry.link.address import BrokerAddress
    from tarry.link.places import BrokerPlaces
    from tarry.message.accepted import Accepted

CHUNK_ROWS = 16_384
"""Most rows of a chunk of :meth:`Client.schedule_batch`."""

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
            address: HOST:PORT, unix:PATH, or tls://HOST:PORT of the native link; http://HOST:PORT or
                https://HOST:PORT of the HTTP front, for which pyarrow need not be there; several with commas between
                them, of a broker that another machine may take over; or what was parsed.
            timeout: how many seconds a call waits for its answer.
            tls: whom to trust, and what to show; None: by ``address``, with the files that the environment names.
            token: shows a broker that asks who the client is; None: what :mod:`tarry.link.credentials` finds.

        Raises:
            InvalidArgumentError: ``address`` is none, or a file is not what it should be.
            NativeOnlyError: it is of the native link, for which something is not installed.
        """
        if timeout is None:
            raise InvalidArgumentError("timeout is None; allowed: a number of seconds")
        check_seconds("timeout", timeout)
        self._way = way_to(address, timeout, tls, token)
        self.address = self._way.address
        self._lock = threading.Lock()
        self._closed = False
        _open_clients.add(self)

    def call(self, operation: Operation[R]) -> R:
        """Have the broker carry an operation out; see :class:`tarry.api.calls.Calls`."""
        return self._way.call(operation)

    # -- producing -----------------------------------------------------------------------------------------------------

    def _schedule(self, row: Row) -> Receipt:
        """Schedule a message; calls of several threads share a round trip."""
        return self._way.schedule(row)

    def schedule_many(self, messages: Iterable[Message | Mapping[str, Any]]) -> list[Receipt]:
        """Schedule messages, or dicts with the arguments of :meth:`schedule`; return receipts, in order.

        A dict may have ``due_ms``, ``delay_ms`` and ``ttl_ms`` instead of those without ``_ms``.

        They travel in chunks, several at a time; each chunk is accepted whole or not at all.

        Raises:
            InvalidMessageError: ``row`` is the place of the bad message. Its chunk was not accepted, those before were.
            OverloadedError, DiskFullError, UnavailableError: as for :meth:`schedule_batch`.
        """
        return self._way.schedule_many(messages)

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
            NativeOnlyError: the address is of HTTP.
        """
        return self._way.schedule_batch(data, chunk_rows=chunk_rows, progress=progress)

    # -- consuming -----------------------------------------------------------------------------------------------------

    def consume(self, topic: str, *, group: str, **options: Unpack[ConsumeOptions]) -> Consumes:
        """Messages of ``topic`` for ``group``, as they fall due; iterate over it.

        Args:
            options: prefetch, lease, timeout, auto_ack, start, broadcast: see
                :class:`tarry.client.consume_options.ConsumeOptions` and
                :class:`tarry.client.consume_options.HoldOptions`.
        """
        return self._way.consume(topic, group, **options)

    def receive(self, topic: str, *, group: str, **options: Unpack[ReceiveOptions]) -> list[Delivery]:
        """Receive up to ``max_messages`` ready messages, or none; wait up to ``wait`` seconds for the first.

        Settle them as in :meth:`consume`; :meth:`flush` waits until that is durable.

        Args:
            options: max_messages, wait, lease, start, broadcast: see
                :class:`tarry.client.consume_options.ReceiveOptions` and
                :class:`tarry.client.consume_options.HoldOptions`.

        Raises:
            QuotaExceededError: the identity has received, or filtered, too much. It has no message for it: try again.
        """
        return self._way.receive(topic, group, **options)

    def flush(self) -> None:
        """Wait until the acks of what :meth:`receive` gave are durable.

        Raises:
            StaleLeaseError, UnavailableError: some were not settled; those messages come again.
        """
        self._way.flush()

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
        self._way.close(work_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._fail(error, WORK_S)
        self.close()

    def _fail(self, error: BaseException, work_s: float) -> None:
        """Fail what consumers had in hand and not settled, for this error."""
        self._way.fail(error, work_s)

    # -- what is of the native link alone ------------------------------------------------------------------------------

    @property
    def places(self) -> BrokerPlaces:
        """The broker's places, and the ways to reach them."""
        return self.native("to share its places").places

    def native(self, what: str) -> NativeWay:
        """Return the native link.

        Raises:
            NativeOnlyError: this client speaks HTTP, so that it cannot do ``what``.
        """
        if is_http(self.address):
            raise needs_native(what, self.address)
        way: Any = self._way
        native: NativeWay = way
        return native


def way_to(
    address: str | BrokerAddress | BrokerPlaces, timeout_s: float, tls: ClientTls | None, token: str | None
) -> Way:
    """Return the way to a broker; raises as :class:`Client`."""
    if is_http(address):
        from tarry.client.http.way import HttpWay

        return HttpWay(address, timeout_s, tls, token)
    try:
        from tarry.client.native import NativeWay
        from tarry.link.credentials import AdminTokenNotice
        from tarry.link.places import BrokerPlaces
    except ImportError as error:
        raise native_missing(address, error) from error
    return NativeWay(BrokerPlaces.of(address, tls, token, AdminTokenNotice()), timeout_s)


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
