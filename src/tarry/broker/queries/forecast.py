"""The load to come: how many messages fall due in each minute, hour or day.

The wheel is counted, and the intake too as long as it is small (it is, while the pipeline runs); the store tells by
what its files counted as they were written (``store/spread.py``). What time does not allow to look at makes ``unsure``,
which is a bound: the truth lies no farther from ``rows``.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarry.api.views import UNITS_MS, Forecast, Herd, Load
from tarry.base.delay import INT64_MAX
from tarry.base.errors import InvalidArgumentError
from tarry.base.types import Int64s, Key, Mask
from tarry.broker.queries.cut import Cut, Places, look_at
from tarry.intake.index import Window
from tarry.message.bulk import SEQ_MIN
from tarry.message.criteria import Criteria
from tarry.message.schema import messages_only
from tarry.message.topics import check_topic
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place
from tarry.store.scan import Alive
from tarry.store.spread import Dead, Share, StoreSpread
from tarry.store.tally import Tally

UNITS = {"minute": 60, "hour": 48, "day": 31}
"""Number of units of a forecast without ``until_ms``."""
UNITS_MAX = 10_000
HERD_ROWS = 100
"""Least messages of one instant that are a herd."""
HERDS_LISTED = 20
INTAKE_BYTES_MAX = 256 << 20
"""A larger intake is not read for a forecast: its index is."""
INTAKE_ROWS = 1 << 20
DEAD_ROWS_MAX = 200_000
"""Most cancelled messages of which a forecast looks up the due times."""
FOOTERS_S = 1.0
ROWS_S = 1.0
"""Time for reading footers of the store's files, and then rows of files that their footers leave open."""
HERDS_LOOKED_AT = 64
"""Most instants that may be herds whose messages are counted."""


