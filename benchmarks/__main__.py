"""``python -m benchmarks [--only NAME[,NAME…]]``: run, print a table, write ``benchmarks/results/latest.json``."""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness import BENCHMARKS, OPT_IN, Result

RESULTS = Path(__file__).parent / "results" / "latest.json"
MODULES = (
    "bridge",
    *(
        "bulk",
        "bulk_partitions",
        "bulk_size",
        "changes",
        "compact",
        "console",
        "cost",
        "layouts",
        "cost_rounds",
        "delivery",
        "django_rate",
        "gateway",
        "grpc_server",
        "http_lmstfy",
    ),
    *("intake", "memory", "pipeline", "push", "relay", "rocketmq", "rocketmq_classic", "rocketmq_disk"),
    "log_store",
    "size_constants",
    "spark_write_curve",
    "sqs_peer",
    "takeover",
    "tenants",
    "tenants_filters",
    "wires",
    "worker",
)
"""To import them is what registers their benchmarks."""
for module in MODULES:
    import_module(f"benchmarks.{module}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--only", type=names, action="extend", metavar="NAME[,NAME…]")
    chosen = parser.parse_args().only or [name for name in BENCHMARKS if name not in OPT_IN]
    console = Console()
    results: list[tuple[str, Result]] = []
    for name in chosen:
        with console.status(name):
            found = BENCHMARKS[name]()
        for result in found:
            console.print(f"{result.name}: {result.value:,.4g} {result.unit}  {result.bar}", highlight=False)
            results.append((f"make bench ONLY={name}", result))
    console.print(table(results))
    write(results)
    return 0 if all(r.holds is not False for _, r in results) else 1


def names(text: str) -> list[str]:
    chosen = [name.strip() for name in text.split(",")]
    if unknown := [name for name in chosen if name not in BENCHMARKS]:
        raise argparse.ArgumentTypeError(
            f"there is no benchmark {', '.join(map(repr, unknown))}; there are {', '.join(sorted(BENCHMARKS))}"
        )
    return chosen


def table(results: list[tuple[str, Result]]) -> Table:
    shown = Table("what", "value", "unit", "bar", "holds")
    for _, r in results:
        holds = {True: "yes", False: "[red]no[/red]", None: ""}[r.holds]
        shown.add_row(r.name, f"{r.value:,.4g}" if abs(r.value) < 1000 else f"{r.value:,.0f}", r.unit, r.bar, holds)
    return shown


def write(results: list[tuple[str, Result]]) -> None:
    """Put the new rows in the place of those with the same name; the others stay."""
    rows = {row["name"]: row for row in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    for command, r in results:
        rows[r.name] = {
            "name": r.name,
            "value": round(r.value, 4),
            "unit": r.unit,
            "bar": r.bar,
            "holds": r.holds,
            "command": command,
        }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(list(rows.values()), indent=1, ensure_ascii=False) + "\n")


raise SystemExit(main())
