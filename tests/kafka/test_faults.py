"""The command as a process: killed, its Kafka killed, many records, a herd. `make kafka` runs these."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tarry_relay.headers import DUE_MS

from .conftest import World, now_ms
from .relay_process import Process, process, reads, runs

pytestmark = [pytest.mark.kafka, pytest.mark.kafka_slow, pytest.mark.timeout(1200)]

AWAY_S = 60.0


def send(world: World, first: int, rows: int, due_ms: int, spread_ms: int) -> None:
    for i in range(first, first + rows):
        headers = [(DUE_MS, b"%d" % (due_ms + i * 7919 % spread_ms))] if i % 4 else []
        world.send(b"%d" % i, headers, key=b"k%d" % (i % 100))
        if not i % 1000:
            world.producer.poll(0)
    world.flush()


def check(world: World, rows: int, timeout_s: float = 120) -> None:
    got = world.values(rows, timeout_s=timeout_s)
    last = rows
    world.send(b"%d" % last, key=b"k")
    world.flush()
    got = world.values(rows + 1, timeout_s=60)
    assert len(got) - len(set(got)) == 0, f"{len(got) - len(set(got))} twice"
    assert {int(v or b"") for v in got} == set(range(rows + 1))


def goes_on_after(
    kill: Callable[[Process], None], world: World, *more: str, rows: int, delay_ms: int, spread_ms: int
) -> None:
    """A relay that is killed once while it delivers loses nothing."""
    with process(world, *more) as relay:
        relay.wait(reads)
        send(world, 0, rows, now_ms() + delay_ms, spread_ms)
        relay.wait(lambda now: now["counts"].get("delivered", 0) > 0)
        kill(relay)
        relay.start()
        check(world, rows)
        assert relay.stop() == 0


def test_kill_9_of_the_driver(world: World) -> None:
    """Four times, at whatever moment, while records come in and go out: none lost, none twice."""
    rows = 0
    with process(world) as relay:
        relay.wait(reads)
        for pause_s in (0.3, 1.1, 2.3, 0.0):
            relay.wait(runs)  # who had read everything has no batch when it starts again
            send(world, rows, 20_000, now_ms() + 1_000, 6_000)
            rows += 20_000
            time.sleep(pause_s)  # where it is then is chance: that is what is wanted
            relay.kill()
            relay.start()
        check(world, rows)
        assert relay.stop() == 0


def test_kill_9_of_tasks(world: World) -> None:
    """The processes of tasks, in the middle of what they do, of delivery as well as of scheduling: again and again."""
    with process(world, "--set", "batch_rows_max=5000") as relay:
        relay.wait(reads)
        send(world, 0, 30_000, now_ms() + 1_000, 8_000)
        before = 0
        for _ in range(3):
            # What a killed task had not said yet is not counted: so more than at the last kill, not so many in all.
            now = relay.wait(lambda now, n=before: now["counts"].get("delivered", 0) > n)
            before = now["counts"]["delivered"]
            for worker in relay.workers():
                with suppress(psutil.NoSuchProcess):
                    worker.kill()
        check(world, 30_000)
        status = relay.wait(lambda now: runs(now) and now["deliver"]["state"] == "running")
        assert status["deliver"]["restarts"] > 0
        assert relay.stop() == 0


def test_kill_9_of_the_driver_alone(world: World) -> None:
    """Its tasks may live on for a moment, beside those of the next driver, which take their ids over."""
    goes_on_after(Process.kill_alone, world, rows=20_000, delay_ms=1_000, spread_ms=10_000)


def test_the_store_is_away(world: World) -> None:
    """Nothing can be read there or written for a minute: the relay waits, says so, and goes on by itself."""
    there, away = world.directory / "there", world.directory / "away"
    there.mkdir()
    place = Path(world.settings.store)
    place.symlink_to(there)
    with process(world, "--set", "direct_rows_max=0") as relay:
        relay.wait(reads)
        send(world, 0, 10_000, now_ms() + 500, 6_000)
        relay.wait(lambda now: now["counts"].get("delivered", 0) > 0)
        place.rename(away)  # a link to nowhere is what nobody can make a directory of
        place.symlink_to(world.directory / "nowhere")
        since = time.monotonic()
        send(world, 10_000, 5_000, now_ms() + 500, 3_000)
        relay.wait(lambda now: now["deliver"]["error"] and now["schedule"]["error"])
        relay.wait(lambda _: time.monotonic() - since >= AWAY_S)
        place.unlink()
        away.rename(place)
        # By then the pause between two attempts has grown to half a minute or more.
        check(world, 15_000, 240)
        relay.wait(lambda now: runs(now) and not now["deliver"]["error"])
        assert relay.stop() == 0


def test_two_relays_of_one_name(world: World) -> None:
    """Who started last goes on, the first ends and says why; nothing is lost or twice while both are at work."""
    with process(world, label="first") as first:
        first.wait(reads)
        send(world, 0, 10_000, now_ms() + 1_000, 60_000)
        world.running = replace(world.running, checkpoint=world.directory / "other-checkpoint")
        with process(world, label="second") as second:
            second.wait(lambda now: runs(now) and now["deliver"]["state"] == "running")
            send(world, 10_000, 10_000, now_ms() + 1_000, 20_000)
            assert first.returncode(180) == 1
            assert "taken over" in first.errors() or "another relay" in first.errors() or "fenced" in first.errors()
            check(world, 20_000)
            assert second.stop() == 0


def test_kill_9_of_kafka(world: World) -> None:
    """Kafka goes away in the middle and comes back: the relay waits, says so, and goes on by itself."""
    with process(world, "--set", "batch_rows_max=5000") as relay:
        relay.wait(reads)
        send(world, 0, 40_000, now_ms() + 500, 5_000)
        relay.wait(lambda now: now["counts"].get("read", 0) >= 5_000)
        world.kafka.kill()
        try:
            relay.wait(lambda now: now["kafka"]["state"] == "away")
        finally:
            world.kafka.start()
        check(world, 40_000)
        relay.wait(lambda now: now["kafka"]["state"] == "there")
        assert relay.stop() == 0


def test_a_herd(world: World, tmp_path: Path) -> None:
    """100,000 due within a second, more than the memory may hold: all of them, once, and never early."""
    with process(world, "--set", "direct_rows_max=10000") as relay:
        relay.wait(reads)
        due_ms = now_ms() + 25_000
        for i in range(100_000):
            world.send(b"%d" % i, [(DUE_MS, b"%d" % (due_ms + i % 1000))], key=b"k%d" % (i % 1000))
            if not i % 1000:
                world.producer.poll(0)
        world.flush()
        got = world.received(lambda messages: len(messages) >= 100_000, timeout_s=120)
        assert len({m.value() for m in got}) == len(got) == 100_000
        assert min(m.timestamp()[1] for m in got) > 0
        status = relay.wait(lambda now: now["counts"].get("delivered", 0) >= 100_000)
        assert status["lateness_ms"]["min"] >= 0
        assert relay.stop() == 0


def test_a_store_on_s3(world: World, s3_uri: str) -> None:
    """The same with a store on object storage, and a kill -9 of the driver."""
    world.settings = replace(world.settings, store=s3_uri)
    more = ("--set", "compact_interval_ms=2000")
    goes_on_after(Process.kill, world, *more, rows=4_000, delay_ms=4_000, spread_ms=12_000)


def test_wrong_usage_is_one_line() -> None:
    command = [sys.executable, "-m", "tarry", "relay", "--kafka", "127.0.0.1:1", "--topics", "(", "--store", "s"]
    done = subprocess.run([*command, "--checkpoint", "c"], capture_output=True, text=True, env=os.environ, timeout=60)
    assert done.returncode == 2
    assert "no regular expression" in done.stderr.splitlines()[-1]
