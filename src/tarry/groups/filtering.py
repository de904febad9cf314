"""Filters messages of a group without making its callers wait, who hold the group's lock.

A caller may be a front's event loop. Tag expressions are evaluated at once. A condition is evaluated in a thread, which
reads the messages itself and has no group's lock; when its result is there, all waiting consumers are notified. A
condition that was quick there is evaluated on the spot for few messages from then on. One that takes too long is
paused, with the group's consumers, so that users who may set filters, of however many groups, cannot stop others who
share a front with them, or fill the memory. The CPU time of a condition is that of the consumer for whom messages are
looked at: it counts for the quota of its identity.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tarry.api.accounts import QuotaAccount, charge_filtering
from tarry.api.filter_pause import PART_ROWS, FilterPause
from tarry.base.errors import FilterPausedError, TarryError
from tarry.base.types import Int64s, Mask
from tarry.groups.filter_threads import RunApart
from tarry.groups.policy import Policy
from tarry.groups.wakeups import Wakeups
from tarry.message.filter import unwanted_by
from tarry.message.filter_sql import FilterTooSlowError, SqlFilter
from tarry.queue.topic import ReadRows

log = logging.getLogger(__name__)

HERE_ROWS, HERE_S, HERE_BYTES = 256, 0.005, 256 << 10
"""Limits of filtering on the spot: rows, seconds of CPU time, and bytes of properties."""
_PARTS_KNOWN = 4
"""Results that are kept: those of the queue's next rows, and of rows that waited, may come in turn."""


