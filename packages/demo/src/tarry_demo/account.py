"""The account: accepted against delivered messages, by columns, without asking the broker.

A message is identified by its seq, which producer and consumer got independently of each other. Due times are those of
the producer's answers, hand-outs the moments in the consumer's loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarry.base.types import Int64s

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

PERCENTILES = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}


@dataclass(frozen=True, slots=True)
class Downtime:
    """The broker's downtime, from the kill until it served again; UTC."""

    killed_ms: int
    serving_ms: int

    next_hand_out_ms: int | None = None
    """Time at which the next message reached a consumer."""

    @property
    def seconds(self) -> float:
        return (self.serving_ms - self.killed_ms) / 1000

    @property
    def gap_s(self) -> float:
        """Seconds that consumers went without a message."""
        return ((self.serving_ms if self.next_hand_out_ms is None else self.next_hand_out_ms) - self.killed_ms) / 1000

    def holds(self, ms: Int64s) -> Bools:
        """Return a mask of the moments that are in the downtime."""
        return np.asarray((ms >= self.killed_ms) & (ms <= self.serving_ms), np.bool_)

    def delayed(self, due_ms: Int64s, late_ms: Floats) -> Bools:
        """Return a mask of the messages that were due and waiting between the kill and the next hand-out."""
        end_ms = self.killed_ms + 1000 * self.gap_s
        return np.asarray((due_ms <= end_ms) & (due_ms + late_ms >= self.killed_ms), np.bool_)


@dataclass(frozen=True, slots=True)
class LargestHerd:
    """The most messages due in one and the same millisecond."""

    due_ms: int
    messages: int
    last_late_ms: float | None
    """Lateness of the last of them; None when none came."""
    in_outage: bool


