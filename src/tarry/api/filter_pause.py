"""Pauses groups whose filter takes too long, for a while or until the filter is set again.

Their consumers pause, too. So no user who may set a filter can stop the others who share a broker, or a gateway.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tarry.base.clock import Clock
from tarry.base.delay import format_ms
from tarry.base.errors import FilterPausedError
from tarry.base.types import Mask
from tarry.message.filter_sql import FilterTooSlowError, SqlFilter

log = logging.getLogger(__name__)

PART_ROWS, PART_S = 1024, 0.05
"""Messages that are filtered at a time, and the CPU time that they may take."""
PAUSE_MS = 60_000
"""Milliseconds for which a filter that took too long is paused."""


@dataclass(eq=False)
class FilterPause:
    """Pause of one group's filter. Any thread."""

    _group: str
    _topic: str
    _clock: Clock
    _reason: str = ""
    _until_ms: int = 0
    _times_set: int = 0

    @property
    def reason(self) -> str:
        """The reason why the filter is paused; empty: it is not."""
        return self._reason if self._clock.now_ms() < self._until_ms else ""

    def end(self) -> None:
        """End the pause: the filter was set, or may have been."""
        self._times_set += 1
        self._reason, self._until_ms = "", 0

    def check(self) -> None:
        """Check that the filter is not paused.

        Raises:
            FilterPausedError: it is paused.
        """
        if reason := self.reason:
            raise FilterPausedError(
                f"group {self._group!r} of topic {self._topic!r} is not served until {format_ms(self._until_ms)}, or "
                f"until its filter is set: {reason}"
            )

    def mask(self, wanted: SqlFilter, batch: pa.RecordBatch) -> Mask:
        """See which rows it is true for, a part at a time.

        Raises:
            FilterPausedError: it takes too long, and is paused.
        """
        times_set = self._times_set
        parts = [batch.slice(at, PART_ROWS) for at in range(0, batch.num_rows, PART_ROWS)]
        try:
            return np.concatenate([np.zeros(0, np.bool_), *(_mask(wanted, part) for part in parts)])
        except FilterTooSlowError as error:
            self.begin(str(error), times_set)
            self.check()
            raise FilterPausedError(f"the filter of group {self._group!r} was set meanwhile; try again") from error

    def begin(self, reason: str, times_set: int | None = None) -> None:
        """Pause it; where it was set ``times_set`` times when it was evaluated, only if it was not set since."""
        if times_set not in (None, self._times_set):
            return
        # What is asked for without a lock is whether it is over: so the reason is there first.
        self._reason = reason
        self._until_ms = self._clock.now_ms() + PAUSE_MS
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
