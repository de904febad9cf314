"""The report: the account and the facts of a run as tables for a person, and as JSON."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tarry.base.delay import format_ms
from tarry.base.version import VERSION
from tarry_demo.account import PERCENTILES, Account, LargestHerd
from tarry_demo.audit import Audited
from tarry_demo.facts import Facts, KillFacts

WHERE_DUPLICATES_COME_FROM = (
    "had been handed out before the kill and came again after it: their acknowledgement was not durable yet"
)

Row = tuple[str, ...]
NAME_WIDTH = 20


def as_json(account: Account, facts: Facts, wrong: list[str], audited: Audited | None = None) -> dict[str, Any]:
    """Return everything as plain data."""
    return {
        "version": VERSION,
        "cpus": os.cpu_count(),
        "good": not wrong,
        "wrong": wrong,
        "account": account.to_json(),
        "facts": facts.to_json(),
        "audit": None if audited is None else asdict(audited),
    }


def write_json(path: Path, report: dict[str, Any]) -> None:
    """Write ``report.json``."""
    path.write_text(json.dumps(report, indent=2) + "\n")


def show(
    account: Account, facts: Facts, wrong: list[str], files: list[Path], audited: Audited | None = None
) -> RenderableType:
    """Return the whole report for a person."""
    return Group(
        "",
        _section("Messages", _messages(account, facts)),
        _section("Lateness", _lateness(account, facts), ("", *PERCENTILES, "")),
        _section("Through Spark", [*_spark(account, facts), *_audited(audited)]),
        _section("The broker", _broker(facts)),
        *(f"[dim]{path}[/]" for path in files),
        "",
        _verdict(wrong),
    )


def print_report(console: Console, report: RenderableType) -> None:
    """Print the report; without a terminal, wide enough that no line is cut."""
    if not console.is_terminal:
        console.width = 160
    console.print(report)


def _section(title: str, rows: list[Row], heads: Row | None = None) -> RenderableType:
    """Return a title, and rows of a name, numbers, and a note that may take several lines."""
    table = Table.grid(padding=(0, 2))
    last = len(rows[0]) - 1
    for place in range(last + 1):
        wide = place == last
        table.add_column(justify="right" if 0 < place < last else "left", no_wrap=not wide, style="dim" if wide else "")
    if heads is not None:
        table.add_row(*(Text(head, style="dim") for head in heads))
    for name, *rest in rows:
        table.add_row(name.ljust(NAME_WIDTH), *rest)
    return Group(Text(title, style="bold"), table, "")


def _messages(account: Account, facts: Facts) -> list[Row]:
    rows: list[Row] = [
        ("accepted", f"{account.accepted:,}", "; ".join(f"{count:,} {way}" for way, count in facts.ways.items())),
        ("delivered", f"{account.delivered:,}", f"a year of departures in {facts.seconds:g} s"),
        ("lost", f"{account.lost:,}", ""),
        ("early", f"{account.early:,}", ""),
        ("duplicated", f"{account.duplicated:,}", _duplicates(account)),
    ]
    if facts.asked_again:
        rows.append(
            (
                "asked for twice",
                f"{facts.asked_again:,}",
                "the producer had no answer at the kill, and scheduled again; "
                f"of the first ones, {account.unanswered:,} had been accepted",
            )
        )
    rows.append(("busiest second", f"{account.busiest_second:,}", "messages due in it"))
    if account.herd is not None:
        rows.append(("largest herd", f"{account.herd.messages:,}", _herd(account.herd)))
    return rows


def _duplicates(account: Account) -> str:
    other = account.duplicated - account.duplicated_by_kill
    if not other:
        return WHERE_DUPLICATES_COME_FROM if account.duplicated else ""
    by_kill = f"{account.duplicated_by_kill:,} {WHERE_DUPLICATES_COME_FROM}; " if account.duplicated_by_kill else ""
    return (
        f"{by_kill}{other:,} for another reason (a lease that ended, or a lost connection, before the acknowledgement)"
    )


def _herd(herd: LargestHerd) -> str:
    last = "none came" if herd.last_late_ms is None else f"the last was {herd.last_late_ms:,.1f} ms late"
    return f"due in the same millisecond; {last}" + (" (the broker was down)" if herd.in_outage else "")


def _lateness(account: Account, facts: Facts) -> list[Row]:
    rows: list[Row] = [("all", *_percentiles(account.lateness_ms), "in the consumer's loop, first hand-outs")]
    if facts.kill is not None:
        up, calm = account.lateness_up_ms, account.lateness_calm_ms
        rows += [
            ("broker up", *_percentiles(up), f"without the {account.due_in_outage:,} due while it was down"),
            (
                "undisturbed",
                *_percentiles(calm),
                f"without the {account.delayed_by_kill:,} that waited between kill and next hand-out",
            ),
        ]
    return rows


def _percentiles(late_ms: dict[str, float]) -> list[str]:
    return [f"{late_ms[name]:,.1f} ms".rjust(11) if name in late_ms else "-" for name in PERCENTILES]


def _spark(account: Account, facts: Facts) -> list[Row]:
    share = f"{facts.fired_from_store / account.delivered:.1%} of what was delivered" if account.delivered else ""
    lives = ", before and after the kill" if facts.kill is not None else ""
    rows: list[Row] = []
    if facts.store is not None:
        store = facts.store
        rows.append(
            (
                "written by Spark",
                f"{store.rows:,}",
                f"rows in the Delta table, in {store.commits} commits, {store.files} files, "
                f"{store.size_bytes / 1e6:.1f} MB; counted in the table's own log",
            )
        )
    rows.append(
        (
            "delivered from there",
            f"{facts.fired_from_store:,}",
            f"{share}, as the broker counted{lives}; the rest from its intake",
        )
    )
    return rows


def _audited(audited: Audited | None) -> list[Row]:
    if audited is None or audited.error is not None:
        return []
    note = f"lost, early or foreign, says tarry audit of the two ledgers, in {audited.seconds:.0f} s"
    return [("audit", f"{sum(audited.failures.values()):,}", note)]


def _broker(facts: Facts) -> list[Row]:
    rows: list[Row] = []
    if facts.kill is not None:
        rows += _kill(facts.kill)
    rows += [
        (
            "table scheduled at",
            f"{facts.scheduled_per_s:,.0f}",
            "messages a second, each chunk on disk before its answer",
        ),
        ("memory at most", f"{facts.broker_bytes_max / 2**20:,.0f} MiB", "the broker"),
        ("", f"{facts.pipeline_bytes_max / 2**20:,.0f} MiB", "Spark, with its JVM and Python workers"),
    ]
    return rows


def _kill(kill: KillFacts) -> list[Row]:
    outage = kill.outage
    first = (
        "" if outage.next_hand_out_ms is None else f"; the next message reached a consumer after {outage.gap_s:.2f} s"
    )
    back = "never" if kill.pipeline_back_s is None else f"after {kill.pipeline_back_s:.1f} s"
    exits = f"{kill.gone_s:.1f} s after the kill none was left" if not kill.left else f"left over: {kill.left}"
    return [
        ("killed at", _clock(outage.killed_ms), f"SIGKILL, with {kill.processes} processes; {exits}"),
        ("down for", f"{outage.seconds:.2f} s", f"until it served again{first}; Spark was back {back}"),
    ]


def _clock(ms: int) -> str:
    return format_ms(ms)[11:19] + "Z"


def _verdict(wrong: list[str]) -> Text:
    if not wrong:
        return Text("Good: nothing lost, nothing early, most of it through the Spark store.", style="bold green")
    return Text("\n".join(f"WRONG: {text}" for text in wrong), style="bold red")
