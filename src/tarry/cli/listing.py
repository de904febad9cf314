"""``tarry list``, ``tarry peek`` and ``tarry forecast``: pending, ready and coming messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.base.errors import InvalidArgumentError
from tarry.cli import output
from tarry.cli.options import (
    DEFAULT_ENDPOINT,
    Endpoint,
    Json,
    SparkConf,
    SparkConfFile,
    check_topic_is_known,
    connect,
    duration_ms,
    instant_ms,
    not_empty,
)

if TYPE_CHECKING:
    from tarry.api.views import Forecast, Load
    from tarry.client import Client

PAGE_ROWS = 1000
BAR_CELLS = 40

Topic = Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only of this topic.")]
Until = Annotated[str | None, typer.Option("--until", help="Due before: 2026-12-01T06:00:00Z, or UTC milliseconds.")]
Within = Annotated[str | None, typer.Option("--within", "-w", help="Instead: due within 1h30m, 2d, ...")]


def list_(
    topic: Topic = None,
    after: Annotated[str | None, typer.Option("--after", help="Due then or later.")] = None,
    until: Until = None,
    within: Within = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only the one with this key.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="Only the one with this id.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", "-t", help="Only those with this tag.")] = None,
    repeating: Annotated[bool, typer.Option("--repeating", help="Only occurrences of series.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 100,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Go on where another listing ended.")] = None,
    bodies: Annotated[bool, typer.Option("--bodies/--no-bodies", help="With bodies, or without (faster).")] = True,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """List what is pending, in the order in which it falls due.

    Text output is: due time, topic, id, key, tag, body. Where there is more, stderr says how to go on.

    \b
    tarry list
    tarry list orders --within 1h --limit 20
    tarry list orders --key order-7 --json | jq -r .body
    """
    not_empty(key, "--key")
    not_empty(id, "--id")
    after_ms = None if after is None else instant_ms(after, "--after")
    with connect(endpoint) as client:
        until_ms = _until_ms(client, until, within)
        asked: dict[str, Any] = {
            "topic": topic,
            "after_ms": after_ms,
            "until_ms": until_ms,
            "key": key,
            "id": id,
            "tag": tag,
            "repeating": repeating,
        }
        left = limit
        while left:
            page = client.list_pending(**asked, limit=min(left, PAGE_ROWS), cursor=cursor, bodies=bodies)
            for row in _rows(page.rows.to_pylist()):
                _show(row, json, bodies)
            left, cursor = left - page.rows.num_rows, page.cursor
            if cursor is None:
                if left == limit:
                    check_topic_is_known(client, topic)
                return
    output.note(f"there may be more: --cursor {cursor}")


def peek(
    topic: Annotated[str, typer.Argument(help="Whose queue.")],
    group: Annotated[str | None, typer.Option("--group", "-g", help="What this one has not settled.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=PAGE_ROWS, help="At most so many.")] = 10,
    waiting_only: Annotated[bool, typer.Option("--waiting-only", help="Only what nobody has.")] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Show what is ready, without taking it.

    The oldest that the group has not settled; without a group, that of the one which has most of them. Text output
    is: offset, due time, id, body.

    \b
    tarry peek orders
    tarry peek orders --group billing --limit 100 --json
    """
    with connect(endpoint) as client:
        batch = client.peek(topic, group=group, limit=limit, waiting_only=waiting_only)
        if not batch.num_rows:
            check_topic_is_known(client, topic)
    for row in _rows(batch.to_pylist()):
        text = f"{row['offset']}  {output.instant(row['due_ms'])}  {row['id']}  {output.body_text(row['body'])}"
        output.result(_fields(row, bodies=True), text, json=json)


Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Count all of it, by Spark; an HTML file.")
]
Store = Annotated[
    str | None, typer.Option("--store", metavar="URI", help="Count this store, by Spark, without a broker.")
]
Rate = Annotated[float | None, typer.Option("--rate", help="With either: messages that can be delivered in a second.")]


