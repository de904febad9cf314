"""``tarry size``: disk, memory, files and requests that a load will take."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.cli import output
from tarry.cli.options import Json, duration_ms

if TYPE_CHECKING:
    from tarry.cli.sizing import Size, Workload


class LogStorage(StrEnum):
    """Place of the logs."""

    DISK = "disk"
    OBJECTS = "objects"


def size(
    per_second: Annotated[float, typer.Option("--per-second", "-r", help="Messages accepted a second, on average.")],
    bytes_: Annotated[float, typer.Option("--bytes", "-b", help="Of a message: body, topic, properties, id, key.")],
    delay: Annotated[str, typer.Option("--delay", "-d", help="Mean delay, as in 3d.")],
    longest: Annotated[
        str | None, typer.Option("--longest", help="Longest usual delay, as in 30d; without it, as the mean.")
    ] = None,
    batch: Annotated[int, typer.Option("--batch", help="Messages that are sent together.")] = 1,
    groups: Annotated[int, typer.Option("--groups", help="Consumer groups of a topic.")] = 1,
    lag: Annotated[str, typer.Option("--lag", help="How far behind the slowest group is.")] = "1m",
    retention: Annotated[
        str, typer.Option("--retention", help="The setting retention_ms: how long due messages wait for groups.")
    ] = "3d",
    ids: Annotated[bool, typer.Option("--ids", help="Each message has an id.")] = False,
    dedupe: Annotated[
        str, typer.Option("--dedupe", help="The setting dedupe_ms: for how long an id is known.")
    ] = "10m",
    keys: Annotated[bool, typer.Option("--keys", help="Each message has a key.")] = False,
    pipeline: Annotated[
        bool, typer.Option("--pipeline/--no-pipeline", help="The Spark pipeline brings far messages to the store.")
    ] = True,
    store_retention: Annotated[
        str, typer.Option("--store-retention", help="The setting store_retention_ms: replaced files stay so long.")
    ] = "1d",
    log: Annotated[LogStorage, typer.Option("--log", help="Where the logs are.")] = LogStorage.DISK,
    request: Annotated[str, typer.Option("--request", help="How long a request to the object store takes.")] = "60ms",
    log_interval: Annotated[
        str, typer.Option("--log-interval", help="The setting log_interval_ms: time between rounds.")
    ] = "0",
    standbys: Annotated[int, typer.Option("--standbys", help="Brokers that stand by, with --log objects.")] = 0,
    loop_s: Annotated[
        float, typer.Option("--loop-s", help="How fast a core is: seconds for 20 million steps of a Python loop.")
    ] = 1.0,
    json: Json = False,
) -> None:
    """Estimate what a load takes: disk, memory, cores, files, and requests to an object store.

    No broker is asked. Disk and memory are right within a factor of two; docs/sizing.md says what is counted.

    \b
    tarry size --per-second 1000 --bytes 400 --delay 3d
    tarry size --per-second 1000 --bytes 400 --delay 3d --no-pipeline --batch 100
    tarry size --per-second 50 --bytes 2000 --delay 12h --log objects --standbys 1 --json
    """
    from tarry.cli.sizing import Workload, estimate

    load = Workload(
        per_second=per_second,
        bytes=bytes_,
        delay_ms=duration_ms(delay, "--delay"),
        longest_ms=None if longest is None else duration_ms(longest, "--longest"),
        batch=batch,
        groups=groups,
        lag_ms=duration_ms(lag, "--lag"),
        retention_ms=duration_ms(retention, "--retention"),
        ids=ids,
        dedupe_ms=duration_ms(dedupe, "--dedupe"),
        keys=keys,
        pipeline=pipeline,
        store_retention_ms=duration_ms(store_retention, "--store-retention"),
        log_objects=log is LogStorage.OBJECTS,
        request_ms=duration_ms(request, "--request"),
        log_interval_ms=duration_ms(log_interval, "--log-interval"),
        standbys=standbys,
        loop_s=loop_s,
    )
    found = estimate(load)
    if json:
        output.json_line(asdict(found))
    else:
        output.lines(_shown(load, found))


def _shown(load: Workload, found: Size) -> str:
    parts = {
        "intake": found.intake_bytes,
        "ready": found.ready_bytes,
        "names": found.names_bytes,
        "segments": found.segments_bytes,
        "store": 0 if load.log_objects else found.store_bytes,
    }
    rows = [
        ("pending", f"{found.pending:,} messages"),
        ("disk", _bytes(found.disk_bytes) + (" on each machine" if load.standbys else "")),
        *((f"  {name}", _bytes(value)) for name, value in parts.items() if value),
        ("memory", _bytes(found.memory_bytes)),
        ("cores", f"{found.broker_cores:.2f} the broker, {found.pipeline_cores:.2f} the pipeline"),
        ("files", f"{found.files:,}"),
    ]
    if load.log_objects:
        rows += [
            ("bucket", f"{_bytes(found.bucket_bytes)}, ${found.storage_dollars_month:,.2f} a month"),
            ("requests", f"{found.requests_month:,} a month, ${found.request_dollars_month:,.2f}"),
        ]
    rows.append(("within", f"a factor of {found.factor:g}, disk and memory"))
    if found.broker_cores > 1:
        rows.append(("warning", "more than one core is more than one broker has: larger batches, or shards"))
    return "\n".join(f"{name:13} {value}" for name, value in rows)


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.3g} {unit}" if value < 100 else f"{value:,.0f} {unit}"
        value /= 1024
    return f"{value:,.4g} TiB"
