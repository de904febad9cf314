"""The page of a forecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tarry.api.views import UNITS_MS
from tarry.spark.reports.pages import plots
from tarry.spark.reports.pages.render import render, size

if TYPE_CHECKING:
    from tarry.spark.reports.forecast.result import DayLoad, Needs, Outlook


_STYLES = "abcd"
GAP_MS_MIN = 7 * UNITS_MS["day"]
FEW_LATER = 0.01
HERD_ROWS = 100
"""Fewer messages of one instant are not a herd."""


def forecast_page(outlook: Outlook) -> str:
    """Return the whole page as HTML."""
    width_ms = UNITS_MS[outlook.unit]
    columns = [*outlook.shown_topics]
    if any(topic not in columns for unit in outlook.units for topic in unit.topics):
        columns.append("(others)")
    days, later = _together(outlook.days)
    return render(
        "forecast.html.j2",
        outlook=outlook,
        columns=columns,
        tiles=_tiles(outlook),
        needs=_needs(outlook),
        herds={
            "second": outlook.herds["second"],
            "instant": [herd for herd in outlook.herds["instant"] if herd.rows >= HERD_ROWS],
        },
        load=plots.bars(
            f"Messages that fall due in each {outlook.unit}",
            [unit.from_ms for unit in outlook.units],
            _layers(outlook),
            width_ms,
            unit=f"messages a {outlook.unit}",
        ),
        days=plots.bars(
            "Messages that fall due on each day",
            [day.from_ms for day in days],
            [plots.Layer("all", [day.rows for day in days])],
            UNITS_MS["day"],
            unit="messages a day",
        ),
        later=sum(day.rows for day in later),
        later_from_ms=later[0].from_ms if later else None,
    )


def _together(days: Sequence[DayLoad]) -> tuple[Sequence[DayLoad], Sequence[DayLoad]]:
    """Return the days that fit on one axis, and those after them.

    Few messages behind a gap that is longer than all before it would press everything else into a sliver.
    """
    few = sum(day.rows for day in days) * FEW_LATER
    for at in range(1, len(days)):
        span_ms = max(days[at - 1].from_ms - days[0].from_ms, GAP_MS_MIN)
        if days[at].from_ms - days[at - 1].from_ms > span_ms and sum(day.rows for day in days[at:]) <= few:
            return days[:at], days[at:]
    return days, []


def _layers(outlook: Outlook) -> list[plots.Layer]:
    """Return the largest topics, and the others together: as many as can be told apart by colour."""
    named = outlook.shown_topics[: len(_STYLES) - 1]
    layers = [
        plots.Layer(name, [unit.topics.get(name, 0) for unit in outlook.units], style)
        for name, style in zip(named, _STYLES, strict=False)
    ]
    rest = [unit.rows - sum(unit.topics.get(name, 0) for name in named) for unit in outlook.units]
    return [*layers, plots.Layer("other topics", rest, _STYLES[-1])] if any(rest) else layers


def _tiles(outlook: Outlook) -> list[tuple[str, str, str]]:
    within = sum(unit.rows for unit in outlook.units)
    busiest = max(outlook.units, key=lambda unit: unit.rows, default=None)
    store = outlook.sources
    return [
        ("pending", f"{outlook.rows:,}", f"{size(outlook.body_bytes)} of bodies"),
        ("due in this forecast", f"{within:,}", f"until {plots.moment(outlook.until_ms)}"),
        (f"busiest {outlook.unit}", f"{busiest.rows if busiest else 0:,}", size(busiest.body_bytes) if busiest else ""),
        ("fullest second", f"{outlook.needs.rate_for_a_second:,}", "messages"),
        ("store", size(store.store_bytes), f"{store.store_rows:,} rows in {store.files:,} files"),
    ]


def _needs(outlook: Outlook) -> list[tuple[str, str, str]]:
    needs, store = outlook.needs, outlook.sources
    free = max(0, store.store_rows - outlook.rows)
    days = needs.retention_ms / UNITS_MS["day"]
    return [
        (
            "delivery rate",
            f"{needs.rate_for_a_second:,} msg/s",
            f"that the fullest second is served within itself; reckoned with: {needs.rate:,.0f} msg/s",
        ),
        ("memory of the wheel", size(needs.wheel_bytes), _of_wheel(needs)),
        (
            "disk of the store",
            size(store.store_bytes),
            f"as it is now; up to {free:,} of its {store.store_rows:,} rows have fired or are cancelled, and go when "
            "it is compacted and expired",
        ),
        ("disk of the intake", size(store.intake_bytes), "what the store does not have yet, as it is now"),
        (
            "disk of the ready log",
            size(needs.ready_bytes),
            f"if no group acknowledges: the fullest {days:g} days of retention, from "
            f"{plots.moment(needs.ready_from_ms)} on",
        ),
    ]


def _of_wheel(needs: Needs) -> str:
    seconds = f"{needs.horizon_ms / 1000:g} s"
    full = needs.horizon.row_bytes if needs.horizon is not None else 0
    text = (
        f"what is due within {seconds} in the fullest {seconds} (bodies, texts and 72 bytes a message), and never more "
        f"than wheel_bytes_max, {size(needs.wheel_bytes_max)}"
    )
    if full <= needs.wheel_bytes_max:
        return text
    return f"{text}; the fullest one has {size(full)}, so it shrinks to {needs.wheel_horizon_ms / 1000:,.1f} s there"
