"""Schedules messages: checks them, gives them to the intake's writer, answers when they are durable."""

from __future__ import annotations

import threading
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from tarry.api.local import OnAccepted
from tarry.base.clock import Clock
from tarry.base.delay import Delay, check_due, datetime_ms, due_from_delay
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.base.waiting import answer_of
from tarry.broker.acceptance import Acceptance
from tarry.broker.commands.cancel import CancelCommand
from tarry.broker.commands.schedule_named import ScheduleNamed
from tarry.broker.topic_bound import TopicBound
from tarry.intake import NO_ROWS, Command, Submission
from tarry.log.commit import SMALL_BYTES, GroupCommit
from tarry.message.accepted import Accepted, with_own_handles
from tarry.message.admission import KeyPolicy, MessageLimits, admit, key_policies

_GROWING = frozenset(type.id for type in (pa.dictionary(pa.int32(), pa.string()), pa.string_view(), pa.binary_view()))
"""Types of columns whose rows may share what they refer to: small until it is written out."""
_GROWING_ROWS = 16


@dataclass(eq=False)
class Scheduling:
    """Schedules messages. Any thread.

    ``dedupe``: ids are remembered; ``secret`` signs handles.
    """

    _acceptance: Acceptance
    _bound: TopicBound
    _commits: GroupCommit[Submission]
    _clock: Clock
    _limits: MessageLimits
    _secret: bytes
    _: KW_ONLY
    dedupe: bool
    _growing: threading.Lock = field(default_factory=threading.Lock)

    def submit(
        self,
        data: pa.RecordBatch | pa.Table,
        on_result: OnAccepted,
        *,
        lead: bool = False,
        internal: bool = False,
        own_handles: bool = False,
    ) -> None:
        """Schedule a batch, all of it or nothing; see :meth:`tarry.api.local.AnyBroker.submit`."""
        self._acceptance.check()
        if own_handles:
            on_result = self._with_own_handles(on_result)
        # Of a few rows it is not asked: that takes some microseconds, and they have no more than their bodies may have.
        if data.num_rows >= _GROWING_ROWS and any(type.id in _GROWING for type in data.schema.types):
            # A kilobyte may stand for a batch of the largest size. One at a time is written out, and counted among what
            # waits for the disk before the next: else as many as there are callers would be in memory at once.
            with self._growing:
                self._admit(data, on_result, lead=lead, internal=internal)
        else:
            self._admit(data, on_result, lead=lead, internal=internal)

    def _admit(self, data: pa.RecordBatch | pa.Table, on_result: OnAccepted, *, lead: bool, internal: bool) -> None:
        batch = admit(data, self._clock.now_ms(), self._limits, start_ms=self._clock.start_ms(), internal=internal)
        self._bound.check(batch.column("topic"))
        self._submit(batch, key_policies(data) if self._has_names(batch) else None, on_result, lead=lead)

    def submit_checked(self, batch: pa.RecordBatch, on_result: OnAccepted, *, own_handles: bool = False) -> None:
        """Schedule as :meth:`submit` a batch of :data:`tarry.message.schema.UNNUMBERED` with checked rows.

        The caller has checked the rows.
        """
        self._acceptance.check()
        self._bound.check(batch.column("topic"))
        self._submit(batch, None, self._with_own_handles(on_result) if own_handles else on_result, lead=False)

    def _with_own_handles(self, on_result: OnAccepted) -> OnAccepted:
        secret = self._secret

        def answer(result: Accepted | TarryError) -> None:
            on_result(with_own_handles(result, secret) if isinstance(result, Accepted) else result)

        return answer

    def put(self, batch: pa.RecordBatch, on_result: OnAccepted) -> None:
        """Schedule messages that the broker itself makes (dead letters, say), without dedupe and key policy.

        ``batch`` is of UNNUMBERED. Raises as :meth:`submit`.
        """
        self._acceptance.check()
        self._commits.submit(Submission(batch, on_result), _size(batch))

    def carry_out(self, command: Command) -> None:
        """Have the intake's writer decide and answer a command.

        Raises:
            OverloadedError, DiskFullError, ClosedError, FatalError: not now; it is not answered.
        """
        self._acceptance.check_disk(is_cancelling=isinstance(command, CancelCommand))
        self._commits.submit(Submission(NO_ROWS, _nobody, command), 256, lead=False)

    def _submit(
        self, batch: pa.RecordBatch, policies: list[KeyPolicy] | None, on_result: OnAccepted, *, lead: bool
    ) -> None:
        command = None
        if self._has_names(batch):
            command = ScheduleNamed(batch, policies, on_result, secret=self._secret, dedupe=self.dedupe)
        self._commits.submit(Submission(batch, on_result, command), _size(batch), lead=lead)

    def _has_names(self, batch: pa.RecordBatch) -> bool:
        rows = batch.num_rows
        has_ids = self.dedupe and batch.column("id").null_count < rows
        # A series has one, too: its first occurrence's seq.
        return bool(has_ids or batch.column("key").null_count < rows or batch.column("repeat").null_count < rows)

    def schedule_batch(self, data: pa.RecordBatch | pa.Table) -> Accepted:
        """:meth:`submit`, and wait until it is durable."""

        def begin(on_result: OnAccepted) -> None:
            self.submit(data, on_result)

        return answer_of(begin)

    def due_ms(self, delay: Delay | None, due: datetime | int | None) -> int:
        """Return the instant that ``delay`` from now, or ``due``, means.

        This broker's clock, delay levels and limit decide.

        Raises:
            InvalidArgumentError: not exactly one of them is given, or it is not allowed.
        """
        if (delay is None) == (due is None):
            raise InvalidArgumentError(f"delay is {delay!r} and due {due!r}; allowed: one of them")
        now_ms, start_ms = self._clock.now_ms(), self._clock.start_ms()
        if due is None:
            due_ms = due_from_delay(0 if delay is None else delay, now_ms, self._limits.levels, start_ms=start_ms)
        else:
            due_ms = datetime_ms(due) if isinstance(due, datetime) else int(due)
        if due_ms < 0:
            raise InvalidArgumentError(f"due is {due_ms}; allowed: 0 or more (milliseconds since 1970)")
        return check_due(due_ms, start_ms, self._limits.delay_ms_max)


def _size(batch: pa.RecordBatch) -> int:
    # About its memory; to ask for nbytes of a small batch takes longer than the rest of what is done with it. What is
    # behind a slice may be far larger than the slice.
    body = batch.column("body")
    size = body.get_total_buffer_size()
    return int(batch.num_rows * 128 + (size if size <= SMALL_BYTES else body.nbytes))


def _nobody(_: Any) -> None:
    raise AssertionError("a command answers its own caller")  # pragma: no cover
