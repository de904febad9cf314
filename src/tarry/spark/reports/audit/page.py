"""The page of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tarry.spark.reports.pages import plots
from tarry.spark.reports.pages.plots import Line
from tarry.spark.reports.pages.render import render

if TYPE_CHECKING:
    from tarry.spark.reports.audit.result import Audit, Counts

NAMES = {
    "cancelled_delivered": "cancelled, and delivered",
    "mixed_up": "mixed up",
    "due_changed": "due time changed",
    "unanswered_delivered": "delivered without an answer",
    "missed": "missed by a group",
}
_LINES = (("p50", "d"), ("p99", "a"), ("max", "b"))


def audit_page(audit: Audit) -> str:
    """Return the whole page as HTML."""
    from tarry.spark.reports.audit.result import FAILURES, PERCENTILES, REMARKS

    meanings = FAILURES | REMARKS
    late = [] if audit.late_max_ms is None else [("late", audit.late_over, True, f"over {audit.late_max_ms:,} ms")]
    moments = [row.from_ms for row in audit.units]
    lates = [Line(name, [row.late.ms.get(name) for row in audit.units], style) for name, style in _LINES]
    return render(
        "audit.html.j2",
        audit=audit,
        judged=audit.counts.delivered + audit.counts.lost,
        bars=_bars(audit),
        tiles=_tiles(audit.counts, late),
        names=list(PERCENTILES),
        names_of={name: NAMES.get(name, name) for name in meanings},
        meanings=meanings,
        failures=[*FAILURES, "missed"] if audit.every_group else list(FAILURES),
        totals={name: getattr(audit.counts, name) for name in meanings},
        histogram=plots.histogram(
            "Lateness of the first hand-outs",
            audit.histogram,
            marks=[(name, audit.late.ms[name]) for name, _ in _LINES if name in audit.late.ms],
        ),
        load=plots.lines(f"Load in each {audit.unit}", moments, _load(audit), unit=f"messages a {audit.unit}"),
        lateness=plots.lines(
            f"Lateness by {audit.unit}", moments, lates, unit="late by", log=True, format=plots.milliseconds
        ),
    )


def _bars(audit: Audit) -> list[str]:
    """Return what must hold for "good", in words."""
    early = f" by more than {audit.skew_ms:,} ms (clocks may differ)" if audit.skew_ms else ""
    late = (
        f"no hand-out later than {audit.late_max_ms:,} ms" if audit.late_max_ms is not None else "lateness not judged"
    )
    bars = ["none lost", f"none early{early}", "none foreign", "none delivered after its cancellation", "none mixed up"]
    return [*bars, *(["each to every group of its topic"] if audit.every_group else []), late]


def _load(audit: Audit) -> list[Line]:
    # A ledger may lack the time at which a message was accepted.
    first = "accepted" if any(row.accepted for row in audit.units) else "due"
    return [
        Line(first, [getattr(row, first) for row in audit.units], "a", area=True),
        Line("delivered", [row.delivered for row in audit.units], "b"),
    ]


def _tiles(c: Counts, late: list[tuple[str, int, bool, str]]) -> list[dict[str, Any]]:
    tiles: list[tuple[str, int, bool, str]] = [
        ("accepted", c.accepted, False, f"in {c.accepted_rows:,} rows" if c.accepted_rows != c.accepted else ""),
        ("delivered", c.delivered, False, f"{c.handouts:,} hand-outs"),
        ("lost", c.lost, True, ""),
        ("early", c.early, True, ""),
        *late,
        ("foreign", c.foreign, True, ""),
        ("repeats", c.duplicated, False, f"{c.retried:,} say they are another try" if c.retried else ""),
        ("pending", c.pending, False, "not due yet"),
        ("cancelled", c.cancelled, False, f"{c.expired:,} expired" if c.expired else ""),
    ]
    also = [
        (NAMES["cancelled_delivered"], c.cancelled_delivered, True, ""),
        (NAMES["mixed_up"], c.mixed_up, True, ""),
        (NAMES["due_changed"], c.due_changed, False, ""),
        (NAMES["missed"], c.missed, False, ""),
        ("no answer", c.unanswered + c.unanswered_delivered, False, f"{c.unanswered_delivered:,} of them delivered"),
        ("dead letters", c.dead_letters, False, "copies, not compared"),
        ("unread rows", c.unread_accepted + c.unread_delivered, False, "of both ledgers"),
    ]
    shown = [*tiles, *(tile for tile in also if tile[1])]
    return [dict(zip(("name", "value", "bad", "note"), tile, strict=True)) for tile in shown]