def forecast(
    places: Places, now_ms: int, pending: Mapping[str, int], topic: str | None, unit: str, until_ms: int | None
) -> Forecast:
    """Forecast how many messages fall due in each unit of time, of one topic or of all.

    ``pending`` is the number of pending messages of each topic: where statistics do not know topics, a topic gets its
    share of all that is pending.

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
    load = look_at(places, lambda cut: _count(cut, pending, topic, Tally(cut.safe, until, start, UNITS_MS[unit])))
    low, guess, high = load.tally.bounds()
    rows = np.clip(_whole(guess), low, high)
    moments = range(start, until, UNITS_MS[unit])
    loads = [
        Load(*row) for row in zip(moments, rows.tolist(), np.maximum(rows - low, high - rows).tolist(), strict=True)
    ]
    herds = sorted(load.herds, key=lambda herd: (-herd.rows, herd.due_ms))[:HERDS_LISTED]
    return Forecast(
        unit, now_ms, until, loads, herds[0] if herds else None, sorted(herds, key=lambda herd: herd.due_ms)
    )


def _whole(parts: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Round the parts to whole numbers, so that their sum is the rounded sum."""
    return np.diff(np.rint(np.cumsum(parts)), prepend=0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Counted:
    tally: Tally
    herds: list[Herd]


def _count(cut: Cut, pending: Mapping[str, int], topic: str | None, tally: Tally) -> _Counted:
    wanted, share = Criteria(topic), _share(pending, topic)
    due, is_wanted = _in_wheel(cut, wanted)
    rest = sum(pending.values()) - len(due)
    exact, dead_due, dead_seq = [due[is_wanted]], *cut.dead_between(cut.safe, INT64_MAX, DEAD_ROWS_MAX)
    if cut.unbrought:
        due, is_wanted = _in_jobs(cut, wanted)
        rest -= len(due)
        exact.append(due[is_wanted])
    if cut.intake.bytes_from(cut.snapshot.committed_seq) <= INTAKE_BYTES_MAX:
        due, is_wanted = _in_intake(cut, wanted)
        rest -= len(due)
        exact.append(due[is_wanted])
    else:
        rest -= _count_index(cut, tally, share(None, None), dead_due, dead_seq)
    counted = np.concatenate(exact)
    certain = tally.numbers(counted)
    tally.count(counted)
    # Cancelled messages of the intake were left out above; files may have the others or not.
    in_store = (dead_seq < cut.snapshot.committed_seq) | (dead_seq >= SEQ_MIN)
    jobs = cut.registry.cancelled_jobs.numbers()
    listed_until_ms = int(dead_due[-1]) if len(dead_due) >= DEAD_ROWS_MAX else INT64_MAX
    dead = Dead(dead_due[in_store], dead_seq[in_store], cut.alive, cut.doubtful_until_ms, jobs, listed_until_ms)
    footers_s = time.monotonic() + FOOTERS_S
    spread = StoreSpread(cut.snapshot, tally, wanted, share, dead, footers_s, footers_s + ROWS_S)
    spread.run()
    herds = _herds(spread, counted)
    _leave_out_dead(cut, spread, rest)
    if listed_until_ms < INT64_MAX:
        _leave_out_unlisted(cut, spread, rest, listed_until_ms, certain)
    return _Counted(tally, herds)


def _herds(spread: StoreSpread, counted: Int64s) -> list[Herd]:
    """Return the instants with the most messages, each with all rows that it is known to have anywhere."""
    moments, rows = np.unique(counted[counted < spread.tally.until_ms], return_counts=True)
    most = np.argsort(-rows, kind="stable")[:HERDS_LOOKED_AT]
    seen = spread.may_be_herds.copy()
    seen.update(dict(zip(moments[most].tolist(), rows[most].tolist(), strict=True)))
    herds = []
    for moment, _ in seen.most_common(HERDS_LOOKED_AT):
        if spread.tally.after.due_ms <= moment < spread.tally.until_ms or moment in moments[most]:
            at = int(np.searchsorted(moments, moment))
            here = int(rows[at]) if at < len(moments) and moments[at] == moment else 0
            herds.append(Herd(moment, here + spread.rows_at(moment)))
    return [herd for herd in herds if herd.rows >= HERD_ROWS]


def _share(pending: Mapping[str, int], topic: str | None) -> Share:
    """Return a function that estimates ``topic``'s share of the messages in a range of topics.

    It assumes that topics are mixed there as they are in all that is pending.
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


def _in_jobs(cut: Cut, wanted: Criteria) -> tuple[Int64s, Mask]:
    """Return the same of what the loader has not brought yet: three columns of these jobs' files."""
    parts = []
    for rows in cut.unbrought:
        place = Place.of(rows.snapshot.root)
        for path in rows.snapshot.files.path:
            for group in groups(place, path):
                if (group.due_max_ms, group.seq_max) >= rows.low and (group.due_min_ms, group.seq_min) < rows.high:
                    batch = read_group(place, path, group.number, ["due_ms", "seq", *wanted.columns])
                    parts.append(_living(batch, wanted, partial(cut.alive_of, rows)))
    return _joined(parts)


def _in_intake(cut: Cut, wanted: Criteria) -> tuple[Int64s, Mask]:
    """Return due times of pending messages outside the wheel that the intake has, and which are wanted.

    Reads all of the intake, without bodies.
    """
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


def _count_index(cut: Cut, tally: Tally, share: float, dead_due: Int64s, dead_seq: Int64s) -> int:
    """Count the intake's messages by its index; return about how many messages it has in all.

    The index knows neither topics nor which messages are cancelled.
    """
    committed = cut.snapshot.committed_seq
    after, until = cut.safe, Key(tally.until_ms, 0)
    while after < until:
        due, seq, complete = cut.intake.select(Window(after, until, committed, cut.seq_max), INTAKE_ROWS)
        if share == 1:
            tally.count(due)
        else:
            tally.spread(due, due, np.ones(len(due), np.int64), share)
        after = until if complete else Key(int(due[-1]), int(seq[-1]) + 1)
    # A cancelled message is in the index twice, as itself and as its cancellation; one that was committed before is
    # there at most once, as its cancellation.
    is_here = (dead_seq >= committed) & (dead_seq < SEQ_MIN)
    twice = dead_due[is_here]
    if share == 1:
        tally.count(twice, -2)
        tally.count_perhaps_not(dead_due[~is_here], 0.0)
    return cut.seq_max - max(committed, cut.intake.first_seq) - 2 * len(twice)


def _leave_out_dead(cut: Cut, spread: StoreSpread, rest: int) -> None:
    """Take cancelled messages out of the tally that were not looked for in the store.

    It is not known whether the store has them. Their number is estimated: the store's rows, less the ``rest``, which
    are the pending messages that are in no other place.
    """
    dead, lost = spread.dead, spread.unknown & ~spread.found
    if lost.any():
        excess = _rows_from(cut, cut.safe.due_ms) - rest - int(spread.found.sum())
        not_looked_for = int((lost | (dead.due_ms >= spread.tally.until_ms)).sum())
        spread.tally.count_perhaps_not(dead.due_ms[lost], min(1.0, max(0.0, excess) / not_looked_for))


def _leave_out_unlisted(cut: Cut, spread: StoreSpread, rest: int, listed_ms: int, certain: Int64s) -> None:
    """Take cancelled messages out of the tally that are too many to be listed.

    They are spread evenly from the last listed one on.
    """
    found, files = int(spread.found.sum()), cut.snapshot.files
    if listed_ms < spread.tally.until_ms:
        excess = max(0.0, _rows_from(cut, cut.safe.due_ms) - rest - found)
        most = max(0, int(files.rows[files.due_max_ms >= cut.safe.due_ms].sum()) - rest - found)
        share = min(1.0, excess / max(1.0, _rows_from(cut, listed_ms)))
        spread.tally.lack(listed_ms, most, share, certain)


def _rows_from(cut: Cut, from_ms: int) -> float:
    """Return about how many rows the store has that are due then or later."""
    files = cut.snapshot.files
    low, high = files.due_min_ms.astype(np.float64), files.due_max_ms.astype(np.float64)
    return float((files.rows * np.clip((high + 1 - from_ms) / (high + 1 - low), 0, 1)).sum())
