"""Which messages a group does not want, without a wait for whoever asks: a front's event loop, with the group's lock.

What a tag expression says is known at once. A condition is evaluated on the spot for few messages and a moment, and
else in a thread, without the group's lock; when its result is there, all who wait hear of it. One that takes too long
is paused, with the group's consumers, so that whoever may set a filter cannot stop those who share a front with it.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tarry.api.filter import Filter, unwanted_by
from tarry.api.filter_sql import FilterTooSlowError, SqlFilter
from tarry.base.clock import Clock
from tarry.base.delay import format_ms
from tarry.base.errors import FilterPausedError
from tarry.base.types import Int64s, Mask
from tarry.groups.news import News
from tarry.groups.policy import Policy
from tarry.groups.services import RunApart

log = logging.getLogger(__name__)

HERE_ROWS, HERE_S = 256, 0.005
"""So many messages are looked at on the spot, for so much CPU time."""
PART_ROWS, PART_S = 1024, 0.05
"""And so many at once in a thread."""
PAUSE_MS = 60_000
"""How long a filter that took longer is paused."""
_KNOWN_MAX = 65_536


@dataclass(eq=False)
class Filtering:
    """With the group's ``lock`` held, but for :meth:`wants`. ``run_apart`` is None where all happens in the caller's
    thread.
    """

    _group: str
    _topic: str
    _policy: Policy
    _lock: threading.RLock
    _news: News
    _clock: Clock
    _run_apart: RunApart | None
    _paused: str = ""
    _paused_until_ms: int = 0
    _is_slow: bool = False
    """It took too long on the spot."""
    _is_evaluating: bool = False
    _known: dict[int, bool] = field(default_factory=dict)
    """By offset, what was found in a thread: whether the condition is true."""

    @property
    def paused(self) -> str:
        """Why the filter is paused; empty: it is not."""
        return self._paused if self._clock.now_ms() < self._paused_until_ms else ""

    def restart(self) -> None:
        """The filter was set, or may have been: it has another chance."""
        self._paused, self._paused_until_ms, self._is_slow = "", 0, False
        self._known.clear()

    def unwanted(self, batch: pa.RecordBatch, offsets: Int64s) -> Mask:
        """Of the first rows of ``batch`` (:data:`tarry.base.message.SCHEMA`, at these offsets), which are for another
        group, or do not match: as many as is known now. Where that is none, the group's consumers hear when there is.

        Raises:
            FilterPausedError: it is paused.
        """
        wanted = self._policy.filter
        if not isinstance(wanted, SqlFilter):
            return unwanted_by(self._group, wanted, batch)
        self._check()
        if self._run_apart is None:
            return self._with_others(batch, self._whole(wanted, batch))
        if not self._is_slow and len(offsets) <= HERE_ROWS:
            try:
                return self._with_others(batch, wanted.mask_within(batch, HERE_S))
            except FilterTooSlowError:
                self._is_slow = True
        found = self._find(offsets)
        if len(found) < len(offsets) and not self._is_evaluating:
            part, at = batch.slice(len(found), PART_ROWS), offsets[len(found) : len(found) + PART_ROWS]
            try:
                self._run_apart(lambda: self._evaluate(wanted, part, at))
                self._is_evaluating = True
            except RuntimeError:
                pass  # the broker has stopped meanwhile: nothing is handed out any more
        return self._with_others(batch.slice(0, len(found)), found)

    def wants(self, batch: pa.RecordBatch) -> Mask:
        """See :meth:`tarry.api.consuming.ConsumerGroup.wants`. Without the lock."""
        wanted = self._policy.filter
        if not isinstance(wanted, SqlFilter):
            return ~unwanted_by(self._group, wanted, batch)
        with self._lock:
            self._check()
        return ~self._with_others(batch, self._whole(wanted, batch))

    def _check(self) -> None:
        if reason := self.paused:
            raise FilterPausedError(
                f"group {self._group!r} of topic {self._topic!r} is not served until "
                f"{format_ms(self._paused_until_ms)}, or until its filter is set: {reason}"
            )

    def _with_others(self, batch: pa.RecordBatch, matching: Mask) -> Mask:
        return unwanted_by(self._group, None, batch) | ~matching

    def _find(self, offsets: Int64s) -> Mask:
        found: list[bool] = []
        for offset in offsets.tolist():
            if (matches := self._known.get(offset)) is None:
                break
            found.append(matches)
        return np.array(found, np.bool_)

    def _evaluate(self, wanted: SqlFilter, batch: pa.RecordBatch, offsets: Int64s) -> None:
        matching = None
        try:
            matching = self._whole(wanted, batch)
        except FilterPausedError:
            pass  # those who ask next hear it
        except Exception as error:
            log.exception("the filter of group %r of topic %r cannot be evaluated", self._group, self._topic)
            self._pause(wanted, str(error))
        with self._lock:
            self._is_evaluating = False
            if matching is not None and self._policy.filter is wanted:
                if len(self._known) > _KNOWN_MAX:
                    self._known.clear()
                self._known.update(zip(offsets.tolist(), matching.tolist(), strict=True))
        self._news.notify()

    def _whole(self, wanted: SqlFilter, batch: pa.RecordBatch) -> Mask:
        """Evaluate it for all rows; any thread, without the lock where there are threads.

        Raises:
            FilterPausedError: it takes too long, and is paused.
        """
        parts = [batch.slice(at, PART_ROWS) for at in range(0, batch.num_rows, PART_ROWS)]
        try:
            return np.concatenate([np.zeros(0, np.bool_), *(_mask(wanted, part) for part in parts)])
        except FilterTooSlowError as error:
            self._pause(wanted, str(error))
            with self._lock:
                self._check()
            raise

    def _pause(self, wanted: Filter, reason: str) -> None:
        with self._lock:
            if self._policy.filter is not wanted:
                return
            self._paused, self._paused_until_ms = reason, self._clock.now_ms() + PAUSE_MS
        log.warning(
            "the filter of group %r of topic %r is paused for %d s: %s",
            self._group, self._topic, PAUSE_MS // 1000, reason,
        )  # fmt: skip


def _mask(wanted: SqlFilter, part: pa.RecordBatch) -> Mask:
    try:
        return wanted.mask_within(part, PART_S)
    except FilterTooSlowError:
        # Once more: it may have been Python's collection of garbage, which is nobody's filter.
        return wanted.mask_within(part, PART_S)