@dataclass(frozen=True, slots=True)
class Account:
    """The outcome of the messages.

    All are counts of messages, except those with a unit in the name.
    """

    accepted: int
    """Messages with an answer to the producer: they must be delivered."""
    delivered: int
    """Those of them that were handed out at least once."""
    lost: int
    duplicated: int
    """Hand-outs of a message that had been handed out before."""
    duplicated_by_kill: int
    """Those of them that had been handed out before the kill, and came again after it."""
    early: int
    """Hand-outs before the due time."""
    unanswered: int
    """Delivered though the producer never got an answer.

    They were accepted in the moment of the kill, and scheduled again.
    """
    strange: int
    """Hand-outs that do not fit, and seqs that were given twice.

    The message was never sent, or had another due time or content than was accepted.
    """
    lateness_ms: dict[str, float]
    """Percentiles of the first hand-outs."""
    lateness_up_ms: dict[str, float]
    """The same without messages that fell due while the broker was down."""
    due_in_outage: int
    lateness_calm_ms: dict[str, float]
    """The same without messages that were delayed by the kill.

    They were due and not handed out at any moment from the kill until the next hand-out after it.
    """
    delayed_by_kill: int
    herd: LargestHerd | None
    busiest_second: int
    """The most messages due within a second."""

    def to_json(self) -> dict[str, Any]:
        """Return the account as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class FirstHandOuts:
    """The first hand-out of each message, in due order: columns."""

    due_ms: Int64s
    late_ms: Floats


def account_of(accepted: pa.Table, delivered: pa.Table, *, rows: int, outage: Downtime | None = None) -> Account:
    """Compute the account of a run.

    Args:
        accepted: ``row``, ``seq``, ``due_ms`` of every message that the producer has an answer for; and ``exact``,
            not 0 where the due time is the flight's own: only these make herds, not what was late already when the
            producer got through to the broker again.
        delivered: ``row``, ``seq``, ``due_ms``, ``handed_out_ns`` of every hand-out.
        rows: how many there were to send; ``row`` is below.
    """
    sent, got = _columns(accepted), _columns(delivered)
    is_accepted, place = _find(sent["seq"], got["seq"])
    due_ms = np.where(is_accepted, _at(sent["due_ms"], place), got["due_ms"])
    is_delivered = np.isin(sent["seq"], got["seq"])
    seqs = np.unique(got["seq"])
    firsts = first_hand_outs(accepted, delivered)
    none = np.zeros(len(firsts.due_ms), np.bool_)
    down = none if outage is None else outage.holds(firsts.due_ms)
    delayed = none if outage is None else outage.delayed(firsts.due_ms, firsts.late_ms)
    return Account(
        accepted=len(sent["seq"]),
        delivered=int(is_delivered.sum()),
        lost=int((~is_delivered).sum()),
        duplicated=len(got["seq"]) - len(seqs),
        duplicated_by_kill=0 if outage is None else _twice_over(got, outage),
        early=int((got["handed_out_ns"] < due_ms * 1_000_000).sum()),
        unanswered=int((~np.isin(seqs, sent["seq"])).sum()),
        strange=_strange(sent, got, is_accepted, place, rows),
        lateness_ms=percentiles(firsts.late_ms),
        lateness_up_ms=percentiles(firsts.late_ms[~down]),
        due_in_outage=0 if outage is None else int(outage.holds(sent["due_ms"]).sum()),
        lateness_calm_ms=percentiles(firsts.late_ms[~delayed]),
        delayed_by_kill=int(delayed.sum()),
        herd=_herd(sent["due_ms"][sent["exact"] != 0], firsts, outage),
        busiest_second=_most(sent["due_ms"] // 1000)[1],
    )


def first_hand_outs(accepted: pa.Table, delivered: pa.Table) -> FirstHandOuts:
    """Return the first hand-out of each message.

    A second one is late by design, and is counted as a duplicate instead.
    """
    sent, got = _columns(accepted), _columns(delivered)
    order = np.lexsort((got["handed_out_ns"], got["seq"]))
    seq, first = np.unique(got["seq"][order], return_index=True)
    rows = order[first]
    is_accepted, place = _find(sent["seq"], seq)
    due_ms = np.where(is_accepted, _at(sent["due_ms"], place), got["due_ms"][rows])
    late_ms = (got["handed_out_ns"][rows] - due_ms * 1_000_000) / 1e6
    by_due = np.argsort(due_ms, kind="stable")
    return FirstHandOuts(due_ms[by_due], late_ms[by_due])


def percentiles(late_ms: Floats) -> dict[str, float]:
    """Return the percentiles by name; empty without values."""
    if len(late_ms) == 0:
        return {}
    # Measured values, none interpolated: "max" and p99.9 are hand-outs that took place.
    values = np.percentile(late_ms, list(PERCENTILES.values()), method="higher")
    return {name: round(float(value), 3) for name, value in zip(PERCENTILES, values, strict=True)}


def _twice_over(got: Mapping[str, Int64s], outage: Downtime) -> int:
    """Count the messages that were handed out on both sides of an outage."""
    before = got["handed_out_ns"] <= outage.serving_ms * 1_000_000
    return len(np.intersect1d(got["seq"][before], got["seq"][~before]))


def _strange(
    sent: Mapping[str, Int64s], got: Mapping[str, Int64s], is_accepted: Bools, place: Int64s, rows: int
) -> int:
    other = is_accepted & ((_at(sent["row"], place) != got["row"]) | (_at(sent["due_ms"], place) != got["due_ms"]))
    foreign = ~is_accepted & ((got["row"] < 0) | (got["row"] >= rows))
    twice = len(sent["seq"]) - len(np.unique(sent["seq"]))
    return int(other.sum()) + int(foreign.sum()) + twice


def _herd(due_ms: Int64s, firsts: FirstHandOuts, outage: Downtime | None) -> LargestHerd | None:
    if len(due_ms) == 0:
        return None
    due, count = _most(due_ms)
    late = firsts.late_ms[firsts.due_ms == due]
    in_outage = outage is not None and bool(outage.holds(np.array([due])).any())
    return LargestHerd(due, count, round(float(late.max()), 3) if len(late) else None, in_outage)


def _most(values: Int64s) -> tuple[int, int]:
    if len(values) == 0:
        return 0, 0
    value, count = np.unique(values, return_counts=True)
    most = int(count.argmax())
    return int(value[most]), int(count[most])


def _columns(table: pa.Table) -> dict[str, Int64s]:
    return {name: np.asarray(table.column(name).to_numpy(), np.int64) for name in table.column_names}


def _find(values: Int64s, wanted: Int64s) -> tuple[Bools, Int64s]:
    """For each of ``wanted``, return whether it is in ``values``, and its index (anything if it is not)."""
    if len(values) == 0:
        return np.zeros(len(wanted), np.bool_), np.zeros(len(wanted), np.int64)
    order = np.argsort(values, kind="stable")
    at = np.minimum(np.searchsorted(values, wanted, sorter=order), len(values) - 1)
    place = np.asarray(order[at], np.int64)
    return np.asarray(values[place] == wanted, np.bool_), place


def _at(values: Int64s, place: Int64s) -> Int64s:
    return values[place] if len(values) else np.full(len(place), -1, np.int64)
