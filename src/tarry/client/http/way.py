"""HTTP as a client's way to its broker: the methods of a client, each as its requests."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from tarry.api.operation import Operation
from tarry.api.operations import FindKey, GetGroup
from tarry.api.paths import BATCH, GROUP, MESSAGES
from tarry.base.delay import Delay
from tarry.base.errors import (
    ForbiddenError,
    InvalidArgumentError,
    InvalidMessageError,
    NotFoundError,
    TarryError,
    UnavailableError,
    from_wire,
)
from tarry.base.extras import needs_native
from tarry.client.consume_options import (
    CheckedConsumeOptions,
    ConsumeOptions,
    ReceiveOptions,
    check_count,
    check_seconds,
    held_by,
    lease_ms_of,
    settled_in,
)
from tarry.client.delivery import Delivery
from tarry.client.encoding import encoded
from tarry.client.http.address import http_addresses
from tarry.client.http.consumer import HttpConsumer
from tarry.client.http.exchange import Asked, Exchange
from tarry.client.http.operations import path_of, request_of, result_of
from tarry.client.http.received import HttpBatch, messages_of
from tarry.client.http.rows import fields_of, receipt_of
from tarry.client.http.settling import HttpSettler
from tarry.client.way import IN_DOUBT, patience_s
from tarry.message.message import Message
from tarry.message.receipt import Receipt
from tarry.message.rows import Row, rows_of

if TYPE_CHECKING:
    from tarry.client.bulk import Progress
    from tarry.link.tls import ClientTls
    from tarry.message.accepted import Accepted

R = TypeVar("R")
MANY_ROWS = 4096
"""Messages in one request of ``schedule_many``, at most."""
MANY_BYTES = 8 << 20
"""Bytes from which on a request of ``schedule_many`` gets no further message."""
LEASE_MS = 30_000
"""The lease of a consumer that asks for none, where it may not look at its group's settings."""
JSON_LINES = "application/x-ndjson"
MANY_IN_DOUBT = "; the messages may or may not have been accepted"


