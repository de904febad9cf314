"""A backup under load, killed in the midst as the broker is; the whole one lacks nothing that was accepted before."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tarry.backup.bucket import Bucket
from tarry.broker.backups import DIRECTORY
from tarry.cli.exits import ExitCode
from tarry.client import Client
from tarry.log.file_engine import BACKUP_FILE, BEGUN_FILE
from tarry_demo.broker_process import BrokerProcess
from tarry_demo.consumer_main import TopicConsumer
from tests.engines import azurite, fake_gcs
from tests.engines.versitygw import BUCKET, served
from tests.s3 import set_environment
from tests.waiting import wait_until

from .conftest import MakeBroker
from .test_kill import FAST, PATIENCE_S, TOPICS, Load, go_on

FAR, CANCELLED = 400, 100
"""Messages that are due tomorrow, and how many of them are cancelled before the backup."""
LARGE, LARGE_BYTES = 30, 900_000
"""Messages that take a moment to be sent to a bucket."""


def tarry(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tarry", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments: str) -> tuple[int, str]:
    """Exit code, and what was printed."""
    process = tarry(*arguments)
    out, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out + errors


def kill_in_the_midst(directory: Path, address: str) -> None:
    """Kill a backup (SIGKILL) when its first files are there."""
    process = tarry("backup", str(directory), "-e", address)
    until_s = time.monotonic() + PATIENCE_S
    while not (directory / "acks").exists() and time.monotonic() < until_s:
        time.sleep(0.0005)
    process.kill()
    process.communicate()


def accepted_so_far(load: Load) -> set[int]:
    """The rows that the broker has accepted."""
    return {row for rows in load.accepted_rows() for row in rows.tolist()}


def delivered(watches: list[TopicConsumer]) -> pa.Table:
    return pa.Table.from_batches([watch.delivered() for watch in watches])


def wait_drained_of(client: Client, watches: list[TopicConsumer]) -> None:
    """Until all that is due soon is delivered and acknowledged."""

    def is_drained() -> bool:
        assert [watch.error for watch in watches if not watch.is_alive()] == []
        return not any(each.ready or (each.topic in TOPICS and each.pending) for each in client.pending())

    wait_until(is_drained, PATIENCE_S, lambda: (client.pending(), client.groups()))


@pytest.mark.rest
def test_nothing_accepted_before_a_backup_is_missing_in_it(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(**FAST)
    monday, tuesday = tmp_path / "monday", tmp_path / "tuesday"
    with Client(broker.address) as client:
        for number in range(FAR):
            client.schedule("far", b"x", delay="1d", key=f"k{number}")
        client.cancel_keys("far", [f"k{number}" for number in range(CANCELLED)])
        watches = [TopicConsumer(client, topic, "g") for topic in TOPICS]
        load = Load(broker.address)
        for thread in (*watches, load):
            thread.start()
        go_on(load, watches)

        kill_in_the_midst(monday, broker.address)
        assert (monday / BEGUN_FILE).exists()
        assert not (monday / BACKUP_FILE).exists()
        code, text = run("restore", str(monday), "--data", str(tmp_path / "no"))
        assert (code, "interrupted" in text) == (ExitCode.CORRUPT, True)
        # Another one waits for the end of the hold, and the broker is killed meanwhile.
        waiting = tarry("backup", str(tuesday), "-e", broker.address)
        wait_until((tuesday / BEGUN_FILE).exists, PATIENCE_S)
        broker.kill()
        broker.start()
        assert not (tmp_path / "data" / DIRECTORY).exists()
        waiting.communicate(timeout=PATIENCE_S)
        assert waiting.returncode in (ExitCode.OK, ExitCode.UNAVAILABLE)

        go_on(load, watches)
        before = accepted_so_far(load)
        code, text = run("backup", str(monday), "-e", broker.address)
        assert (code, text) == (ExitCode.OK, text)
        delivered_before = {*delivered(watches)["row"].to_pylist()}
        go_on(load, watches)
        broker.kill()
        broker.start()
        load.stop()
        wait_drained_of(client, watches)
        for watch in watches:
            watch.close()
            assert watch.error is None

    assert run("restore", str(monday), "--data", str(tmp_path / "new"))[0] == ExitCode.OK
    restored = BrokerProcess(tmp_path / "new", tmp_path / "new.log", FAST)
    with restored:
        restored.start()
        with Client(restored.address) as client:
            watches = [TopicConsumer(client, topic, "g") for topic in TOPICS]
            for watch in watches:
                watch.start()
            wait_drained_of(client, watches)
            for watch in watches:
                watch.close()
                assert watch.error is None
            [far] = [each for each in client.pending() if each.topic == "far"]
            assert far.pending == FAR - CANCELLED
            assert client.cancel_keys("far", ["k0", f"k{CANCELLED}"]) == ["cancelled", "done"]
    came = delivered(watches)
    rows = {*came["row"].to_pylist()}
    assert before - rows - delivered_before == set()
    assert pc.all(pc.greater_equal(came["handed_out_ns"], pc.multiply(came["due_ms"], 1_000_000))).as_py()


def is_begun(bucket: Path) -> bool:
    """Whether an object of a backup is there."""
    return any(path.is_file() for path in bucket.rglob("*"))


@contextmanager
def cloud(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place for backups at a server of one kind, to which the environment has the credentials: its URI."""
    server, uri = {
        "azure": (azurite.served, f"abfss://{azurite.CONTAINER}@{azurite.ACCOUNT}.dfs.core.windows.net/monday"),
        "google": (fake_gcs.served, f"gs://{fake_gcs.BUCKET}/monday"),
    }[name]
    with server(directory) as environment:
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        yield uri


