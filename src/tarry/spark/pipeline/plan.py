"""Start, extent and division of a batch: pure functions of the intake's state."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tarry.spark.broker_client import IntakeState

BATCH_BYTES_MAX = 2 << 30
"""A batch ends about here even below ``rows_max``.

Messages that are not committed cannot be deleted from the intake.
"""

RANGE_ROWS_MIN = 32_768
"""Smaller ranges would only make more small files."""

RANGES_PER_CORE = 4
"""Ranges of a large batch: several, so that a slow one at the end leaves little idle."""

RANGE_BYTES = 64 << 20
"""Bytes of a task in a smaller batch, in place of several tasks for each core.

Each task's files are all over the due times, and the more it has, the narrower they are, so that there is less to
merge.
"""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A batch starts when ``bytes_min`` wait, or when the oldest has waited ``interval_ms``."""

    bytes_min: int
    interval_ms: int
    rows_max: int


def batch_end(state: IntakeState, start_seq: int, trigger: Trigger, rows_max: int | None = None) -> int:
    """Return the exclusive end of the batch that starts at ``start_seq``.

    It is ``start_seq`` itself if no batch should start yet.
    """
    waiting_rows = state.durable_seq - start_seq
    # Until the broker has read the last commit, its waiting bytes and its oldest message include messages that are in
    # the store already.
    if waiting_rows <= 0 or state.committed_seq < start_seq:
        return start_seq
    oldest_age_ms = 0 if state.oldest_ms is None else state.now_ms - state.oldest_ms
    if state.waiting_bytes < trigger.bytes_min and oldest_age_ms < trigger.interval_ms:
        return start_seq
    by_bytes = max(1, BATCH_BYTES_MAX // row_bytes(state, start_seq))
    return start_seq + min(waiting_rows, rows_max or trigger.rows_max, trigger.rows_max, by_bytes)


def row_bytes(state: IntakeState, start_seq: int) -> int:
    """Return about how many bytes a message has that waits from ``start_seq`` on."""
    return max(1, state.waiting_bytes // max(1, state.durable_seq - start_seq))


def ranges(start_seq: int, end_seq: int, cores: int, row_bytes: int | None = None) -> list[tuple[int, int]]:
    """Divide ``[start_seq, end_seq)`` into one range a task; ``row_bytes`` None: not known."""
    rows = end_seq - start_seq
    if rows <= 0:
        return []
    most = cores * RANGES_PER_CORE
    if row_bytes is not None:
        most = min(most, max(cores, round(rows * row_bytes / RANGE_BYTES)))
    count = max(1, min(most, rows // RANGE_ROWS_MIN))
    cuts = [start_seq + rows * i // count for i in range(count + 1)]
    return list(pairwise(cuts))
