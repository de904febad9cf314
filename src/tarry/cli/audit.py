"""``tarry audit``: what was accepted against what was delivered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.base.errors import InvalidArgumentError
from tarry.cli import output
from tarry.cli.exits import ExitCode
from tarry.cli.options import Json, SparkConf, SparkConfFile, duration_ms, instant_ms

if TYPE_CHECKING:
    from tarry.spark.reports.audit.result import Audit, Late

_COLUMN = "WHAT=COLUMN"

Master = Annotated[str, typer.Option("--spark-master", help="Where Spark runs: local[*], spark://host:7077, ...")]
Memory = Annotated[str, typer.Option("--spark-memory", help="Heap of Spark's driver.")]


AcceptedPath = Annotated[
    str,
    typer.Option("--accepted", "-a", metavar="PATH", help="What was accepted: JSON lines, CSV, Parquet, ..."),
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the report there, as one HTML file.")
]
Until = Annotated[
    str | None, typer.Option("--until", help="End of the observation; the latest delivery where it is not said.")
]
LateMax = Annotated[
    str | None,
    typer.Option("--late-max", help="A hand-out that is later than so long after its due time is a failure."),
]
EveryGroup = Annotated[
    bool, typer.Option("--every-group", help="A message that one group of its topic had must come to each.")
]
AcceptedFormat = Annotated[
    str | None, typer.Option("--accepted-format", help="json, csv, parquet or delta; else by the name.")
]
AcceptedColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--accepted-column",
        metavar=_COLUMN,
        help="A column by another name: topic, id, seq, due, accepted, cancelled, expire, answered.",
    ),
]
DeliveredColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--delivered-column",
        metavar=_COLUMN,
        help="The same: topic, id, seq, delivered, due, group, attempt.",
    ),
]


def audit(
    accepted: AcceptedPath,
    delivered: Annotated[str, typer.Option("--delivered", "-d", metavar="PATH", help="What was delivered, the same.")],
    out: Out = None,
    by: Annotated[str | None, typer.Option("--by", help="What tells messages apart: seq or id.")] = None,
    until: Until = None,
    skew: Annotated[str, typer.Option("--skew", help="How much clocks may differ: so much early is not early.")] = "0",
    grace: Annotated[str, typer.Option("--grace", help="So long after its due time a message is lost.")] = "0",
    late_max: LateMax = None,
    every_group: EveryGroup = False,
    unit: Annotated[str | None, typer.Option("--unit", "-u", help="second, minute, hour or day.")] = None,
    examples: Annotated[int, typer.Option("--examples", min=0, max=1000, help="Messages named of each failure.")] = 10,
    accepted_format: AcceptedFormat = None,
    delivered_format: Annotated[str | None, typer.Option("--delivered-format", help="The same.")] = None,
    accepted_column: AcceptedColumns = None,
    delivered_column: DeliveredColumns = None,
    spark_master: Master = "local[*]",
    spark_memory: Memory = "1g",
    spark_conf: SparkConf = None,
    spark_conf_file: SparkConfFile = None,
    json: Json = False,
) -> None:
    """Check what was delivered against what was accepted, from two files, without asking a broker.

    Exit code 1 when a message was lost, came early, was never accepted, was delivered though cancelled, or later than
    --late-max. Needs the extra "spark". Who changed what in a broker is another question: `tarry audit-log`.

    \b
    tarry audit --accepted sent.jsonl --delivered got.jsonl --out audit.html
    tarry audit -a sent.parquet -d got.csv --delivered-column delivered=handled_at --skew 5ms
    tarry audit -a sent.jsonl -d got.jsonl --json | jq .failures
    """
    from tarry.spark.reports.session import report_session, shuffle_partitions
    from tarry.spark.runtime.conf import user_conf

    conf = user_conf(spark_conf, spark_conf_file)

    asked: dict[str, Any] = {
        "accepted_columns": columns(accepted_column, "--accepted-column"),
        "delivered_columns": columns(delivered_column, "--delivered-column"),
        "by": by,
        "until_ms": None if until is None else instant_ms(until, "--until"),
        "skew_ms": duration_ms(skew, "--skew"),
        "grace_ms": duration_ms(grace, "--grace"),
        "late_max_ms": None if late_max is None else duration_ms(late_max, "--late-max"),
        "every_group": every_group,
        "unit": unit,
        "examples": examples,
    }
    with report_session("tarry-audit", master=spark_master, memory=spark_memory, conf=conf) as spark:
        # Here: it is the session that says what to install where there is no PySpark.
        from tarry.spark.reports.audit import audit as compare
        from tarry.spark.reports.audit.ledgers import read_ledger

        ledgers = [read_ledger(spark, accepted, accepted_format), read_ledger(spark, delivered, delivered_format)]
        spark.conf.set("spark.sql.shuffle.partitions", shuffle_partitions(*ledgers))
        comparison = compare(*ledgers, **asked)
    _report(comparison, out, json=json)
    if not comparison.good:
        raise typer.Exit(ExitCode.FAILED)


def _report(comparison: Audit, out: Path | None, *, json: bool) -> None:
    if out is not None:
        from tarry.spark.reports.audit.page import audit_page
        from tarry.spark.reports.pages.render import write

        write(out, audit_page(comparison))
    if json:
        output.json_line(comparison.to_json())
    else:
        _show(comparison)
        if out is not None:
            output.note(f"the report is in {out}")


def columns(given: list[str] | None, option: str) -> dict[str, str]:
    """Parse the roles of columns.

    Raises:
        InvalidArgumentError: one is not written as it must be.
    """
    columns = {}
    for text in given or []:
        name, equals, column = text.partition("=")
        if not (name and equals and column):
            raise InvalidArgumentError(f"{option} {text!r:.80} is not allowed; allowed: {_COLUMN}, as due=deliver_at")
        columns[name] = column
    return columns


def _show(comparison: Audit) -> None:
    for sentence in comparison.verdict():
        output.line(sentence)
    output.line("")
    rows = [(row.topic or "-", *_counts(row.counts), *_late(row.late)) for row in comparison.topics]
    heads = (
        "TOPIC",
        "ACCEPTED",
        "DELIVERED",
        "PENDING",
        "LOST",
        "EARLY",
        "FOREIGN",
        "REPEATS",
        "P50 MS",
        "P99 MS",
        "MAX MS",
    )
    if len(rows) > 1:
        rows.append(("all", *_counts(comparison.counts), *_late(comparison.late)))
    output.table(heads, rows)
    for name in comparison.failures:
        for example in comparison.examples.get(name, []):
            due = output.instant(example.due_ms) or "-"
            output.line(f"{name}: {example.topic or '-'} {example.ident} due {due} {example.note}".rstrip())


def _counts(counts: Any) -> list[str]:
    names = ("accepted", "delivered", "pending", "lost", "early", "foreign", "duplicated")
    return [f"{getattr(counts, name):,}" for name in names]


def _late(late: Late) -> list[str]:
    return [f"{late.ms[name]:,.1f}" if name in late.ms else "-" for name in ("p50", "p99", "max")]
