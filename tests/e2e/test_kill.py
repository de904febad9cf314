"""Real processes, really killed: nothing acknowledged is lost, nothing comes early, nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tarry.base.errors import OverloadedError, UnavailableError
from tarry.cli.exits import ExitCode
from tarry.client import Client
from tarry_demo.account import Account, account_of
from tarry_demo.broker_process import BrokerProcess, living_processes, wait_for_exit
from tarry_demo.consumer_main import TopicConsumer
from tarry_demo.monitor import BrokerSnapshot, Monitor
from tests.waiting import wait_until

from .conftest import MakeBroker

TOPICS = ("a", "b")
BATCH = 40
DELAY_MS = 1_500
MORE = 1_500
PATIENCE_S = 90.0
FAST: dict[str, str | int] = {
    # Small, so that a few seconds see many checkpoints, windows and files.
    "pipeline": "off",
    "horizon_ms": 400,
    "checkpoint_interval_ms": 50,
    "segment_bytes_max": "128KiB",
}


class Load(threading.Thread):
    """A producer that never stops: singles and tables by turns. It notes what it was told, and goes on after errors."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._client = Client(address, timeout=10.0)
        self._stopping = threading.Event()
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.rows = 0
        self.accepted = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        rng = np.random.default_rng(7)
        try:
            while not self._stopping.is_set():
                delays_ms = rng.integers(0, DELAY_MS, BATCH)
                try:
                    self._single(int(delays_ms[0])) if rng.integers(4) == 0 else self._table(delays_ms)
                except (UnavailableError, OverloadedError):
                    self._stopping.wait(0.02)
        except BaseException as error:  # noqa: BLE001  the test looks at it
            self.error = error

    def accepted_rows(self) -> list[np.ndarray]:
        """The numbers of the messages that were accepted so far."""
        return [rows for rows, _, _ in self._parts]

    def stop(self) -> pa.Table:
        """What was accepted."""
        self._stopping.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()
        assert self.error is None
        self._client.close()
        columns = zip(("row", "seq", "due_ms"), zip(*self._parts, strict=True), strict=True)
        table = pa.table({name: pa.array(np.concatenate(parts)) for name, parts in columns})
        return table.append_column("exact", pa.array(np.ones(table.num_rows, np.int64)))

    def _single(self, delay_ms: int) -> None:
        row, self.rows = self.rows, self.rows + 1
        receipt = self._client.schedule(TOPICS[row % 2], b"x" * 50, delay=f"{delay_ms}ms", id=str(row))
        self._note(np.array([row]), np.array([receipt.seq]), np.array([receipt.due_ms]))

    def _table(self, delays_ms: np.ndarray) -> None:
        rows = np.arange(self.rows, self.rows + len(delays_ms))
        self.rows += len(rows)  # also when it fails: nobody knows then whether they were accepted
        table = pa.table(
            {
                "topic": [TOPICS[row % 2] for row in rows],
                "body": [b"y" * 50] * len(rows),
                "id": [str(row) for row in rows],
                "delay_ms": delays_ms,
            }
        )
        [accepted] = self._client.schedule_batch(table)
        self._note(rows, accepted.first_seq + np.arange(accepted.count), accepted.due_ms)

    def _note(self, rows: np.ndarray, seqs: np.ndarray, due_ms: np.ndarray) -> None:
        self._parts.append((rows, seqs, due_ms))
        self.accepted += len(rows)


