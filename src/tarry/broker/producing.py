"""How messages are scheduled, by the broker's methods: :class:`tarry.broker.Broker` has them from here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tarry.api.admission import Limits, OnKey, admit, key_policies
from tarry.api.receipt import Receipt
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.delay import Delay, check_due, datetime_ms, due_from_delay, parse_duration_ms
from tarry.base.errors import InvalidArgumentError, InvalidMessageError, TarryError
from tarry.base.message import Message, check_topic, rows_to_batch
from tarry.base.waiting import answer_of
from tarry.broker.commands.named import Named
from tarry.broker.commands.round import Round
from tarry.intake import NO_ROWS, Accepted, Deed, Submission
from tarry.log.commit import GroupCommit
from tarry.repeat import Repeat, parse, to_json

if TYPE_CHECKING:
    from tarry.broker.recovery import Rooms


class Producing:
    """Thread-safe."""

    _rooms: Rooms
    _commits: GroupCommit[Submission]
    _limits: Limits
    config: Config
    clock: Clock

    def _check_open(self) -> None:
        raise NotImplementedError

    def _check_room(self) -> None:
        raise NotImplementedError

    def _check_disk(self) -> None:
        raise NotImplementedError

    def submit(
        self, data: pa.RecordBatch | pa.Table, done: Callable[[Accepted | TarryError], None], *, lead: bool = False
    ) -> None:
        """Schedule a batch, all of it or nothing (columns: :func:`tarry.api.admission.admit`).

        ``done`` is told when it is durable, or why it failed, from the writer's thread: it must be quick and not raise.
        With ``lead``, the caller's thread may be the writer's, and this returns when the disk has answered.

        Raises:
            InvalidMessageError, OverloadedError, DiskFullError, ClosedError, FatalError: nothing was accepted, ``done``
            is not called.
        """
        self._check_open()
        self._check_room()
        batch = admit(data, self.clock.now_ms(), self._limits)
        self._submit(batch, key_policies(data) if self._has_names(batch) else None, done, lead=lead)

    def submit_checked(self, batch: pa.RecordBatch, done: Callable[[Accepted | TarryError], None]) -> None:
        """:meth:`submit` for a batch of :data:`tarry.base.message.UNNUMBERED` whose rows the caller has checked one by
        one (:func:`tarry.api.admission.assembled`).

        Raises:
            OverloadedError, DiskFullError, ClosedError, FatalError: nothing was accepted, ``done`` is not called.
        """
        self._check_open()
        self._check_room()
        self._submit(batch, None, done, lead=False)

    def _submit(
        self,
        batch: pa.RecordBatch,
        policies: list[OnKey] | None,
        done: Callable[[Accepted | TarryError], None],
        *,
        lead: bool,
    ) -> None:
        # About its memory; to ask for nbytes of a small batch takes longer than the rest of this.
        size = batch.num_rows * 128 + batch.column("body").nbytes
        deed = None
        if self._has_names(batch):
            deed = Named(batch, policies, done, secret=self._rooms.secret, dedupe=self.config.dedupe_ms > 0)
        self._commits.submit(Submission(batch, done, deed), size, lead=lead)

    def _has_names(self, batch: pa.RecordBatch) -> bool:
        rows = batch.num_rows
        has_ids = self.config.dedupe_ms > 0 and batch.column("id").null_count < rows
        return bool(has_ids or batch.column("key").null_count < rows)

    def carry_out(self, deed: Deed) -> None:
        """Have the intake's writer decide and answer a deed.

        Raises:
            OverloadedError, DiskFullError, ClosedError, FatalError: not now; it is not answered.
        """
        self._check_open()
        self._check_disk()
        self._commits.submit(Submission(NO_ROWS, _nobody, deed), 256, lead=False)

    def begin_round(self, next_seq: int) -> Round:
        """For the intake's writer: what is to be decided in one commit."""
        r, now = self._rooms, self.clock.now_ms()
        known_from = max(r.registry.known_from_ms, now - self.config.retention_ms)
        return Round(r.wheel, r.loader, r.registry, now, next_seq, known_from)

    def put(self, batch: pa.RecordBatch, done: Callable[[Accepted | TarryError], None]) -> None:
        """Schedule what the broker itself makes (dead letters, say): a batch of :data:`tarry.base.message.UNNUMBERED`,
        without dedupe and key policy. ``done`` is told as by :meth:`submit`.

        Raises:
            OverloadedError, DiskFullError, ClosedError, FatalError: nothing was accepted, ``done`` is not called.
        """
        self._check_open()
        self._check_room()
        self._commits.submit(Submission(batch, done), batch.num_rows * 128 + batch.column("body").nbytes)

    def schedule_batch(self, data: pa.RecordBatch | pa.Table) -> Accepted:
        """:meth:`submit`, and wait until it is durable."""

        def begin(done: Callable[[Accepted | TarryError], None]) -> None:
            self.submit(data, done)

        return answer_of(begin)

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
        on_key: str | None = None,
        repeat: Repeat | Mapping[str, Any] | str | None = None,
        order_key: str | None = None,
        late: str | None = None,
    ) -> Receipt:
        """Schedule one message and wait until it is durable.

        Args:
            topic: where it will be delivered.
            body: what; a text is encoded as UTF-8.
            delay: how long from now (see :mod:`tarry.base.delay`); at once without ``delay`` and ``due``.
            due: the instant instead, an aware datetime or UTC milliseconds.
            id: the producer's own; a second message of that id and topic within the dedupe window is a duplicate.
            key: the producer's name for the schedule in its topic.
            on_key: what to do when a message of that key is pending: "replace" it (the default), "keep" it, "refuse".
            ttl: how long from now it is of use; seconds, a timedelta or "1h30m".
            tries: how often it is handed out before it goes to the dead letters.
            repeat: makes it the first of a series; see :mod:`tarry.repeat`.
            order_key: messages of one order key are consumed one after the other by groups that are ordered.
            late: what to do with it when its ttl has passed: "drop" it (the default), "dead": to the dead letters, or
                "deliver" it.

        Raises:
            InvalidMessageError, InvalidArgumentError: a value is not allowed; the text says which values are.
            KeyExistsError: with on_key "refuse", a message of that key is pending.
        """
        message = self.message(
            topic,
            body,
            delay=delay,
            due=due,
            id=id,
            key=key,
            tag=tag,
            properties=properties,
            ttl=ttl,
            tries=tries,
            on_key=on_key,
            repeat=None if repeat is None else to_json(parse(repeat, least_ms=self.config.repeat_ms_min)),
            order_key=order_key,
            late=late,
        )
        [receipt] = self.schedule_batch(rows_to_batch([message])).receipts([id])
        return receipt

    def message(
        self,
        topic: str,
        body: bytes | str,
        *,
        delay: Delay | None = None,
        due: datetime | int | None = None,
        ttl: float | str | timedelta | None = None,
        **fields: Any,
    ) -> Message:
        """A :class:`Message` with its times resolved by this broker's clock and settings."""
        due_ms = self._due_ms(0 if delay is None and due is None else delay, due)
        if not isinstance(body, bytes | str | bytearray | memoryview):
            raise InvalidMessageError(f"body has type {type(body).__name__}; allowed: bytes or str")
        data = body.encode() if isinstance(body, str) else bytes(body)
        return Message(check_topic(topic), data, due_ms, ttl_ms=None if ttl is None else _ttl_ms(ttl), **fields)

    def _due_ms(self, delay: Delay | None, due: datetime | int | None) -> int:
        if (delay is None) == (due is None):
            raise InvalidArgumentError(f"delay is {delay!r} and due {due!r}; allowed: one of them")
        now = self.clock.now_ms()
        if due is None:
            due_ms = due_from_delay(0 if delay is None else delay, now, self._limits.levels)
        else:
            due_ms = datetime_ms(due) if isinstance(due, datetime) else int(due)
        if due_ms < 0:
            raise InvalidArgumentError(f"due is {due_ms}; allowed: 0 or more (milliseconds since 1970)")
        return check_due(due_ms, now, self.config.delay_ms_max)


def _nobody(_: Accepted | TarryError) -> None:
    raise AssertionError("a deed tells its own caller")  # pragma: no cover


def _ttl_ms(ttl: float | str | timedelta) -> int:
    if isinstance(ttl, str):
        return parse_duration_ms(ttl)
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise InvalidArgumentError(f"ttl is {ttl!r}; allowed: more than 0 seconds, a timedelta, or a text like '1h30m'")
    return round(seconds * 1000)
