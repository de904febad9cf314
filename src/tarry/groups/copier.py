"""Copies messages to the dead letters, and settles the messages when their copies are durable."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tarry.base.errors import CorruptError, TarryError
from tarry.groups.copies import CopyBatch
from tarry.groups.dead_letter_rows import dead_letter_copies
from tarry.groups.group_state import GroupState
from tarry.groups.services import GroupServices, ScheduleRows
from tarry.groups.states import State, StateEvent, move
from tarry.groups.wakeups import Wakeups

log = logging.getLogger(__name__)


@dataclass(eq=False)
class DeadLetterCopier:
    """Copies a group's messages to the dead letters. Any thread. ``put_copies`` schedules the copies."""

    _state: GroupState
    _news: Wakeups
    _services: GroupServices
    _put_copies: ScheduleRows
    _ended: threading.Condition = field(init=False)
    """Notified when a copy is not under way any more."""

    def __post_init__(self) -> None:
        self._ended = threading.Condition(self._state.lock)

    def run(self) -> None:
        """Make the copies that are to be made.

        Call without the lock: the callback comes from the intake's writer, which must not wait for threads that wait
        for it; without threads, it comes from within this call.
        """
        while self._state.copies and not self._state.closed:
            with self._state.lock:
                batch = self._state.copies.begin(self._services.clock.now_ms())
            if batch is None:
                return
            try:
                self._copy(batch)
            except TarryError as error:
                self._on_copied(batch, error)
            except BaseException:
                with self._state.lock:
                    if batch.state is State.BURYING:
                        self._state.copies.fail(batch, self._services.clock.now_ms())
                        self._ended.notify_all()
                raise

    def wait(self, timeout_s: float) -> None:
        """Wait until a copy has ended, or for a time.

        With the lock held, which is released meanwhile.
        """
        self._ended.wait(timeout_s)

    def _copy(self, batch: CopyBatch) -> None:
        topic = self._state.topic
        looked, kept_offsets, rows = topic.read_rows(batch.offsets)
        with self._state.lock:
            if looked < len(batch.offsets):
                self._state.copies.shorten(batch, looked)
            kept = np.isin(batch.offsets, kept_offsets)
            if not kept.all():
                deleted = batch.offsets[~kept]
                batch.attempts, batch.offsets = batch.attempts[kept], kept_offsets
                move(move(State.BURYING, StateEvent.BURY_FAILED), StateEvent.DROP)
                self._state.lose(deleted)
            reasons = self._state.reasons.of(batch.offsets)
        if rows is None:
            self._on_copied(batch, None)
            return
        copies = dead_letter_copies(
            rows,
            topic=topic.name,
            group=self._state.name,
            cause=batch.cause,
            attempts=batch.attempts - 1,
            now_ms=self._services.clock.now_ms(),
            reasons=reasons,
        )
        self._put_copies(copies, partial(self._on_copied, batch))

    def _on_copied(self, batch: CopyBatch, result: object) -> None:
        """Settle messages whose copies are durable, or retry later if they were refused.

        A crash before this makes the copies once more.
        """
        try:
            ticket = self._services.ticket()
            with self._state.lock:
                if isinstance(result, TarryError):
                    self._state.copies.fail(batch, self._services.clock.now_ms())
                    if not isinstance(result, CorruptError):  # already logged where the damage was found
                        log.warning(
                            "group %r of topic %r: %d dead letters were refused, to be tried again: %s",
                            self._state.name, self._state.topic.name, len(batch.offsets), result,
                        )  # fmt: skip
                else:
                    self._state.copies.finish(batch)
                    entries = self._state.settle(batch.offsets)
                    if entries and not self._state.deleted:
                        self._services.journal.write(entries, ticket)
                self._ended.notify_all()
            self._news.notify()
        except TarryError as error:
            # The journal is closed, or has failed: the copies are made again after the restart.
            log.warning("group %r of topic %r: %s", self._state.name, self._state.topic.name, error)
