"""What a message takes, measured for ``tarry size``: writes ``src/tarry/cli/size_constants.json``.

Most constants are slopes between two loads, so that what a broker takes anyway is not in them. CPU is in loop-µs
(:mod:`benchmarks.cost`). Opt-in: it writes a file of the sources, starts Spark, and needs versitygw
(``make object-stores`` builds it). Some ten minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from tests.engines.versitygw import BUCKET, environment_at, served

from benchmarks.harness import BODY_BYTES, Result, Server, benchmark, messages, now_ms, server, workspace
from benchmarks.loop import loop_s
from benchmarks.size_costs import RATE, ROWS, SECONDS, costs, sent_and_taken, steadily
from benchmarks.store_proxy import delayed
from tarry import Client
from tarry.base.version import VERSION

PLACE = Path(__file__).parents[1] / "src" / "tarry" / "cli" / "size_constants.json"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SINGLES, NAMED = 2000, 200_000
SLOW, REQUEST_MS = 2, 60


@benchmark(opt_in=True)
def size_constants() -> list[Result]:
    """Bytes of a row and of a frame, of ids and keys, in the store; memory; frames and requests a second."""
    found = {**_intake(), **_ready(), **_store(), **_idle_pipeline(), **_requests(), **costs()}
    document = {
        "command": "make bench ONLY=size_constants",
        "measured": datetime.now(UTC).date().isoformat(),
        "version": VERSION,
        "constants": {name: round(value, 4) for name, value in found.items()},
    }
    PLACE.write_text(json.dumps(document, indent=1) + "\n")
    return [Result(f"tarry size: {name}", value, _unit(name)) for name, value in found.items()]


def _unit(name: str) -> str:
    units = {"bytes": "B", "loop_us": "loop-µs", "ms": "ms", "per_s": "1/s"}
    return next((unit for end, unit in units.items() if name.endswith(f"_{end}")), "1")


def _intake() -> dict[str, float]:
    """In batches of 1,000 and one by one; one by one at a steady rate; ids and keys apart."""
    many = _grown("intake", _batches(ROWS)) / ROWS - BODY_BYTES
    one = _grown("intake", _one_by_one) / SINGLES - BODY_BYTES
    frame = (one - many) * 1000 / 999
    row = many - frame / 1000
    steady = _grown("intake", lambda client, address: asyncio.run(steadily(address))) / SECONDS
    return {
        "row_bytes": row,
        "frame_bytes": frame,
        "index_row_bytes": 12.0,  # i64 due_ms and u32 row: docs/formats.md
        "intake_frames_per_s": (steady - RATE * (BODY_BYTES + row)) / frame,
        "id_bytes": _grown("registry", _batches(NAMED, "id")) / NAMED,
        "key_bytes": _grown("registry", _batches(NAMED, "key")) / NAMED,
    }


def _ready() -> dict[str, float]:
    """Due at a steady rate, and nobody takes them; and the broker's memory."""
    rows = RATE * SECONDS
    with server(pipeline="off") as broker, Client(broker.address) as client:
        time.sleep(3)
        rss = broker.rss_mb * (1 << 20)
        before = _size(broker.data / "ready")
        due = now_ms() + 3000 + np.arange(rows) * 1000 // RATE
        client.schedule_batch(messages(rows, due))
        time.sleep(SECONDS + 6)
        grown = _size(broker.data / "ready") - before
    return {"ready_row_bytes": grown / rows - BODY_BYTES, "memory_bytes": rss}


def _store() -> dict[str, float]:
    """In the store's files, far away, so that they lie in buckets of a day; and the memory of all processes."""
    with server(pipeline="on", schedule_interval_ms=1000) as broker, Client(broker.address) as client:
        _fill_store(client, 1)
        first, cpu_s, speed = _parquet(broker), _cpu_s(broker), loop_s()
        _fill_store(client, 2)
        grown = _parquet(broker) - first
        cpu_s = (_cpu_s(broker) - cpu_s) / speed
        memory = sum(_rss(process) for process in _family(broker)[1:])
    return {
        "store_row_bytes": grown / ROWS - BODY_BYTES,
        "pipeline_memory_bytes": memory,
        "pipeline_row_loop_us": cpu_s / ROWS * 1e6,
    }


