"""``tarry forecast --report`` and ``--store``: forecasts that Spark counts out of the store itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError
from tarry.cli import output

if TYPE_CHECKING:
    from tarry.spark.reports.forecast.pending import StoreVersion
    from tarry.spark.reports.forecast.result import Outlook, Sources

DEFAULTS = {name: Config.model_fields[name].default for name in ("horizon_ms", "wheel_bytes_max", "retention_ms")}


def outlook(
    *,
    store: str | None,
    endpoint: str | None,
    unit: str,
    until_ms: int | None,
    within_ms: int | None,
    rate: float,
    horizon_ms: int,
    wheel_bytes_max: int,
    master: str,
    memory: str,
    conf: Mapping[str, str],
) -> Outlook:
    """Count what is pending.

    Args:
        store: where the store is; None: the broker says.
        endpoint: of a broker, whose intake is read as well, and by whose clock it is; None: the store alone.

    Raises:
        InvalidArgumentError: neither is given, or a value is not allowed. And as what it calls.
    """
    if store is None and endpoint is None:
        raise InvalidArgumentError("nothing to look at; allowed: --store, or --endpoint of a broker, or both")
    from tarry.spark.reports.session import report_session

    with report_session("tarry-forecast", master=master, memory=memory, conf=conf) as spark:
        from tarry.base.clock import SystemClock
        from tarry.spark.reports.forecast import pending as places
        from tarry.spark.reports.forecast.count import forecast

        if endpoint is not None:
            files, state = places.look(endpoint, store)
            now_ms, from_ms, fired_seq = state.now_ms, state.fired_until_ms, state.fired_seq
            intake = max(files.committed_seq, state.first_seq), state.durable_seq
            intake_bytes, cancelled_jobs = state.waiting_bytes, state.cancelled_jobs
        else:
            now_ms = from_ms = SystemClock().now_ms()
            files, fired_seq, intake, intake_bytes = places.StoreVersion.of(store or ""), None, (0, 0), 0
            cancelled_jobs = []  # who is cancelled, the broker knows
        files = replace(files, messages=files.later_than(from_ms))
        rows = places.rows_of(spark, files, endpoint=endpoint, intake=intake)
        return forecast(
            places.pending(rows, from_ms=from_ms, fired_seq=fired_seq, cancelled_jobs=cancelled_jobs),
            _sources(files, intake_bytes, intake=endpoint is not None),
            now_ms=now_ms,
            unit=unit,
            until_ms=now_ms + within_ms if within_ms is not None else until_ms,
            rate=rate,
            horizon_ms=horizon_ms,
            wheel_bytes_max=wheel_bytes_max,
            retention_ms=DEFAULTS["retention_ms"],
        )


def _sources(files: StoreVersion, intake_bytes: int, *, intake: bool) -> Sources:
    from tarry.spark.reports.forecast.result import Sources

    return Sources(
        store=files.uri,
        version=files.version,
        files=files.files,
        store_rows=files.rows,
        store_bytes=files.bytes,
        intake=intake,
        intake_bytes=intake_bytes,
    )


def show(forecast: Outlook, report: Path | None, *, json: bool) -> None:
    """Print it, and write the report."""
    if report is not None:
        from tarry.spark.reports.forecast.page import forecast_page
        from tarry.spark.reports.pages.render import write

        write(report, forecast_page(forecast))
    if json:
        output.json_line(forecast.to_json())
        return
    for sentence in forecast.verdict():
        output.line(sentence)
    output.line("")
    rows = [
        (output.instant(unit.from_ms), f"{unit.rows:,}", f"{unit.body_bytes:,}") for unit in forecast.units if unit.rows
    ]
    output.table(("FROM", "MESSAGES", "BYTES"), rows)
    if report is not None:
        output.note(f"the report is in {report}")