@pytest.mark.rest
@pytest.mark.parametrize("name", ["azure", "google"])
def test_a_killed_upload_to_another_cloud_is_no_backup(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with cloud(name, tmp_path / name, monkeypatch) as uri:
        bucket, broker = Bucket(uri), make_broker(**FAST)
        with Client(broker.address) as client:
            for _ in range(LARGE):
                client.schedule("far", os.urandom(LARGE_BYTES), delay="1d")
            process = tarry("backup", uri, "-e", broker.address)
            wait_until(lambda: bucket.sizes("") or process.poll() is not None, PATIENCE_S)
            assert process.poll() is None, "".join(process.communicate())
            process.kill()
            process.communicate()
            left = {each.partition("/")[0] for each in bucket.sizes("")}
            assert BACKUP_FILE not in left
            for command in (("verify", uri), ("restore", uri, "--data", str(tmp_path / "no"))):
                code, text = run(*command)
                assert (code, "interrupted" in text) == (ExitCode.CORRUPT, True)
            code, text = run("backup", uri, "-e", broker.address)
            assert (code, text) == (ExitCode.OK, text)
            assert left.isdisjoint(each.partition("/")[0] for each in bucket.sizes(""))
        assert run("verify", uri)[0] == ExitCode.OK
        assert run("restore", uri, "--data", str(tmp_path / "new"))[0] == ExitCode.OK
    restored = BrokerProcess(tmp_path / "new", tmp_path / "new.log", FAST)
    with restored:
        restored.start()
        with Client(restored.address) as client:
            [far] = client.pending()
            assert (far.topic, far.pending) == ("far", LARGE)


@pytest.mark.rest
def test_a_killed_upload_is_no_backup_and_the_broker_goes_on(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path / "versitygw") as endpoint:
        set_environment(monkeypatch, endpoint, "A", "S")
        uri, bucket = f"s3://{BUCKET}/monday", tmp_path / "versitygw" / BUCKET / "monday"
        broker = make_broker(**FAST)
        with Client(broker.address) as client:
            for _ in range(LARGE):
                client.schedule("far", os.urandom(LARGE_BYTES), delay="1d")
            process = tarry("backup", uri, "-e", broker.address)
            wait_until(lambda: is_begun(bucket) or process.poll() is not None, PATIENCE_S)
            assert process.poll() is None, "".join(process.communicate())
            process.kill()
            process.communicate()
            assert not (bucket / BACKUP_FILE).exists()
            for command in (("verify", uri), ("restore", uri, "--data", str(tmp_path / "no"))):
                code, text = run(*command)
                assert (code, "interrupted" in text) == (ExitCode.CORRUPT, True)
            assert client.status()["backup"]["at_ms"] is None
            client.schedule("far", b"after", delay="1d")
            # It waits until the broker has let go of what the killed one held.
            code, text = run("backup", uri, "-e", broker.address)
            assert (code, text) == (ExitCode.OK, text)
            assert not (tmp_path / "data" / DIRECTORY).exists()
            known = client.status()["backup"]
            assert known["place"] == uri
        broker.kill()
        broker.start()
        with Client(broker.address) as client:
            assert client.status()["backup"] == known
        assert run("restore", uri, "--data", str(tmp_path / "new"))[0] == ExitCode.OK
    restored = BrokerProcess(tmp_path / "new", tmp_path / "new.log", FAST)
    with restored:
        restored.start()
        with Client(restored.address) as client:
            [far] = client.pending()
            assert (far.topic, far.pending) == ("far", LARGE + 1)