def go_on(load: Load, watches: list[TopicConsumer]) -> None:
    """Wait until producer and consumers have done some more work: whatever comes next comes under load."""
    accepted, got = load.accepted, sum(watch.count for watch in watches)
    wait_until(lambda: load.accepted >= accepted + MORE, PATIENCE_S, "the producer")
    wait_until(lambda: sum(watch.count for watch in watches) >= got + MORE // 3, PATIENCE_S, "the consumers")


def wait_drained(client: Client) -> None:
    """Until everything is delivered and acknowledged; what is lost is counted by the account."""
    wait_until(lambda: not any(t.pending or t.ready for t in client.pending()), PATIENCE_S, client.pending)


def account_under_load(broker: BrokerProcess, end: Callable[[], object], *, times: int) -> Account:
    """What came of a load during which the broker was ended so often, and started again."""
    with Client(broker.address) as client:
        watches = [TopicConsumer(client, topic, "g") for topic in TOPICS]
        load = Load(broker.address)
        for thread in (*watches, load):
            thread.start()
        for _ in range(times):
            go_on(load, watches)
            end()
            broker.start()
        accepted = load.stop()
        wait_drained(client)
        for watch in watches:
            watch.close()
            assert watch.error is None
    delivered = pa.Table.from_batches([watch.delivered() for watch in watches])
    return account_of(accepted, delivered, rows=load.rows)


@pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.rest)])
def test_killed_under_load_again_and_again(make_broker: MakeBroker, kills: int) -> None:
    broker = make_broker(**FAST)
    account = account_under_load(broker, broker.kill, times=kills)
    assert account.accepted >= kills * MORE
    assert (account.lost, account.early, account.strange) == (0, 0, 0)
    # Only what was in consumers' hands, or acknowledged and not durable yet, may come again: far below a prefetch.
    assert account.duplicated <= kills * len(TOPICS) * 1000
    assert broker.stop() == ExitCode.OK


@pytest.mark.rest
def test_sigterm_under_load_ends_it_cleanly_and_loses_nothing(make_broker: MakeBroker) -> None:
    broker = make_broker(**FAST)

    def end() -> None:
        assert broker.stop() == ExitCode.OK

    account = account_under_load(broker, end, times=2)
    assert (account.lost, account.early, account.strange) == (0, 0, 0)


@pytest.mark.rest
def test_a_second_broker_is_refused_and_disturbs_nobody(make_broker: MakeBroker) -> None:
    broker = make_broker(**FAST)
    second = subprocess.run(
        [sys.executable, "-m", "tarry", "serve", "--data", str(broker.data), "--flight", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert second.returncode == ExitCode.LOCKED == 3
    assert str(broker.data) in second.stderr
    with Client(broker.address) as client:
        client.schedule("a", b"still here")
        [message] = client.receive("a", group="g", wait=PATIENCE_S)
        assert message.body == b"still here"


@pytest.mark.rest
def test_a_killed_broker_gives_the_directory_free(make_broker: MakeBroker) -> None:
    broker = make_broker(**FAST)
    for _ in range(3):
        broker.kill()
        broker.start()
    assert broker.stop() == ExitCode.OK


@pytest.mark.spark
@pytest.mark.long
def test_the_pipeline_alone_is_killed(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(schedule_interval_ms=500, horizon_ms=2_000)
    with Monitor(broker) as monitor, Client(broker.address) as client:

        def seen(done: Callable[[BrokerSnapshot], bool]) -> BrokerSnapshot:
            look = monitor.wait(done, PATIENCE_S, lambda: None)
            assert look is not None, monitor.looks[-1]
            return look

        def store(count: int) -> None:
            far = pa.table({"topic": ["far"] * count, "body": [b"x"] * count, "delay_ms": [3_600_000] * count})
            seq = client.schedule_batch(far)[-1].first_seq + count
            seen(lambda look: look.committed_seq >= seq)

        former = seen(lambda look: look.pipeline_ready).pipeline_pid
        assert former is not None
        store(100)
        os.kill(former, signal.SIGKILL)
        # Nobody who produces or consumes notices.
        client.schedule("a", b"meanwhile", delay="100ms")
        [message] = client.receive("a", group="g", wait=PATIENCE_S)
        assert message.body == b"meanwhile"
        assert wait_for_exit({former}, PATIENCE_S)[1] == []
        seen(lambda look: look.pipeline_ready and look.pipeline_pid != former)
        store(50)
        assert monitor.look().pipeline["supervisor"]["restarts"] >= 1
    sessions = broker.sessions
    assert broker.stop() == ExitCode.OK
    assert living_processes(sessions) == []