def _fill_store(client: Client, part: int) -> None:
    """Send the part's messages, and wait until the store has them."""
    for i in range(ROWS // 10_000):
        due = now_ms() + 60 * DAY_MS + np.random.default_rng(i).integers(0, DAY_MS, 10_000)
        client.schedule_batch(messages(10_000, due, seed=part * 100 + i))
    _until(lambda: _stored(client) >= ROWS * part - 1)


def _idle_pipeline() -> dict[str, float]:
    """CPU in a second, with the settings' defaults and nothing to do."""
    with server(pipeline="on") as broker:
        time.sleep(60)  # Spark has started, and the first rounds are over
        before, speed = _cpu_s(broker), loop_s()
        time.sleep(4 * SECONDS)
        return {"pipeline_idle_loop_us": (_cpu_s(broker) - before) / (4 * SECONDS) * 1e6 / speed}


def _requests() -> dict[str, float]:
    """With logs in a store whose requests take 60 ms longer: idle, at 2 and at 1,000 msg/s, each due after a second."""
    with workspace() as directory, served(directory / "store") as endpoint, delayed(endpoint, REQUEST_MS) as address:
        os.environ |= environment_at(address)
        with server(pipeline="off", log=f"s3://{BUCKET}/log", store=f"s3://{BUCKET}/store") as broker:
            time.sleep(SECONDS)  # its first base is made
            idle, slow, fast = (_requests_per_s(broker, rate) for rate in (0, SLOW, RATE))
    return {
        "log_idle_puts_per_s": idle["put"],
        "log_idle_gets_per_s": idle["get"],
        "log_puts_call": (slow["put"] - idle["put"]) / SLOW,
        "log_puts_request": fast["put"] * REQUEST_MS / 1000,
        "log_gets_per_put": fast["get"] / fast["put"],
    }


def _requests_per_s(broker: Server, rate: int) -> dict[str, float]:
    with Client(broker.address) as client:
        before, begun = client.status()["log"]["requests"], time.monotonic()
        if rate:
            asyncio.run(sent_and_taken(broker.address, rate))
        else:
            time.sleep(SECONDS)
        after, took_s = client.status()["log"]["requests"], time.monotonic() - begun
    return {kind: (after[kind] - before[kind]) / took_s for kind in after}


# -- loads ---------------------------------------------------------------------------------------------------------


Load = Callable[[Client, str], object]


def _batches(rows: int, name: str | None = None) -> Load:
    """``name``: the column, id or key, in which each has a name of its own."""

    def load(client: Client, address: str) -> None:
        for i in range(rows // 1000):
            batch = messages(1000, now_ms() + HOUR_MS + np.arange(1000), seed=i)
            if name is not None:
                batch = batch.append_column(name, pa.array([f"order-{i * 1000 + j:08}" for j in range(1000)]))
            client.schedule_batch(batch)

    return load


def _one_by_one(client: Client, address: str) -> None:
    for _ in range(SINGLES):
        client.schedule("bench", os.urandom(BODY_BYTES), delay="1h")


def _grown(folder: str, load: Load) -> int:
    with server(pipeline="off") as broker, Client(broker.address) as client:
        before = _size(broker.data / folder)
        load(client, broker.address)
        time.sleep(2)
        return _size(broker.data / folder) - before


# -- looks ---------------------------------------------------------------------------------------------------------


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".idx")


def _parquet(broker: Server) -> int:
    return sum(path.stat().st_size for path in (broker.data / "store").rglob("*.parquet"))


def _stored(client: Client) -> int:
    return int(client.status()["store"]["committed_seq"])


def _family(broker: Server) -> list[psutil.Process]:
    process = psutil.Process(broker.process.pid)
    return [process, *process.children(recursive=True)]


def _cpu_s(broker: Server) -> float:
    """Of the broker's children: the pipeline's driver and its workers."""
    times = [process.cpu_times() for process in _family(broker)[1:]]
    return float(sum(each.user + each.system + each.children_user + each.children_system for each in times))


def _rss(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


def _until(is_so: Callable[[], bool], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise RuntimeError("the store did not get the messages")
        time.sleep(0.5)