@dataclass(eq=False)
class Filtering:
    """Filter of one group. With the group's ``lock`` held, but for :meth:`wants`.

    ``run_apart`` is None if everything happens in the caller's thread.
    """

    _group: str
    _topic: str
    _policy: Policy
    _lock: threading.RLock
    _news: Wakeups
    _pause: FilterPause
    _run_apart: RunApart | None
    _read_rows: ReadRows
    asker: QuotaAccount | None = None
    """The account of the consumer for whom messages are looked at now; None: it has none."""
    _is_quick: bool = False
    """True if the filter was quick in a thread, so that it may be evaluated on the spot."""
    _is_slow: bool = False
    """True if the filter took too long on the spot, and is not evaluated there again."""
    _is_evaluating: bool = False
    _error: TarryError | None = None
    """The rows could not be read in a thread: who asks next hears why."""
    _known: deque[tuple[Int64s, Mask]] = field(default_factory=lambda: deque(maxlen=_PARTS_KNOWN))
    """Results of threads: offsets, ascending, and whether the condition is true for each."""

    @property
    def paused(self) -> str:
        """The reason why the filter is paused; empty: it is not."""
        return self._pause.reason

    @property
    def has_condition(self) -> bool:
        """True if the filter is a condition, whose CPU time counts. Lock-free."""
        return isinstance(self._policy.filter, SqlFilter)

    @property
    def is_evaluating(self) -> bool:
        """True if a thread is filtering messages; the group's consumers are notified of its end. Lock-free."""
        return self._is_evaluating

    def restart(self) -> None:
        """End the pause, and forget results: the filter was set, or may have been."""
        self._pause.end()
        self._error = None
        self._is_quick = self._is_slow = False
        self._known.clear()

    def look(self, offsets: Int64s) -> tuple[int, bool]:
        """Return how many of the rows at these offsets are worth reading, and whether any may match.

        A row is worth reading if it is known whether it matches, or can be found on the spot, and so are all rows
        before it. If none is, the group's consumers are notified when one is.

        Raises:
            FilterPausedError: it is paused. CorruptError: the rows cannot be read.
        """
        wanted = self._policy.filter
        if not isinstance(wanted, SqlFilter) or self._run_apart is None:
            return len(offsets), True
        self._pause.check()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        found = self._find(offsets)
        if len(found):
            return len(found), bool(found.any())
        if not self._is_evaluating and self._is_for_the_spot(wanted, len(offsets)):
            return len(offsets), True
        self._begin(wanted, offsets)
        return 0, False

    def unwanted(self, batch: pa.RecordBatch, offsets: Int64s) -> Mask:
        """Return which of the first rows are for another group, or do not match: as many as are known now.

        ``batch`` is of :data:`tarry.message.schema.SCHEMA`, at these offsets. If none is known, the group's consumers
        are notified when some are.

        Raises:
            FilterPausedError: it is paused.
        """
        wanted = self._policy.filter
        if not isinstance(wanted, SqlFilter):
            return unwanted_by(self._group, wanted, batch)
        self._pause.check()
        if self._run_apart is None:
            return self._with_others(batch, charge_filtering(self.asker, lambda: self._pause.mask(wanted, batch)))
        found = self._find(offsets)
        if not len(found):
            small = batch.column("properties").nbytes <= HERE_BYTES
            if small and self._is_for_the_spot(wanted, len(offsets)):
                try:
                    mask = charge_filtering(self.asker, lambda: wanted.mask_within(batch, HERE_S))
                    return self._with_others(batch, mask)
                except FilterTooSlowError:
                    self._is_quick, self._is_slow = False, True
            self._begin(wanted, offsets)
        return self._with_others(batch.slice(0, len(found)), found)

    def wants(self, batch: pa.RecordBatch, account: QuotaAccount | None = None) -> Mask:
        """See :meth:`tarry.api.consuming.ConsumerGroup.wants`. Without the lock."""
        wanted = self._policy.filter
        if not isinstance(wanted, SqlFilter):
            return ~unwanted_by(self._group, wanted, batch)
        self._pause.check()
        return ~self._with_others(batch, charge_filtering(account, lambda: self._pause.mask(wanted, batch)))

    def _is_for_the_spot(self, wanted: SqlFilter, rows: int) -> bool:
        # Not if it would wait for a thread that evaluates it for a reader by offsets. A thread looks at one part, and
        # no more of a long queue, when the quota of who asks has been used up meanwhile.
        if not self._is_quick or rows > HERE_ROWS or wanted.is_busy:
            return False
        return self.asker is None or self.asker.held_back(filters=True) is None

    def _with_others(self, batch: pa.RecordBatch, matching: Mask) -> Mask:
        return unwanted_by(self._group, None, batch) | ~matching

    def _find(self, offsets: Int64s) -> Mask:
        """Return whether the first of these rows match, as far as that is known."""
        at, masks = 0, [np.zeros(0, np.bool_)]
        while at < len(offsets):
            known = next((part for part in self._known if _has(part[0], offsets[at])), None)
            if known is None:
                break
            begin = int(np.searchsorted(known[0], offsets[at]))
            here, there = offsets[at : at + len(known[0]) - begin], known[0][begin : begin + len(offsets) - at]
            same = here == there
            count = len(same) if same.all() else int(np.argmin(same))
            masks.append(known[1][begin : begin + count])
            at += count
        return np.concatenate(masks)

    def _begin(self, wanted: SqlFilter, offsets: Int64s) -> None:
        """Filter the first of these rows in a thread.

        A group has one such task at a time. It holds no messages while it waits for its turn.
        """
        assert self._run_apart is not None
        if self._is_evaluating:
            return
        part, asker = offsets[:PART_ROWS], self.asker
        try:
            self._run_apart(lambda: self._evaluate(wanted, part, asker), self._is_quick, asker)
            self._is_evaluating = True
        except RuntimeError:
            pass  # the broker has stopped meanwhile: nothing is handed out any more

    def _evaluate(self, wanted: SqlFilter, offsets: Int64s, asker: QuotaAccount | None) -> None:
        matching, error, cpu_s = None, None, 0.0
        try:
            if self._policy.filter is not wanted:
                raise FilterPausedError("another filter was set meanwhile")
            looked, kept, batch = self._read_rows(offsets)
            began_s = time.thread_time()
            offsets = offsets[:looked]
            # A consumer that reads rows that retention has deleted finds that out.
            matching = np.ones(looked, np.bool_)
            if batch is not None:
                mask = charge_filtering(asker, lambda: self._pause.mask(wanted, batch))
                matching[np.searchsorted(offsets, kept)] = mask
            cpu_s = time.thread_time() - began_s
        except FilterPausedError:
            pass  # the next callers get the error
        except TarryError as refusal:
            error = refusal
        except Exception as failure:
            log.exception("the filter of group %r of topic %r cannot be evaluated", self._group, self._topic)
            with self._lock:
                if self._policy.filter is wanted:
                    self._pause.begin(str(failure))
        with self._lock:
            self._is_evaluating = False
            if self._policy.filter is wanted:
                self._error = error
                if matching is not None:
                    self._known.append((offsets, matching))
                    self._is_quick = not self._is_slow and cpu_s * HERE_ROWS <= HERE_S * max(HERE_ROWS, len(matching))
        self._news.notify()


def _has(offsets: Int64s, offset: np.int64) -> bool:
    at = int(np.searchsorted(offsets, offset))
    return at < len(offsets) and bool(offsets[at] == offset)
