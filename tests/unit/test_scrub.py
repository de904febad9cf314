"""The scrub: damage is met while a broker serves, and what is written or deleted meanwhile is no damage."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tarry.broker.scrub as scrub_module
from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.broker import Broker
from tarry.log.frame import LogKind
from tarry.verify import Check
from tarry.verify.logs import segment_checks

T0 = 1_795_264_000_000
HOUR = 3_600_000
FAST = 1 << 30


def open_broker(data: Path, **settings: Any) -> Broker:
    defaults = {"disk_free_bytes_min": 0, "segment_bytes_max": 4096, "scrub_bytes_per_s": FAST}
    return Broker.open(
        Config(data=data, pipeline="off", **{**defaults, **settings}), clock=TestClock(T0), threads=False
    )


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    with open_broker(tmp_path / "data") as broker:
        for i in range(60):
            broker.schedule("a", b"x" * 500, delay=3600 + i, key=f"k{i}")
            broker.schedule("b", b"y" * 500, delay=0)
        broker.step()
        bulk = broker.components.bulk
        number = bulk.begin("job").number
        rows = {"topic": ["b"] * 99, "due_ms": pa.array([T0 + HOUR + i for i in range(99)]), "body": [b"z" * 99] * 99}
        bulk.commit(number, *bulk.stage(number, [pa.record_batch(rows)]))
        yield broker


def flip(path: Path, at: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[int(at * (len(content) - 1))] ^= 0x15
    path.write_bytes(content)


def places(broker: Broker) -> list[str]:
    return list(broker.status()["damage"]["places"])


def test_a_sound_directory_and_how_far_it_is(broker: Broker) -> None:
    broker.components.scrub.run_pass()
    assert places(broker) == []
    progress = broker.status()["scrub"]
    assert (progress["passes"], progress["ended_ms"]) == (1, T0)
    assert progress["checked_bytes"] == progress["of_bytes"] > 60 * 500
    assert progress["bytes"] >= progress["of_bytes"]
    broker.components.scrub.run_pass()
    assert broker.status()["scrub"]["passes"] == 2


KINDS = [
    *("intake/*0.log", "intake/*0.idx", "ready/*0.log", "checkpoint.json"),
    *("store/_delta_log/*1.json", "store/shard=0/*/*.parquet"),
]


@pytest.mark.parametrize("pattern", KINDS)
def test_damage_is_met_and_told_once(broker: Broker, pattern: str, caplog: pytest.LogCaptureFixture) -> None:
    broker.checkpoint()
    path = sorted(broker.config.data.glob(pattern))[0]
    content = path.read_bytes()
    flip(path)
    for _ in range(2):
        broker.components.scrub.run_pass()
    [place] = places(broker)
    assert place.startswith(str(path))
    assert "To go on: " in place
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 1
    assert broker.status()["state"] == "serving"
    path.write_bytes(content)


def test_the_audit_log_is_checked_but_for_the_file_that_is_written(tmp_path: Path) -> None:
    config = Config(data=tmp_path / "data", pipeline="off", scrub_bytes_per_s=FAST, audit_log_file_bytes=4096)
    with Broker.open(config, audited=True) as broker:
        for i in range(60):
            broker.set_group("a", "g", tries=3 + i)
        *sealed, written = sorted((config.data / "audit").glob("*.log"))
        assert len(sealed) >= 2
        broker.components.scrub.run_pass()
        assert places(broker) == []
        contents = {path: path.read_bytes() for path in (sealed[1], written)}
        for path in contents:
            flip(path)
        for _ in range(2):
            broker.components.scrub.run_pass()
        for path, content in contents.items():
            path.write_bytes(content)
        [place] = places(broker)
        assert place.startswith(str(sealed[1]))
        assert "does not tell any more who did what" in place
        assert broker.status()["state"] == "serving"


def test_a_file_of_the_audit_log_that_is_deleted_meanwhile_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(data=tmp_path / "data", pipeline="off", scrub_bytes_per_s=FAST, audit_log_file_bytes=4096)
    with Broker.open(config, audited=True) as broker:
        for i in range(60):
            broker.set_group("a", "g", tries=3 + i)
        checks = list(broker.components.scrub.plan())
        assert sum(check.kind == "audit log" for check in checks) >= 2
        oldest, *_ = sorted((config.data / "audit").glob("*.log"))
        oldest.unlink()
        monkeypatch.setattr(scrub_module.Scrub, "plan", lambda _: iter(checks))
        broker.components.scrub.run_pass()
        assert places(broker) == []


@pytest.mark.parametrize("pattern", ["intake/*0.log", "intake/*0.idx", "ready/*0.log", "store/_delta_log/*0.json"])
def test_what_is_deleted_meanwhile_is_no_damage(broker: Broker, pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sorted(broker.config.data.glob(pattern))[0]
    content = path.read_bytes()
    checks = list(broker.components.scrub.plan())
    path.unlink()
    monkeypatch.setattr(scrub_module.Scrub, "plan", lambda _: iter(checks))
    broker.components.scrub.run_pass()
    assert places(broker) == []
    path.write_bytes(content)


def test_what_is_deleted_while_it_is_planned_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The names were listed, and seen to be there; then the broker deleted the files.
    monkeypatch.setattr(Path, "exists", lambda _: True)
    checks = list(segment_checks(tmp_path, LogKind.READY, [0, 5], None))
    assert [(check.bytes, list(check.results(lambda _: None))) for check in checks] == [(0, [])] * 3


def test_a_missing_file_that_the_store_names_is_damage(broker: Broker) -> None:
    [path] = broker.config.data.glob("store/shard=0/*/*.parquet")
    content = path.read_bytes()
    path.unlink()
    broker.components.scrub.run_pass()
    assert "the file is missing" in places(broker)[0]
    path.write_bytes(content)


@pytest.mark.parametrize(("error", "is_damage"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_what_the_disk_does_not_give_back_is_damage(
    broker: Broker, error: int, is_damage: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def run(_: Any) -> Any:
        raise OSError(error, os.strerror(error))

    checks = [Check("store file", str(broker.config.data / "checkpoint.json"), 1, run)]
    monkeypatch.setattr(scrub_module.Scrub, "plan", lambda _: iter(checks))
    monkeypatch.setattr(scrub_module, "FIRST_S", 0.0)
    ending = threading.Event()
    monkeypatch.setattr(ending, "wait", lambda wait_s: wait_s > 0.0)
    monkeypatch.setattr(broker.components.scrub, "_ending", ending)
    broker.components.scrub.run()
    assert [is_damage] * is_damage == ["cannot be read: Input/output error" in place for place in places(broker)]
    assert ("the pass was given up" in caplog.text) is not is_damage
    assert broker.status()["state"] == "serving"


def test_it_keeps_to_its_rate_and_ends_with_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Ending(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return waits[-1] > 3  # no time has passed, so this is all that is owed

    with open_broker(tmp_path / "data", scrub_bytes_per_s=1000) as broker:
        for i in range(30):
            broker.schedule("a", b"x" * 500, delay=3600 + i)
        broker.step()
        scrub = broker.components.scrub
        monkeypatch.setattr(scrub, "_ending", Ending())
        scrub.run_pass()
        assert scrub.progress["passes"] == 0, "it ended early"
        assert waits[-1] == pytest.approx(scrub.progress["bytes"] / 1000, rel=0.1)


@pytest.mark.rest
def test_beside_a_broker_at_work(tmp_path: Path) -> None:
    # Segments are rolled, sealed and deleted, and the store is committed to, while passes are made.
    with Broker.open(
        Config(
            data=tmp_path / "data",
            pipeline="off",
            disk_free_bytes_min=0,
            segment_bytes_max=8192,
            checkpoint_interval_ms=20,
            retention_ms=0,
            scrub_bytes_per_s=FAST,
        )
    ) as broker:
        stop = threading.Event()
        bulk = broker.components.bulk

        def produce() -> None:
            try:
                produce_all()
            finally:
                stop.set()

        def produce_all() -> None:
            for i in range(400):
                broker.schedule("a", b"x" * 300, delay=0)
                if i % 40 == 0:
                    rows = {
                        "topic": ["b"] * 9,
                        "due_ms": pa.array([broker.clock.now_ms() + HOUR] * 9),
                        "body": [b"z"] * 9,
                    }
                    number = bulk.begin(f"job {i}").number
                    bulk.commit(number, *bulk.stage(number, [pa.record_batch(rows)]))

        producer = threading.Thread(target=produce)
        producer.start()
        while not stop.is_set():
            broker.components.scrub.run_pass()
        producer.join()
        assert places(broker) == []
        assert broker.status()["scrub"]["passes"] > 0