def forecast(
    topic: Topic = None,
    unit: Annotated[str, typer.Option("--unit", "-u", help="minute, hour or day.")] = "hour",
    until: Until = None,
    within: Within = None,
    report: Report = None,
    store: Store = None,
    rate: Rate = None,
    horizon: Annotated[str | None, typer.Option("--horizon", help="With either: the broker's horizon_ms.")] = None,
    spark_master: Annotated[str, typer.Option("--spark-master", help="With either: where Spark runs.")] = "local[*]",
    spark_memory: Annotated[str, typer.Option("--spark-memory", help="With either: heap of its driver.")] = "1g",
    spark_conf: SparkConf = None,
    spark_conf_file: SparkConfFile = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
    context: typer.Context = None,  # type: ignore[assignment]
) -> None:
    """Show how many messages fall due in each minute, hour or day to come.

    UNSURE says how many of them were not counted but shared out by statistics. Times are UTC; units in which nothing
    falls due are left out. With --report or --store, Spark reads all that is pending (extra "spark"): exact, with
    herds, and what it takes to serve them. With --store, a broker is asked only if --endpoint is given, too.

    \b
    tarry forecast
    tarry forecast orders --unit day --within 30d
    tarry forecast --report forecast.html
    tarry forecast --store s3://bucket/store --unit day --json
    """
    if report is not None or store is not None:
        if topic is not None:
            raise InvalidArgumentError(f"topic {topic!r:.80} is not allowed with --report or --store: all are counted")
        given = context.get_parameter_source("endpoint")
        alone = store is not None and (given is None or given.name in ("DEFAULT", "ENVIRONMENT"))
        asked = None if alone else endpoint
        from tarry.cli import outlook
        from tarry.spark.reports.forecast.result import HERD_RATE
        from tarry.spark.runtime.conf import user_conf

        _one_of(until, within)
        result = outlook.outlook(
            store=store,
            endpoint=asked,
            unit=unit,
            until_ms=None if until is None else instant_ms(until, "--until"),
            within_ms=None if within is None else duration_ms(within, "--within"),
            rate=HERD_RATE if rate is None else rate,
            horizon_ms=outlook.DEFAULTS["horizon_ms"] if horizon is None else duration_ms(horizon, "--horizon"),
            wheel_bytes_max=outlook.DEFAULTS["wheel_bytes_max"],
            master=spark_master,
            memory=spark_memory,
            conf=user_conf(spark_conf, spark_conf_file),
        )
        outlook.show(result, report, json=json)
        return
    with connect(endpoint) as client:
        forecast = client.forecast(topic=topic, unit=unit, until_ms=_until_ms(client, until, within))
        if not forecast.rows:
            check_topic_is_known(client, topic)
    if json:
        output.json_line(_plain(forecast))
    else:
        _show_forecast(forecast)


def _show_forecast(forecast: Forecast) -> None:
    most = max((load.rows for load in forecast.loads), default=0)
    rows = [_row(load, most) for load in forecast.loads if load.rows or load.unsure]
    output.table(("FROM", "MESSAGES", "UNSURE", ""), rows)
    if forecast.herd is not None:
        output.line(f"the largest herd: {forecast.herd.rows:,} at {output.instant(forecast.herd.due_ms)}")


def _one_of(until: str | None, within: str | None) -> None:
    if until is not None and within is not None:
        raise InvalidArgumentError(f"--until {until} and --within {within} are both given; allowed: one of them")


def _until_ms(client: Client, until: str | None, within: str | None) -> int | None:
    _one_of(until, within)
    if within is not None:
        # By the broker's clock, as everything is.
        return int(client.ping()["now_ms"]) + duration_ms(within, "--within")
    return None if until is None else instant_ms(until, "--until")


def _rows(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    from tarry.message.receipt import id_of

    for row in rows:
        yield {**row, "id": row["id"] or id_of(row["seq"])}


def _show(row: dict[str, Any], json: bool, bodies: bool) -> None:
    names = [row["topic"], row["id"], row["key"] or "-", row["tag"] or "-"]
    body = [output.body_text(row["body"])] if bodies else []
    text = "  ".join([str(output.instant(row["due_ms"])), *names, *body])
    output.result(_fields(row, bodies=bodies), text, json=json)


def _fields(row: dict[str, Any], *, bodies: bool) -> dict[str, Any]:
    plain = {name: value for name, value in row.items() if name not in ("body", "kind")}
    plain["properties"] = dict(row["properties"] or [])
    plain["due"] = output.instant(row["due_ms"])
    return {**plain, **(output.body_fields(row["body"]) if bodies else {})}


def _row(load: Load, most: int) -> tuple[object, ...]:
    bar = "#" * -(-load.rows * BAR_CELLS // max(most, 1))
    return output.instant(load.from_ms), f"{load.rows:,}", f"{load.unsure:,}", bar


def _plain(forecast: Forecast) -> dict[str, Any]:
    herd = forecast.herd
    return {
        "unit": forecast.unit,
        "now_ms": forecast.now_ms,
        "until_ms": forecast.until_ms,
        "rows": forecast.rows,
        "loads": [
            {"from_ms": load.from_ms, "from": output.instant(load.from_ms), "rows": load.rows, "unsure": load.unsure}
            for load in forecast.loads
        ],
        "herd": None if herd is None else {"due_ms": herd.due_ms, "rows": herd.rows},
        "herds": [{"due_ms": each.due_ms, "rows": each.rows} for each in forecast.herds],
    }
