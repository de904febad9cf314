"""The picture of a run: load, lateness, and the broker's state over the time of the replay.

The kill is marked.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tarry.base.types import Int64s
from tarry_demo.account import Downtime, FirstHandOuts, Floats
from tarry_demo.monitor import BrokerSnapshot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BIN_S = 0.5
LATE_MS_MIN = 0.1
"""The lowest lateness on the logarithmic axis."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_BLUE, _ORANGE, _RED, _GREY, _GREEN = "#3b6ea8", "#e08214", "#b2182b", "#666666", "#4d9221"


def draw(
    path: Path,
    *,
    firsts: FirstHandOuts,
    delivered: pa.Table,
    looks: list[BrokerSnapshot],
    start_ms: int,
    seconds: float,
    instant_ms: Int64s,
    outage: Downtime | None,
) -> None:
    """Write the picture as PNG."""
    # Not pyplot: it keeps figures in a global list and may look for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 9.5), layout="constrained")
    FigureCanvasAgg(figure)
    load, late, held = figure.subplots(3, 1, sharex=True, height_ratios=[3, 4, 2.4])
    due_s = (firsts.due_ms - start_ms) / 1000
    handed_s = delivered.column("handed_out_ns").to_numpy() / 1e9 - start_ms / 1000
    edges = np.arange(0, max(seconds, float(due_s.max(initial=0.0))) + 2 * BIN_S, BIN_S)
    _load(load, due_s, handed_s, edges)
    _lateness(late, due_s, firsts.late_ms, edges)
    _held(held, looks, start_ms)
    if outage is not None:
        _mark(figure.axes, late, outage, start_ms)
    _months(load, instant_ms, seconds)
    held.set_xlabel("seconds of the replay")
    held.set_xlim(-2, edges[-1] + 2)
    figure.suptitle("Tarry: New York's departures of 2013, each a delayed message", fontsize=13, fontweight="bold")
    figure.savefig(path, dpi=110)


def _load(axes: Axes, due_s: Floats, handed_s: Floats, edges: Floats) -> None:
    due = np.histogram(due_s, edges)[0] / BIN_S
    handed = np.histogram(handed_s, edges)[0] / BIN_S
    axes.fill_between(edges[:-1], due, step="post", color=_BLUE, alpha=0.35, label="due")
    axes.step(edges[:-1], handed, where="post", color=_ORANGE, linewidth=1.0, label="handed out")
    axes.set_ylabel("messages a second")
    _from_zero(axes)
    _dress(axes, "Load, and the months of 2013")


def _lateness(axes: Axes, due_s: Floats, late_ms: Floats, edges: Floats) -> None:
    shown = np.maximum(late_ms, LATE_MS_MIN)
    early_s = due_s[late_ms < 0]
    if len(early_s):
        axes.plot(early_s, np.full(len(early_s), LATE_MS_MIN), "v", color=_RED, label=f"EARLY: {len(early_s):,}")
    axes.plot(due_s, shown, ",", color=_BLUE, alpha=0.35, rasterized=True)
    middle = edges[:-1] + BIN_S / 2
    for name, share, colour in (("p50", 50, _GREEN), ("p99", 99, _ORANGE), ("max", 100, _RED)):
        axes.plot(middle, _by_bin(due_s, shown, edges, share), color=colour, linewidth=1.4, label=name)
    axes.set_yscale("log")
    axes.set_ylabel("late by, ms")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _dress(axes, f"Lateness: each message is a dot; the lines are of each {BIN_S:g} s")


def _by_bin(due_s: Floats, late_ms: Floats, edges: Floats, share: float) -> Floats:
    """Return a percentile of each bin; NaN for an empty bin. ``due_s`` ascends."""
    cuts = np.searchsorted(due_s, edges)
    parts = (late_ms[a:b] for a, b in pairwise(cuts))
    return np.array([np.percentile(part, share, method="higher") if len(part) else np.nan for part in parts])


def _held(axes: Axes, looks: list[BrokerSnapshot], start_ms: int) -> None:
    at_s = np.array([(look.at_ms - start_ms) / 1000 for look in looks])
    axes.plot(at_s, [look.pending / 1000 for look in looks], color=_BLUE, label="pending messages, thousands")
    axes.plot(at_s, [look.broker_bytes / 2**20 for look in looks], color=_RED, label="memory of the broker, MiB")
    _from_zero(axes)
    _dress(axes, "What the broker holds")


def _mark(every: list[Any], named: Axes, outage: Downtime, start_ms: int) -> None:
    killed_s, serving_s = (outage.killed_ms - start_ms) / 1000, (outage.serving_ms - start_ms) / 1000
    for axes in every:
        axes.axvspan(killed_s, serving_s, color=_RED, alpha=0.20, linewidth=0)
        axes.axvspan(serving_s, killed_s + outage.gap_s, color=_RED, alpha=0.08, linewidth=0)
        axes.axvline(killed_s, color=_RED, linewidth=1.0, linestyle="--")
    named.annotate(
        f" killed (SIGKILL)\n served again after {outage.seconds:.2f} s\n next message after {outage.gap_s:.2f} s",
        (killed_s + outage.gap_s, 0.97),
        xycoords=("data", "axes fraction"),
        va="top",
        color=_RED,
        fontsize=9,
    )


def _months(axes: Axes, instant_ms: Int64s, seconds: float) -> None:
    months = instant_ms.astype("datetime64[ms]").astype("datetime64[M]")
    names, first = np.unique(months, return_index=True)
    whole = max(1, int(instant_ms[-1] - instant_ms[0]))
    at_s = (instant_ms[first] - instant_ms[0]) / whole * seconds
    top = axes.secondary_xaxis("top")
    top.set_xticks(at_s, [MONTHS[int(name.astype(np.int64)) % 12] for name in names], fontsize=8, color=_GREY)
    top.tick_params(length=3, color=_GREY)


def _from_zero(axes: Axes) -> None:
    # Some room above, where the legend is.
    axes.set_ylim(0, 1.2 * axes.get_ylim()[1])


def _dress(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(loc="upper right", fontsize=8, ncols=3, framealpha=0.9)
    axes.grid(alpha=0.25, linewidth=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
