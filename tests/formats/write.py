"""Writes a data directory with an older Tarry: PYTHONPATH=OLD/src python tests/formats/write.py DIRECTORY.

It uses what the broker has had since its first format. It was run once for each format, by the commit that
``tests/formats/README.md`` names, and prints what has to be found.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

os.environ["TARRY_DISK_FREE_BYTES_MIN"] = "0"

from tarry.broker import Broker

try:
    from tarry.base.config import Config
except ImportError:
    from tarry.config import Config  # type: ignore[no-redef,import-not-found,unused-ignore]

FAR_MS = 2_840_140_800_000  # 2060-01-01
SOON_S = 90


def taken(consumer: Any, count: int) -> Any:
    """Leases and offsets of so many messages, in order."""
    rows: list[tuple[int, int, bytes]] = []
    end_s = time.monotonic() + 30
    while len(rows) < count and time.monotonic() < end_s:
        batch = consumer.fetch(count - len(rows), 5)
        if batch is not None:
            columns = (batch.column(name).to_pylist() for name in ("lease", "offset", "body"))
            rows += zip(*columns, strict=True)
    assert len(rows) == count, rows
    return rows


def settle(how: Any, rows: Any, *more: Any) -> None:
    import numpy as np

    leases, offsets = (np.array([row[at] for row in rows], np.int64) for at in (0, 1))
    how(leases, offsets, *more)


def bury(broker: Any) -> None:
    """Make a dead letter."""
    broker.set_group("bad", "workers", tries=1)
    failing = broker.subscribe("bad", "workers")
    broker.schedule("bad", "a dead letter")
    settle(failing.nack, taken(failing, 1))
    end_s = time.monotonic() + 20
    while broker.group_info("bad", "workers").dead < 1 and time.monotonic() < end_s:
        time.sleep(0.05)


def load(broker: Any) -> None:
    """Load two messages by a bulk job, and cancel a second one."""
    import pyarrow as pa

    jobs = broker.components.bulk
    for name in ("kept", "cancelled"):
        attempt = jobs.begin(name)
        rows = pa.record_batch({"topic": ["loaded"] * 2, "due_ms": [FAR_MS, FAR_MS + 1], "body": [name.encode()] * 2})
        jobs.commit(attempt.number, *jobs.stage(attempt.number, [rows]))
    broker.cancel_job("cancelled")


def main(directory: Path) -> None:
    """Write it."""
    config = Config(data=directory, pipeline="off", retry_ms=0)
    with Broker.open(config) as broker:
        for number in range(3):
            broker.schedule("orders", f"far {number}", due=FAR_MS + number, properties={"number": str(number)})
        broker.schedule("orders", "soon", delay=SOON_S)
        if hasattr(broker, "cancel"):  # since names are kept
            broker.schedule("orders", "far, with all", due=FAR_MS + 9, id="an id", key="a key", tag="red", tries=3)
            gone = broker.schedule("orders", "cancelled", due=FAR_MS)
            assert broker.cancel(gone.handle).value == "done"
            broker.schedule("orders", "replaced", due=FAR_MS, key="again")
            broker.schedule("orders", "in its place", due=FAR_MS + 10, key="again", on_key="replace")
            broker.schedule("series", "each year", due=FAR_MS, repeat={"every": "365d"})
            load(broker)
        consumer = broker.subscribe("queue", "workers")
        other = broker.subscribe("queue", "others")
        for number in range(6):
            broker.schedule("queue", f"ready {number}")
            time.sleep(0.02)
        first = taken(consumer, 3)
        settle(consumer.ack, first[:2])
        settle(consumer.nack, first[2:])
        taken(other, 6)
        if hasattr(broker, "set_group"):
            bury(broker)
        if hasattr(broker, "create_token"):
            broker.create_token("orders", "for a test")
        version = json.loads((directory / "checkpoint.json").read_text())["version"]
        time.sleep(3)  # what is idle may be copied as a kill would leave it
        shutil.copytree(directory, f"{directory}-killed", ignore=shutil.ignore_patterns("reserve"))
    found = json.loads((directory / "checkpoint.json").read_text())
    assert found["version"] == version, found
    print(json.dumps({"checkpoint": version, "files": sorted(p.name for p in directory.iterdir())}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
