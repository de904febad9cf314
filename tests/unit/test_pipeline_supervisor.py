"""The supervisor, with small children in place of Spark: restarts, back-off, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.waiting import wait_until

from tarry.base.config import Config
from tarry.spark.pipeline.job import given_token
from tarry.spark.pipeline.schedule import parse
from tarry.spark.pipeline.supervisor import PipelineSupervisor, schedule_command
from tarry.spark.runtime.process import alive, session_members

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sessions are read from /proc")

# A child like Spark's: it starts a grandchild in a process group of its own, and says who they are.
CHILD = """
import os, signal, subprocess, sys, time
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
grandchild = subprocess.Popen([sys.executable, "-c", deaf], process_group=0)
{before}
open({told!r}, "a").write(f"{{os.getpid()}} {{grandchild.pid}}\\n")
{then}
"""


def children(report: Path) -> list[list[int]]:
    return [[int(w) for w in line.split()] for line in report.read_text().splitlines()] if report.exists() else []


def supervisor(tmp_path: Path, then: str, before: str = "", **how: float) -> tuple[PipelineSupervisor, Path]:
    report = tmp_path / "told"
    script = CHILD.format(told=str(report), then=then, before=before)
    return PipelineSupervisor([sys.executable, "-c", script], tmp_path / "log" / "pipeline.log", **how), report


def test_runs_and_stops_with_all_it_started(tmp_path: Path) -> None:
    kept, report = supervisor(tmp_path, "time.sleep(600)")
    assert kept.status()["state"] == "stopped"
    kept.start()
    wait_until(lambda: len(children(report)) == 1)
    (child, grandchild), status = children(report)[0], kept.status()
    assert (status["state"], status["pid"], status["restarts"], status["last_error"]) == ("running", child, 0, None)
    kept.stop()
    assert kept.status()["state"] == "stopped"
    assert not alive(child)
    wait_until(lambda: not session_members(child) and not alive(grandchild))
    kept.stop()


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    kept, report = supervisor(tmp_path, "time.sleep(600)", before="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    kept.start()
    wait_until(lambda: len(children(report)) == 1)
    kept.stop(timeout_s=0.1)
    assert not alive(children(report)[0][0])
    assert not session_members(children(report)[0][0])


def test_restarts_with_back_off_and_tells_why(tmp_path: Path) -> None:
    kept, report = supervisor(tmp_path, "sys.exit('the reason')", backoff_s_min=0.01, backoff_s_max=0.04)
    kept.start()
    wait_until(lambda: len(children(report)) >= 4)
    kept.stop()
    status = kept.status()
    assert status["last_error"] == "the reason"
    assert status["restarts"] >= 3
    for child, grandchild in children(report):
        assert not alive(child)
        assert not session_members(child)
        wait_until(lambda pid=grandchild: not alive(pid))  # type: ignore[misc]


def test_who_was_killed_did_not_say_why(tmp_path: Path) -> None:
    kept, report = supervisor(tmp_path, "print('all is well', flush=True); time.sleep(600)", backoff_s_min=60)
    kept.start()
    wait_until(lambda: len(children(report)) == 1)
    os.kill(children(report)[0][0], signal.SIGKILL)
    wait_until(lambda: kept.status()["state"] == "waiting")
    assert kept.status()["last_error"] == "killed by SIGKILL"
    kept.stop()


def test_what_is_not_installed_is_tried_rarely(tmp_path: Path) -> None:
    kept, report = supervisor(tmp_path, "sys.exit(78)", backoff_s_min=0.01, backoff_s_max=300)
    kept.start()
    wait_until(lambda: kept.status()["state"] == "waiting" and kept.status()["restarts"] == 1)
    assert kept.status()["next_try_ms"] > 1000 * time.time() + 100_000
    kept.stop()
    assert len(children(report)) == 1


def test_what_cannot_be_started_is_told(tmp_path: Path) -> None:
    kept = PipelineSupervisor([str(tmp_path / "nothing")], tmp_path / "log", backoff_s_min=60)
    kept.start()
    wait_until(lambda: kept.status()["restarts"] == 1)
    assert "cannot start" in kept.status()["last_error"]
    kept.stop()


def test_the_log_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.spark.pipeline.supervisor.LOG_BYTES_MAX", 10)
    kept, _ = supervisor(tmp_path, "print('hello', flush=True); time.sleep(600)")
    log = Path(kept.status()["log"])
    log.parent.mkdir()
    log.write_text("old and long enough")
    kept.start()
    wait_until(log.with_suffix(".log.1").exists)  # the old one has made room: from now on a log that is there stays
    wait_until(lambda: log.exists() and "hello" in log.read_text())
    kept.stop()
    assert log.with_suffix(".log.1").read_text() == "old and long enough"


@pytest.mark.rest
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_ends_when_the_broker_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    """A process that follows its parent as the job does; its parent is killed without a chance to say so."""
    report = tmp_path / "told"
    job = (
        "import os, sys, threading, time\n"
        "from tarry.spark.runtime.process import follow_parent\n"
        "follow_parent(int(sys.argv[-1]), lambda: os._exit(3))\n"
        f"open({str(report)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    broker = (
        "import sys, time\nfrom pathlib import Path\nfrom tarry.spark.pipeline.supervisor import PipelineSupervisor\n"
        f"PipelineSupervisor([sys.executable, '-c', {job!r}], Path({str(tmp_path / 'log')!r})).start()\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", broker])
    try:
        wait_until(lambda: report.exists() and report.read_text() != "")
        child = int(report.read_text())
    finally:
        process.send_signal(how)
        process.wait()
    wait_until(lambda: not session_members(child))


def test_a_parent_that_is_gone_already_is_noticed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    follow = f"from tarry.spark.runtime.process import follow_parent\nfollow_parent({ended.pid}, lambda: os._exit(3))\n"
    code = f"import os, time\n{follow}time.sleep(60)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 3


def test_the_command_line_fits_the_job(tmp_path: Path) -> None:
    config = Config(data=tmp_path, spark_master="local[2]", schedule_bytes=123, schedule_interval_ms=456)
    command = schedule_command(config, "127.0.0.1:7", tmp_path / "c")
    options = parse([*command[3:], "--parent-pid", str(os.getpid())])
    assert (options.flight, options.master, options.checkpoint) == ("127.0.0.1:7", "local[2]", tmp_path / "c")
    assert (options.schedule_bytes, options.schedule_interval_ms, options.parent_pid) == (123, 456, os.getpid())


@pytest.mark.rest
def test_the_token_comes_by_a_pipe_alone_and_at_each_start(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = (
        "import sys, os, pathlib\n"
        "from tarry.spark.pipeline.job import given_token\n"
        "token = given_token(int(sys.argv[sys.argv.index('--token-fd') + 1]))\n"
        "seen = pathlib.Path('/proc/self/cmdline').read_bytes() + pathlib.Path('/proc/self/environ').read_bytes()\n"
        f"open({str(told)!r}, 'a').write(token + ' ' + str(token.encode() in seen) + '\\n')\n"
        "sys.exit(1)\n"
    )
    kept = PipelineSupervisor(
        [sys.executable, "-c", script], tmp_path / "log", token="tarry_token", backoff_s_min=0.01, backoff_s_max=0.01
    )
    kept.start()
    wait_until(lambda: told.exists() and len(told.read_text().splitlines()) >= 2)
    kept.stop()
    assert set(told.read_text().splitlines()) == {"tarry_token False"}


def test_a_job_that_is_given_no_token_finds_one_itself() -> None:
    assert given_token(None) is None
    assert parse(["--flight", "127.0.0.1:1", "--checkpoint", "c"]).token_fd is None


@pytest.mark.parametrize(
    ("settings", "for_tasks"),
    [
        ({"spark_master": "local[2]"}, "unix:/n"),
        ({"spark_master": "spark://host:7077"}, "tls://127.0.0.1:7"),
        ({"spark_master": "spark://host:7077", "flight_advertised": "broker:7611"}, "tls://broker:7611"),
    ],
)
def test_where_the_port_takes_tls_alone_the_driver_comes_by_a_socket(
    tmp_path: Path, settings: dict[str, str], for_tasks: str
) -> None:
    config = Config.model_validate({"data": tmp_path, **settings})
    options = parse(schedule_command(config, "127.0.0.1:7", tmp_path / "c", "unix:/n")[3:])
    assert (options.flight, options.flight_for_tasks) == ("unix:/n", for_tasks)
