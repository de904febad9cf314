"""The whole broker with the test clock: what is pending and where, groups, restarts, clocks that step."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.crash.tools import SMALL, World

from tarry.api.operations import ReadCancellations, ReadIntake
from tarry.base.clock import TestClock
from tarry.base.config import Config
from tarry.base.errors import (
    ClosedError,
    CorruptError,
    InvalidArgumentError,
    InvalidMessageError,
    LockedError,
    OverloadedError,
    StaleLeaseError,
)
from tarry.broker import Broker
from tarry.broker.directory import Checkpoint, read_secret
from tarry.log.files import OsFiles
from tarry.message import handle
from tarry.testing import TestBroker, open_broker

HOUR_MS = 3_600_000


def ids(batch: pa.RecordBatch) -> list[str]:
    return batch["id"].to_pylist()


def settle(broker: Broker, topic: str, group: str, batch: pa.RecordBatch) -> int:
    return broker.ack(topic, group, batch["lease"].to_numpy(), batch["offset"].to_numpy())


def pending(broker: Broker) -> dict[str, tuple[int, int | None, int]]:
    return {e.topic: (e.pending, e.next_due_ms, e.ready) for e in broker.pending()}


# -- what is pending -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_counts_and_next_due_are_exact_wherever_messages_are(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    w = World(tmp_path, settings={"horizon_ms": 2000, "wheel_bytes_max": 20_000})
    w.open()
    for round_ in range(6):
        for topic in ("a", "b", f"only-{round_}"):
            delays = [rng.choice([0, 3, 900, 5000, 70_000, HOUR_MS]) + rng.randint(0, 40) for _ in range(6)]
            w.schedule(topic, delays, body=rng.choice([10, 900]))
        if rng.random() < 0.6:
            w.pipeline_commits()
        w.b.advance(rng.choice([0.0, 0.5, 4]))
        if rng.random() < 0.3:
            w.reopen()
            w.b.step()
        now = w.clock.now_ms()
        got = pending(w.b)
        for topic in w.topics:
            mine = [d for i, d in w.due_ms.items() if i.removeprefix(topic).isdigit() and i.startswith(topic)]
            left = [d for d in mine if d > now]
            assert got[topic] == (len(left), min(left, default=None), len(mine) - len(left))
    w.drain()
    w.b.close()


def test_ready_counts_the_slowest_group(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        for k in range(5):
            broker.schedule("a", b"x", id=str(k))
        broker.step()
        assert pending(broker)["a"] == (0, None, 5)
        batch = broker.receive("a", "fast", max_messages=10)
        settle(broker, "a", "fast", batch)
        assert pending(broker)["a"] == (0, None, 0)
        slow = broker.receive("a", "slow", max_messages=2)
        settle(broker, "a", "slow", slow.slice(1))
        assert pending(broker)["a"] == (0, None, 4)


def test_status_is_plain_data(tmp_path: Path) -> None:
    import json

    with open_broker(tmp_path) as broker:
        broker.schedule("a", b"x", delay=5)
        broker.set_pipeline_status({"state": "running"})
        broker.advance(5)
        broker.receive("a", "g")
        status = json.loads(json.dumps(broker.status()))
        assert (status["state"], status["accepted"], status["fired"], status["handed_out"]) == ("serving", 1, 1, 1)
        assert status["pipeline"] == {"state": "running"}
    assert broker.status()["state"] == "closed"


# -- groups ----------------------------------------------------------------------------------------------------------


def test_each_group_gets_every_message(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock, **SMALL) as broker:
        for k in range(20):
            broker.schedule("a", b"x" * 900, id=str(k))
            broker.step()
        for group in ("one", "two"):
            batch = broker.receive("a", group, max_messages=20)
            while batch.num_rows < 20:
                more = broker.receive("a", group, max_messages=20)
                assert more.num_rows
                batch = pa.concat_batches([batch, more])
            assert ids(batch) == [str(k) for k in range(20)]
            if group == "one":
                assert settle(broker, "a", group, batch) == 20
    with open_broker(tmp_path, clock=clock, **SMALL) as broker:
        assert broker.receive("a", "one").num_rows == 0
        assert broker.receive("a", "two").num_rows == 1
        assert broker.receive("a", "three").num_rows == 1


def test_a_group_from_the_middle_of_things_begins_with_what_is_kept(tmp_path: Path) -> None:
    with open_broker(tmp_path, **SMALL) as broker:
        for k in range(20):
            broker.schedule("a", b"x" * 900, id=str(k))
            broker.step()
            settle(broker, "a", "g", broker.receive("a", "g"))
        broker.step()
        late: list[str] = []
        while (batch := broker.receive("a", "late", max_messages=50)).num_rows:
            late += ids(batch)
        assert late == [str(k) for k in range(20 - len(late), 20)]
        assert len(late) < 20, "what every group of then had acknowledged was deleted"


def test_stale_leases_are_named_and_the_others_settled(tmp_path: Path) -> None:
    with open_broker(tmp_path, lease_ms=1000) as broker:
        for _ in range(3):
            broker.schedule("a", b"x")
        broker.step()
        batch = broker.receive("a", "g", max_messages=3)
        settle(broker, "a", "g", batch.slice(0, 1))
        with pytest.raises(StaleLeaseError, match="1 of 3 leases are stale"):
            settle(broker, "a", "g", batch)
        assert pending(broker)["a"] == (0, None, 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda b: b.receive("a", "", max_messages=1),
        lambda b: b.receive("a", "g" * 256),
        lambda b: b.receive("bad topic", "g"),
        lambda b: b.receive("a", "g", max_messages=0),
        lambda b: b.receive("a", "g", wait_ms=-1),
        lambda b: b.receive("a", "g", lease_ms=0),
        lambda b: b.subscribe("a", "g", prefetch=0),
        lambda b: b.nack("a", "g", [], [], -1),
        lambda b: b.extend("a", "g", [], [], 0),
    ],
)
def test_bad_arguments_are_refused(call: Any, tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker, pytest.raises(InvalidArgumentError, match="allowed"):
        call(broker)


def test_a_refused_batch_accepts_nothing(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        rows = pa.record_batch({"topic": ["a", "bad topic"], "delay_ms": [0, 0], "body": [b"", b""]})
        with pytest.raises(InvalidMessageError, match="row 1"):
            broker.schedule_batch(rows)
        with pytest.raises(InvalidMessageError, match="no rows"):
            broker.schedule_batch(rows.slice(0, 0))
        broker.step()
        assert broker.receive("a", "g").num_rows == 0


# -- memory ----------------------------------------------------------------------------------------------------------


def test_more_due_at_once_than_the_wheel_may_hold_is_refused_and_then_taken(tmp_path: Path) -> None:
    with open_broker(tmp_path, wheel_bytes_max=20_000) as broker:
        broker.step()
        accepted = 0
        with pytest.raises(OverloadedError, match=r"allowed: .* \(4 \* wheel_bytes_max\); try again") as refusal:
            for _ in range(1000):
                broker.schedule("a", b"x" * 1000)
                accepted += 1
        assert refusal.value.retryable
        assert accepted >= 8
        broker.step()
        broker.schedule("a", b"x")
        broker.step()
        assert broker.receive("a", "g", max_messages=10_000).num_rows == accepted + 1


def test_a_herd_larger_than_the_wheel_comes_whole_and_in_order(tmp_path: Path) -> None:
    with open_broker(tmp_path, wheel_bytes_max=50_000, ready_cache_bytes_max=10_000) as broker:
        due = broker.clock.now_ms() + HOUR_MS
        for k in range(20):
            rows = {"topic": ["a"] * 100, "due_ms": [due] * 100, "body": [b"x" * 200] * 100}
            broker.schedule_batch(pa.record_batch({**rows, "id": [f"{100 * k + i:05}" for i in range(100)]}))
        broker.advance("59m59s")
        assert broker.receive("a", "g").num_rows == 0
        assert broker.status()["wheel"]["bytes"] < 100_000
        broker.advance(1)
        got: list[str] = []
        while (batch := broker.receive("a", "g", max_messages=700)).num_rows:
            got += ids(batch)
        assert got == [f"{k:05}" for k in range(2000)]


# -- starting and stopping -------------------------------------------------------------------------------------------


def test_a_second_broker_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        with pytest.raises(LockedError, match=rf"{tmp_path} is in use by another broker \(process {os.getpid()}\)"):
            Broker.open(broker.config, threads=False)
        broker.schedule("a", b"still here")
    with open_broker(tmp_path):
        pass


def test_another_process_is_refused(tmp_path: Path) -> None:
    program = "import sys, tarry; tarry.open(sys.argv[1])"
    with open_broker(tmp_path):
        done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"LockedError: {tmp_path} is in use by another broker (process {os.getpid()})" in done.stderr


def test_a_clean_stop_brings_nothing_again(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.open()
    w.schedule("a", [0, 10, 20, 5000])
    w.b.advance(1)
    w.ack("a", w.receive("a", 1))
    w.ack("a", w.receive("a", 1))
    w.reopen()
    left = w.receive("a")
    assert ids(left) == ["a2"]
    w.ack("a", left)
    for _ in range(3):
        w.reopen()
        assert w.receive("a").num_rows == 0
    assert pending(w.b)["a"][:2] == (1, w.due_ms["a3"])
    w.drain()
    w.b.close()


def test_a_closed_broker_says_so(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        consumer = broker.subscribe("a", "g")
    broker.close()
    for call in (lambda: broker.schedule("a", b"x"), lambda: broker.receive("a", "g"), broker.step):
        with pytest.raises(ClosedError):
            call()
    assert consumer.fetch(1, None) is None
    consumer.close()


def test_an_opening_that_fails_lets_go_of_the_directory(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("a", b"x")
    secret = (tmp_path / "secret.key").read_bytes()
    (tmp_path / "secret.key").write_bytes(b"short")
    with pytest.raises(CorruptError, match="5 bytes; allowed: 36"), open_broker(tmp_path):
        pass
    (tmp_path / "secret.key").write_bytes(secret)
    with open_broker(tmp_path):
        pass


def test_a_secret_is_never_for_others(tmp_path: Path) -> None:
    seen: list[int] = []

    class Watched(OsFiles):
        def replace(self, path: Path, content: bytes) -> None:
            super().replace(path, content)
            seen.append(path.stat().st_mode & 0o777)

    read_secret(Watched(), tmp_path)
    assert seen == [0o600]


def test_a_secret_with_a_flipped_bit_is_refused_and_one_without_a_checksum_is_read(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        receipt = broker.schedule("a", b"x", delay="1h")
    path = tmp_path / "secret.key"
    sound = path.read_bytes()
    for place in (0, 31, 32, 35):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(CorruptError, match="its checksum does not hold"), open_broker(tmp_path):
            pass
    path.write_bytes(sound[:32])  # as older versions wrote it
    with open_broker(tmp_path) as broker:
        assert broker.cancel(receipt.handle)


def test_a_range_that_ends_behind_the_intake_is_no_damage(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("a", b"x")
        for request in (ReadIntake(0, 2), ReadCancellations(0, 1 << 61)):
            with pytest.raises(InvalidArgumentError, match="allowed: up to 1, where the intake ends"):
                broker.call(request)
        assert sum(batch.num_rows for batch in broker.read_intake(0, 1)) == 1


def test_handles_outlive_a_restart_and_not_a_new_secret(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        receipt = broker.schedule("a", b"x", delay=60)
    files = OsFiles()
    made = handle.decode(receipt.handle)
    assert handle.verify(made, read_secret(files, tmp_path))
    assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "secret.key").unlink()
    assert not handle.verify(made, read_secret(files, tmp_path))


def test_a_checkpoint_comes_back_as_it_was_written(tmp_path: Path) -> None:
    written = Checkpoint(5, 6, (7, 8), (9, 10), {"a": 1, "ü": 2}, {"a": 1}, 3, 4, small_files=("a.json",))
    written.write(OsFiles(), tmp_path)
    assert Checkpoint.read(tmp_path) == written
    assert Checkpoint.read(tmp_path / "none") == Checkpoint()


def test_a_store_older_than_the_checkpoint_is_refused(tmp_path: Path) -> None:
    import shutil

    w = World(tmp_path)
    w.open()
    w.schedule("a", [HOUR_MS])
    w.pipeline_commits()
    w.b.step()
    w.schedule("a", [0])
    w.b.step()
    assert w.b.components.progress.last.committed_seq == 1
    w.b.close()
    shutil.rmtree(tmp_path / "store")
    for _ in range(2):
        with pytest.raises(
            CorruptError, match=r"there is no store at .*, and version 1 of one was acted on; allowed: .*--st"
        ):
            w.open()
        assert not (tmp_path / "store").exists(), "an empty one would look like damage"


# -- retention -------------------------------------------------------------------------------------------------------


def test_retention_bounds_what_nobody_takes(tmp_path: Path) -> None:
    clock = TestClock()
    settings = {**SMALL, "retention_ms": HOUR_MS, "segment_bytes_max": 1 << 16}
    with open_broker(tmp_path, clock=clock, **settings) as broker:
        consumer = broker.subscribe("a", "g")
        for k in range(20):
            broker.schedule("a", b"x" * 9000, id=str(k))
            broker.step()
        assert consumer.fetch(1, 0) is not None
        for path in (tmp_path / "ready").glob("*.log"):
            os.utime(path, (1, 1))
        broker.advance("59m")
        assert pending(broker)["a"][2] == 20, "not a minute too early, by the clock of the messages"
        for path in (tmp_path / "ready").glob("*.log"):
            os.utime(path, (1, 1))
        broker.advance("2m")
        left = pending(broker)["a"][2]
        assert 0 < left < 20
        batch = consumer.fetch(100, 0)
        assert batch is not None
        assert ids(batch)[0] == str(20 - left)
        topic = broker.components.ready.topic("a")
        assert (topic.first, topic.end) == (20 - left, 20)
    with open_broker(tmp_path, clock=clock, **settings) as broker:
        assert ids(broker.receive("a", "g"))[0] == str(20 - left)


# -- clocks ----------------------------------------------------------------------------------------------------------


def test_a_clock_that_steps_back_holds_up_only_what_is_not_due(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        start = broker.clock.now_ms()
        broker.schedule("a", b"", id="hour", due=start + HOUR_MS)
        broker.clock.set_ms(start + HOUR_MS)  # a wrong clock
        broker.step()
        broker.clock.set_ms(start)  # and right again
        broker.step()
        assert broker.receive("a", "g").num_rows == 0, "never early"
        broker.schedule("a", b"", id="soon", delay=5)
        broker.advance(4.999)
        assert broker.receive("a", "g").num_rows == 0
        broker.advance(0.001)
        soon = broker.receive("a", "g", max_messages=9)
        assert ids(soon) == ["soon"], "never stuck"
        settle(broker, "a", "g", soon)
        broker.advance(3600)
        assert ids(broker.receive("a", "g", max_messages=9)) == ["hour"]


@pytest.mark.parametrize("step_ms", [-HOUR_MS, -1, 1, HOUR_MS, 400 * 24 * HOUR_MS])
@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
def test_a_clock_that_steps_between_stop_and_start(step_ms: int, crash: bool, tmp_path: Path) -> None:
    w = World(tmp_path, settings={"horizon_ms": 10_000})
    w.open()
    w.schedule("a", [0, 50, 5_000, HOUR_MS // 2, 2 * HOUR_MS])
    w.b.advance(0.1)
    w.ack("a", w.receive("a", 1))
    if crash:
        w.crashed(None)
    else:
        w.b.close()
    w.clock.advance_ms(step_ms)
    w.open()
    w.b.step()
    w.schedule("a", [0, 30])
    w.b.advance(1)
    w.receive("a")
    w.drain()
    w.b.close()


def test_a_jump_of_years_delivers_everything(tmp_path: Path) -> None:
    with open_broker(tmp_path, wheel_bytes_max=20_000) as broker:
        for days in range(0, 3000, 10):
            broker.schedule("a", b"x" * 100, delay=f"{days}d", id=str(days))
        broker.clock.advance_ms(3001 * 24 * HOUR_MS)
        broker.step()
        got: list[str] = []
        while (batch := broker.receive("a", "g", max_messages=1000)).num_rows:
            got += ids(batch)
        assert got == [str(d) for d in range(0, 3000, 10)]


def test_leases_of_a_former_run_are_stale(tmp_path: Path) -> None:
    clock = TestClock()
    with open_broker(tmp_path, clock=clock) as broker:
        broker.schedule("a", b"x")
        broker.step()
        old = broker.receive("a", "g")
    with open_broker(tmp_path, clock=clock) as broker:
        assert broker.receive("a", "g").num_rows == 1
        with pytest.raises(StaleLeaseError):
            settle(broker, "a", "g", old)


# -- the pipeline's door ---------------------------------------------------------------------------------------------


def test_the_intake_tells_what_waits(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.open()
    assert w.b.intake_state()["oldest_ms"] is None
    born = w.clock.now_ms()
    w.schedule("a", [HOUR_MS] * 5, body=1000)
    w.clock.advance_ms(1000)
    w.schedule("a", [HOUR_MS] * 5, body=1000)
    state = w.b.intake_state()
    assert (state["first_seq"], state["durable_seq"], state["committed_seq"]) == (0, 10, 0)
    assert state["oldest_ms"] == born
    assert state["waiting_bytes"] > 10_000
    w.pipeline_commits()
    w.b.step()
    state = w.b.intake_state()
    assert (state["committed_seq"], state["oldest_ms"], state["waiting_bytes"]) == (10, None, 0)
    w.b.close()


def test_config_of_a_directory_is_not_shared(tmp_path: Path) -> None:
    one = TestBroker(Config(data=tmp_path / "1", pipeline="off"), TestClock(), OsFiles(), threads=False)
    two = TestBroker(Config(data=tmp_path / "2", pipeline="off"), TestClock(), OsFiles(), threads=False)
    one.schedule("a", b"1")
    one.step()
    two.step()
    assert two.receive("a", "g").num_rows == 0
    one.close()
    two.close()
