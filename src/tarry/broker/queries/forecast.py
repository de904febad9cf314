"""The load to come: how many messages fall due in each minute, hour or day.

The wheel is counted, and the intake too as long as it is small (it is, while the pipeline runs); the store tells by its
statistics. Nothing of what is far away is read but footers of files.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarry.api.views import UNITS_MS, Forecast, Herd, Load
from tarry.base.criteria import Criteria
from tarry.base.delay import INT64_MAX
from tarry.base.errors import InvalidArgumentError
from tarry.base.message import check_topic, messages_only
from tarry.base.types import Int64s, Key, Mask
from tarry.broker.queries.cut import Cut, Places, look_at
from tarry.intake.index import Window
from tarry.store.scan import Alive
from tarry.store.spread import Share, Spread, spread_store

UNITS = {"minute": 60, "hour": 48, "day": 31}
"""How many are forecast where nobody says until when."""
UNITS_MAX = 10_000
HERD_ROWS = 100
"""Fewer messages of one instant are no herd."""
HERDS_LISTED = 20
INTAKE_BYTES_MAX = 256 << 20
"""A larger intake is not read for a forecast: its index is."""
INTAKE_ROWS = 1 << 20
DEAD_ROWS_MAX = 200_000
"""Where there are more cancelled messages than this, it is not looked up when they were due."""
FOOTERS_S = 0.5


def forecast(
    places: Places, now_ms: int, pending: Mapping[str, int], topic: str | None, unit: str, until_ms: int | None
) -> Forecast:
    """How many messages fall due in each unit of time, of one topic or of all. ``pending`` is how many are pending of
    each topic: where statistics do not know topics, a topic gets its share of all that is pending.

    Raises:
        InvalidArgumentError: names the argument, its value and what is allowed. And as :func:`look_at`.
    """
    if unit not in UNITS_MS:
        raise InvalidArgumentError(f"unit is {unit!r:.80}; allowed: {', '.join(UNITS_MS)}")
    if topic is not None:
        check_topic(topic)
    start = now_ms // UNITS_MS[unit] * UNITS_MS[unit]
    until = start + UNITS[unit] * UNITS_MS[unit] if until_ms is None else until_ms
    last = start + UNITS_MAX * UNITS_MS[unit]
    if isinstance(until, bool) or not isinstance(until, int) or not now_ms < until <= last:
        raise InvalidArgumentError(
            f"until_ms is {until!r:.80}; allowed: after {now_ms} (now) and up to {last} ({UNITS_MAX} units: {unit})"
        )
    spread = look_at(places, lambda cut: _spread(cut, pending, topic, start, unit, until))
    rows, unsure = _whole(np.maximum(spread.counted + spread.guessed, 0)), _whole(spread.unsure)
    moments = range(start, until, UNITS_MS[unit])
    loads = [Load(*load) for load in zip(moments, rows.tolist(), unsure.tolist(), strict=True)]
    moment, most = max(spread.herds.items(), key=lambda h: (h[1], -h[0]), default=(0, 0))
    listed = [Herd(at, count) for at, count in spread.herds.most_common(HERDS_LISTED) if count >= HERD_ROWS]
    largest = Herd(moment, most) if most >= HERD_ROWS else None
    return Forecast(unit, now_ms, until, loads, largest, sorted(listed, key=lambda herd: herd.due_ms))


def _whole(parts: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The parts rounded to whole numbers, so that their sum is the rounded sum."""
    return np.diff(np.rint(np.cumsum(parts)), prepend=0).astype(np.int64)


def _spread(cut: Cut, pending: Mapping[str, int], topic: str | None, start: int, unit: str, until: int) -> Spread:
    spread, wanted, share = Spread(cut.safe, until, start, UNITS_MS[unit]), Criteria(topic), _share(pending, topic)
    spread_store(cut.snapshot, spread, share, deadline_s=time.monotonic() + FOOTERS_S)
    due, is_wanted = _in_wheel(cut, wanted)
    rest = sum(pending.values()) - len(due)
    counted = [due[is_wanted]]
    if cut.intake.bytes_from(cut.snapshot.committed_seq) <= INTAKE_BYTES_MAX:
        due, is_wanted = _in_intake(cut, wanted)
        rest -= len(due)
        counted.append(due[is_wanted])
    else:
        rest -= _spread_intake(cut, spread, share)
    _leave_out_dead(cut, spread, share, rest)
    spread.count(np.concatenate(counted))
    return spread