class HttpWay:
    """A :class:`tarry.client.way.Way`."""

    def __init__(self, addresses: str, timeout_s: float, tls: ClientTls | None, token: str | None) -> None:
        """``timeout_s``: how long a call waits for its answer.

        Raises:
            InvalidArgumentError: an address is none, or a file is not what it should be.
        """
        self._exchange = Exchange(http_addresses(addresses), timeout_s, tls, token)
        self.address = self._exchange.text
        self._settler = HttpSettler(self._exchange)
        self._consumers: weakref.WeakSet[HttpConsumer] = weakref.WeakSet()

    def call(self, operation: Operation[R]) -> R:
        """Have the broker carry an operation out."""
        wait_s = patience_s(operation, self._exchange.timeout_s) - self._exchange.timeout_s
        try:
            answered = self._exchange.ask(request_of(operation, self.address), wait_s=wait_s)
        except NotFoundError:
            if isinstance(operation, FindKey):
                return cast(R, None)
            raise
        return result_of(operation, answered)

    def schedule(self, row: Row) -> Receipt:
        """Schedule a message."""
        fields = fields_of(row)
        path = path_of(MESSAGES, fields)
        return self._exchange.ask(Asked("POST", path, encoded(fields)), in_doubt=IN_DOUBT).read(receipt_of)

    def schedule_many(self, messages: Iterable[Message | Mapping[str, Any]]) -> list[Receipt]:
        """Schedule messages, so many in a request; each is accepted or refused by itself."""
        receipts = list[Receipt]()
        for lines in _parts(encoded(fields_of(row)) for row in rows_of(messages)):
            asked = Asked("POST", BATCH, b"\n".join(lines), JSON_LINES, accept=JSON_LINES)
            answered = self._exchange.ask(asked, in_doubt=MANY_IN_DOUBT)
            receipts += _receipts(answered.body, len(receipts), len(lines))
        return receipts

    def schedule_batch(self, data: Any, *, chunk_rows: int, progress: Progress | None) -> list[Accepted]:
        """Refuse: columns travel by the native link.

        Raises:
            NativeOnlyError: always.
        """
        raise needs_native("to schedule columns (allowed, too: schedule_many)", self.address)

    def consume(self, topic: str, group: str, **options: Unpack[ConsumeOptions]) -> HttpConsumer:
        """Messages as they fall due."""
        checked = CheckedConsumeOptions(**options)
        self._exchange.check_open()
        held = held_by(checked.lease, checked.start, checked.broadcast)
        source = settled_in(topic, group, checked.broadcast)
        consumer = HttpConsumer(
            partial(self._receive, topic, group, held),
            partial(self._lease_of, source, checked.lease),
            self._settler,
            checked,
            self.address,
            f"consuming {topic} as {group}",
        )
        self._consumers.add(consumer)
        return consumer

    def receive(self, topic: str, group: str, **options: Unpack[ReceiveOptions]) -> list[Delivery]:
        """Receive ready messages, or none."""
        wait_s, count = options.get("wait", 0.0), options.get("max_messages", 1)
        check_count("max_messages", count)
        check_seconds("wait", wait_s)
        held = held_by(options.get("lease"), options.get("start"), options.get("broadcast"))
        return self._receive(topic, group, held, count, wait_s).messages()

    def flush(self) -> None:
        """Wait until all acks are durable."""
        self._settler.flush()

    def close(self, work_s: float) -> None:
        """Send the last acks, close the consumers."""
        if not self._exchange.birthplace.is_elsewhere:
            for consumer in list(self._consumers):
                consumer.close(work_s)
            self._settler.close()
        self._exchange.close()

    def fail(self, error: BaseException, work_s: float) -> None:
        """Fail what consumers had in hand and not settled, for this error."""
        for consumer in list(self._consumers):
            consumer.fail(error, work_s)

    def _receive(self, topic: str, group: str, held: Mapping[str, Any], count: int, wait_s: float) -> HttpBatch:
        body = {name: value for name, value in held.items() if value is not None}
        body |= {"max_messages": count, "wait_ms": round(wait_s * 1000)}
        path = path_of(f"{GROUP}/receive", {"topic": topic, "group": group})
        answer = self._exchange.ask(Asked("POST", f"{path}?encoding=base64", encoded(body)), wait_s=wait_s)
        return HttpBatch(messages_of(answer.json()), self._settler, settled_in(topic, group, held["broadcast"]))

    def _lease_of(self, source: tuple[str, str], lease: Delay | None) -> int:
        if (asked_ms := lease_ms_of(lease)) is not None:
            return asked_ms
        try:
            return self.call(GetGroup(*source)).lease_ms or LEASE_MS
        except ForbiddenError:
            return LEASE_MS


def _parts(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of each request."""
    part, size = list[bytes](), 0
    for line in lines:
        part.append(line)
        size += len(line)
        if len(part) == MANY_ROWS or size >= MANY_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _receipts(body: bytes, first: int, count: int) -> list[Receipt]:
    """Return the receipts of a request's ``count`` messages, whose first is number ``first``.

    Raises:
        InvalidMessageError: one was refused: ``row`` is its number. TarryError: all of them were, for a reason of the
            broker's. UnavailableError: it is not the answer to all of them; it was cut, or somebody else's.
    """
    try:
        lines = [json.loads(line) for line in body.splitlines()]
        refused = next((values for values in lines if "error" in values), None)
        if refused is not None:
            row, error = first + int(refused["row"]), from_wire(str(refused["error"]), str(refused["message"]))
        receipts = [] if refused is not None else [receipt_of(values) for values in lines]
    except (InvalidArgumentError, ValueError, TypeError, LookupError, RecursionError) as unread:
        raise UnavailableError(f"the broker's answer could not be read: {body[:80]!r}{MANY_IN_DOUBT}") from unread
    if refused is not None:
        if isinstance(error, InvalidMessageError):
            raise error.of_row(row)
        raise TarryError(f"row {row}: {error}") if error.code == "internal" else error
    if len(receipts) != count:
        raise UnavailableError(f"the broker's answer has {len(receipts)} receipts of {count}{MANY_IN_DOUBT}")
    return receipts
