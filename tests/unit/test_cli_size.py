"""``tarry size``: what a real broker takes is within the factor that it prints; what is not allowed; what it prints."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.cli_tools import Captured, data_of, error_of, out_of
from tests.contract.conftest import Served
from tests.snippets import Snippet, snippets
from tests.waiting import wait_until

from tarry.base.errors import InvalidArgumentError
from tarry.cli.sizing import FACTOR, Size, Workload, constants, estimate
from tarry.client import Client

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
ROWS, BODY_BYTES, BATCH = 20_000, 400, 1000
LOAD = Workload(per_second=1000, bytes=400, delay_ms=3 * DAY_MS)
PAGE = [each for each in snippets("sh") if each.page == "docs/sizing.md" and each.commands("tarry")]
GIVEN = {"--per-second": "1000", "--bytes": "400", "--delay": "3d"}


def batch(due_ms: np.ndarray, seed: int) -> pa.RecordBatch:
    data = np.random.default_rng(seed).bytes(len(due_ms) * BODY_BYTES)
    offsets = np.arange(len(due_ms) + 1, dtype=np.int32) * BODY_BYTES
    body = pa.Array.from_buffers(pa.binary(), len(due_ms), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.record_batch({"topic": ["orders"] * len(due_ms), "due_ms": due_ms.astype(np.int64), "body": body})


def taken(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_what_a_broker_takes_is_within_the_factor(tmp_path: Path) -> None:
    """20,000 messages of 400 bytes that wait an hour, in batches; then as many that are due, and no group reads."""
    served = Served(tmp_path / "data")
    try:
        with Client(served.address) as client:
            now_ms = time.time_ns() // 1_000_000
            for i in range(ROWS // BATCH):
                client.schedule_batch(batch(now_ms + HOUR_MS + np.arange(BATCH) * i, i))
            per_second = ROWS / 3600
            load = Workload(
                per_second=per_second, bytes=BODY_BYTES, delay_ms=HOUR_MS, batch=BATCH, pipeline=False, groups=0
            )
            assert_within(taken(tmp_path / "data" / "intake"), estimate(load).intake_bytes)
            assert sum(topic.pending for topic in client.pending()) == pytest.approx(estimate(load).pending, abs=1)

            for i in range(ROWS // BATCH):
                client.schedule_batch(batch(np.full(BATCH, now_ms), i))
            wait_until(lambda: sum(topic.ready for topic in client.pending()) == ROWS)
            # The ready log is written behind: what counts as ready may not be on disk yet. Random bodies do not shrink.
            wait_until(lambda: taken(tmp_path / "data" / "ready") >= ROWS * BODY_BYTES)
            assert_within(taken(tmp_path / "data" / "ready"), estimate(replace(load, retention_ms=HOUR_MS)).ready_bytes)
    finally:
        served.stop()


def assert_within(real: int, estimated: int) -> None:
    assert estimated / FACTOR <= real <= estimated * FACTOR, (real, estimated)


@pytest.mark.parametrize(
    "more", [{"per_second": 2000}, {"bytes": 800}, {"delay_ms": 6 * DAY_MS}, {"ids": True, "keys": True}], ids=str
)
def test_more_of_anything_takes_no_less(more: dict[str, Any]) -> None:
    for field in ("disk_bytes", "memory_bytes", "broker_cores", "pipeline_cores", "files"):
        assert getattr(estimate(replace(LOAD, **more)), field) >= getattr(estimate(LOAD), field), field


def test_ids_are_kept_for_twice_the_setting() -> None:
    one, two = (estimate(replace(LOAD, ids=True, dedupe_ms=days * DAY_MS)).names_bytes for days in (1, 2))
    assert two - one == pytest.approx(1000 * 2 * 86_400 * constants()["id_bytes"], abs=2)


def test_batches_and_faster_cores_take_less_of_a_core() -> None:
    assert estimate(replace(LOAD, batch=100)).broker_cores < estimate(LOAD).broker_cores
    assert estimate(replace(LOAD, loop_s=0.5)).broker_cores == pytest.approx(estimate(LOAD).broker_cores / 2, abs=0.001)


def test_one_message_that_is_due_late_keeps_the_intake_without_the_pipeline() -> None:
    mean = replace(LOAD, pipeline=False)
    late = replace(mean, longest_ms=30 * DAY_MS)
    assert estimate(late).intake_bytes == pytest.approx(10 * estimate(mean).intake_bytes, rel=0.01)
    assert estimate(replace(LOAD, longest_ms=30 * DAY_MS)).intake_bytes == estimate(LOAD).intake_bytes


def test_disk_is_the_sum_of_its_parts_and_a_bucket_has_logs_and_store() -> None:
    on_disk, in_bucket = (estimate(replace(LOAD, keys=True, log_objects=objects)) for objects in (False, True))
    logs = on_disk.intake_bytes + on_disk.ready_bytes + on_disk.names_bytes + on_disk.segments_bytes
    assert on_disk.disk_bytes == pytest.approx(logs + on_disk.store_bytes, abs=5)
    assert (on_disk.bucket_bytes, on_disk.requests_month) == (0, 0)
    assert in_bucket.disk_bytes == pytest.approx(logs, abs=5)
    assert in_bucket.bucket_bytes == on_disk.disk_bytes


def test_requests_are_bounded_by_rounds_and_an_idle_broker_makes_some() -> None:
    """All logs share a round, and rounds are as far apart as --log-interval says."""

    def requests(**options: float) -> int:
        return estimate(replace(LOAD, log_objects=True, **options)).requests_month  # type: ignore[arg-type]

    assert requests(per_second=2000) == requests()
    assert requests(log_interval_ms=1000) < requests(log_interval_ms=200) < requests() < requests(request_ms=8)
    assert 0 < requests(per_second=0) < requests(per_second=1) < requests()
    assert requests(standbys=1) > requests()


def test_nothing_at_all() -> None:
    none = estimate(Workload(per_second=0, bytes=0, delay_ms=0, pipeline=False, ids=True, keys=True))
    assert (none.pending, none.disk_bytes, none.requests_month) == (0, 0, 0)
    assert none.memory_bytes > 0


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"per_second": -1}, "per_second is -1; allowed: 0 to 10000000"),
        ({"per_second": 1e18}, "per_second is 1e+18; allowed: 0 to 10000000"),
        ({"per_second": math.nan}, "per_second is nan; allowed: 0 to 10000000"),
        ({"bytes": math.inf}, "bytes is inf; allowed: 0 to 134217728"),
        ({"batch": 0}, "batch is 0; allowed: 1 to 1000000"),
        ({"loop_s": 0}, "loop_s is 0; allowed: 0.01 to 100"),
        ({"delay_ms": 15_000 * DAY_MS}, "delay_ms is 1296000000000; allowed: 0 to 1264896000000"),
        ({"standbys": 1}, "standbys without --log objects; allowed: with it"),
        ({"longest_ms": HOUR_MS}, "longest_ms is 3600000, less than the mean delay; allowed: 259200000 and more"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(*value),
)
def test_what_is_not_allowed(wrong: dict[str, float], text: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        replace(LOAD, **wrong)  # type: ignore[arg-type]
    assert str(refused.value) == text


def test_a_refusal_is_one_line(capsys: Captured) -> None:
    words = [word for pair in GIVEN.items() for word in pair]
    assert error_of(capsys, "size", *words, "--batch", "0") == (
        2,
        "invalid_argument: batch is 0; allowed: 1 to 1000000",
    )
    code, said = error_of(capsys, "size", *words[:-1], "soon")
    assert code == 2
    assert said.startswith("invalid_argument: --delay: not a duration: 'soon'")
    assert error_of(capsys, "size") == (2, "usage: Missing option '--per-second' / '-r'. See: tarry size --help")


def test_json_has_all_of_it(capsys: Captured) -> None:
    [found] = data_of(capsys, "size", *(word for pair in GIVEN.items() for word in pair), "--keys")
    assert Size(**found) == estimate(replace(LOAD, keys=True, lag_ms=60_000))
    assert found["pending"] == 259_200_000


def test_the_constants_are_sizes_and_costs() -> None:
    assert all(value >= 0 for value in constants().values()), constants()


@pytest.mark.parametrize("snippet", [pytest.param(each, id=each.name) for each in PAGE])
def test_the_page_shows_what_the_command_prints(snippet: Snippet, capsys: Captured) -> None:
    [words] = snippet.commands("tarry")
    shown = [line.removeprefix("# ") for line in snippet.code.splitlines() if line.startswith("# ")]
    assert shown
    assert shown == out_of(capsys, *words).splitlines()
