"""``tarry relay`` on a cluster of two workers, of which an executor, a worker and the driver are killed while records
come in and go out; run by ``make spark-cluster``, where there is a Kafka.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tarry_relay.settings import RelaySettings
from tests.kafka.conftest import World, kafka, now_ms, world
from tests.kafka.relay_process import Process, process, reads
from tests.kafka.test_faults import send

from ..sources import PYTHON_PATH
from .cluster import cluster, executors, worker_of
from .exactness import LONG

__all__ = ["kafka", "world"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.rest, LONG, pytest.mark.timeout(1800)]

WAVE = 15_000
PATIENCE_S = 600.0
CORES = 8
"""Of each worker, in name: Spark takes its word. One worker has slots enough for the relay when the other is lost."""


def options(master: str) -> list[str]:
    """Of a relay whose records go through tasks; the timestamp of what it writes is the moment of writing."""
    more = ["--master", master, "--shards", "1", "--timestamp", "now"]
    more += [
        "--spark-conf",
        "spark.executor.memory=600m",
        "--spark-conf",
        f"spark.executorEnv.PYTHONPATH={PYTHON_PATH}",
    ]
    if "direct_rows_max" in RelaySettings.__dataclass_fields__:
        more += ["--set", "direct_rows_max=0"]
    return [*more, "--spark-conf", "spark.driver.host=127.0.0.1"]


def test_an_executor_a_worker_and_the_driver_are_killed(world: World, tmp_path: Path) -> None:
    rows = 0
    with cluster(tmp_path, cores=CORES) as url, process(world, *options(url)) as relay:
        relay.wait(reads, PATIENCE_S)
        for fault in ("none", "executor", "worker", "driver"):
            delivered = relay.status()["counts"].get("delivered", 0)
            send(world, rows, WAVE, now_ms() + 1_000, 6_000)
            rows += WAVE
            relay.wait(lambda now, least=delivered + 100: now["counts"].get("delivered", 0) >= least, PATIENCE_S)
            strike(fault, relay, tmp_path)
        check(world, rows)
        relay.wait(reads, PATIENCE_S)
        assert relay.stop() == 0


def strike(fault: str, relay: Process, directory: Path) -> None:
    if fault == "executor":
        for executor in executors(directory / "one"):
            executor.kill()
    elif fault == "worker":  # as if the machine were gone
        lost = executors(directory / "two")
        worker_of(directory, "two").kill()
        for executor in lost:
            executor.kill()
    elif fault == "driver":
        relay.kill()
        relay.start()


def check(world: World, rows: int) -> None:
    """Each record once, and none before its time; one more comes after all of them."""
    world.received(lambda messages: len(messages) >= rows, timeout_s=PATIENCE_S)
    world.send(b"%d" % rows, key=b"k")
    world.flush()
    got = world.received(lambda messages: len(messages) > rows, timeout_s=PATIENCE_S)
    assert sorted(int(message.value()) for message in got) == list(range(rows + 1))
    for message in got:
        due = dict(message.headers() or []).get("tarry-was-due-ms")
        assert due is None or message.timestamp()[1] >= int(due), "early"