def _share(pending: Mapping[str, int], topic: str | None) -> Share:
    """A function of a range of topics: which share of the messages in that range belongs to ``topic``, if topics are
    mixed there as they are in all that is pending.
    """
    if topic is None:
        return lambda low, high: 1.0
    names = sorted(pending)
    sums = [0, *accumulate(pending[name] for name in names)]

    def share(low: str | None, high: str | None) -> float:
        if low is not None and high is not None and not low <= topic <= high:
            return 0.0
        if low == high == topic:
            return 1.0
        first = 0 if low is None else bisect_left(names, low)
        end = len(names) if high is None else bisect_right(names, high)
        return pending.get(topic, 0) / max(1, sums[end] - sums[first])

    return share


def _in_wheel(cut: Cut, wanted: Criteria) -> tuple[Int64s, Mask]:
    """Due times of what is pending there, and which of it is wanted."""
    columns = ["due_ms", "seq", *wanted.columns]
    parts = [piece.batch.select(columns).slice(0, piece.below(cut.safe)) for piece in cut.pieces]
    batches = pa.Table.from_batches(parts).combine_chunks().to_batches() if parts else []
    return _joined([_living(batch, wanted, cut.alive_in_wheel) for batch in batches])


def _in_intake(cut: Cut, wanted: Criteria) -> tuple[Int64s, Mask]:
    """The same, of what is not in the wheel; by reading all of it, without bodies."""
    window = Window(cut.safe, Key(INT64_MAX, 0), cut.snapshot.committed_seq, cut.seq_max)
    start = max(window.seq_min, cut.intake.first_seq)
    columns = ["due_ms", "seq", "kind", *wanted.columns]

    def alive(due_ms: Int64s, seq: Int64s) -> Mask:
        mask = window.select(due_ms, seq)
        mask[mask] &= cut.alive(due_ms[mask], seq[mask])
        return mask

    batches = cut.intake.columns_between(start, cut.seq_max, columns)
    return _joined([_living(messages_only(batch), wanted, alive) for batch in batches])


def _living(batch: pa.RecordBatch, wanted: Criteria, alive: Alive) -> tuple[Int64s, Mask]:
    due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
    mask = alive(due, seq)
    return due[mask], wanted.mask(batch)[mask]


def _joined(parts: list[tuple[Int64s, Mask]]) -> tuple[Int64s, Mask]:
    due, masks = [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    return np.concatenate([*due, *(d for d, _ in parts)]), np.concatenate([*masks, *(m for _, m in parts)])


def _spread_intake(cut: Cut, spread: Spread, share: Share) -> int:
    """Add what the intake has by its index, which knows neither topics nor what is cancelled; about how many messages
    it has in all.
    """
    part, committed = share(None, None), cut.snapshot.committed_seq
    dead_due, dead_seq = cut.dead_between(cut.safe, spread.until_ms, DEAD_ROWS_MAX)
    after, until = cut.safe, Key(spread.until_ms, 0)
    while after < until:
        due, seq, complete = cut.intake.select(Window(after, until, committed, cut.seq_max), INTAKE_ROWS)
        if part == 1 and not len(dead_due):
            spread.count(due)
        else:
            spread.guess(due, part)
        after = until if complete else Key(int(due[-1]), int(seq[-1]) + 1)
    # A cancelled message is in the index twice, as itself and as its cancellation.
    dead_in_intake = dead_due[dead_seq >= committed]
    spread.guess(dead_in_intake, -2 * part)
    return cut.seq_max - max(committed, cut.intake.first_seq) - 2 * len(dead_in_intake)


def _leave_out_dead(cut: Cut, spread: Spread, share: Share, rest: int) -> None:
    """Take cancelled messages out of what the store's statistics came to.

    Some were cancelled before they came to the store, so it does not have all of them. How many it has: its rows, less
    the ``rest``, which are the pending messages that are in no other place.
    """
    due, seq = cut.dead_between(cut.safe, INT64_MAX, DEAD_ROWS_MAX)
    if not len(due):
        return
    everything = Spread(cut.safe, INT64_MAX, 0, INT64_MAX)
    spread_store(cut.snapshot, everything, lambda low, high: 1.0, deadline_s=time.monotonic() + FOOTERS_S, herds=False)
    rows = int(everything.counted.sum() + everything.guessed.sum())
    excess = min(rows, max(0, rows - rest))
    due = due[seq < cut.snapshot.committed_seq]
    if len(seq) < DEAD_ROWS_MAX:
        spread.guess(due, -min(1.0, excess / max(1, len(due))) * share(None, None))
    elif rows:
        spread.shrink(1 - excess / rows)  # as if they were cancelled evenly
