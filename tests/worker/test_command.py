"""``tarry work``: processes, signals, a port, and code that changes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tarry.cli.main import run
from tarry.cli.work_process import WorkSettings
from tarry.client import Client
from tarry.worker.supervisor import ProcessStart
from tarry.worker.target import load
from tests.contract.conftest import Served
from tests.ports import free_port
from tests.waiting import wait_until

START_S = 180.0
"""Processes begin within that: each imports much, and a machine may have other things to do."""
PROGRAM = """
import os, time, tarry
worker = tarry.Worker("127.0.0.1:1")

@worker.on("orders", group="billing", concurrency=2)
def bill(body: str) -> None:
    with open("seen", "a") as file:
        file.write(f"{body} {os.getpid()}\\n")
    if body == "slow":
        time.sleep(60)
"""


class Work:
    """The command beside a broker."""

    def __init__(self, directory: Path, served: Served, *more: str) -> None:
        self.seen = directory / "seen"
        self.log = directory / "log"
        self.port = free_port()
        words = ["work", "shop:worker", "-e", served.address, "--health-port", str(self.port), *more]
        with self.log.open("a") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "tarry", *words], cwd=directory, stderr=log)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_ready(self) -> None:
        wait_until(lambda: self.get("/readyz") == (200, "ok\n"), START_S, what=self.log.read_text)

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.seen.read_text().splitlines()] if self.seen.exists() else []

    def wait_seen(self, count: int) -> list[list[str]]:
        wait_until(lambda: len(self.lines()) >= count, what=self.log.read_text)
        return self.lines()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(PROGRAM)
    return tmp_path


@contextmanager
def working(shop: Path, served: Served, *more: str) -> Iterator[Work]:
    work = Work(shop, served, *more)
    try:
        yield work
    finally:
        work.process.kill()
        work.process.wait()


def metric(work: Work, name: str) -> float:
    [value] = re.findall(rf"^{re.escape(name)} (\S+)$", work.get("/metrics")[1], re.M) or ["0"]
    return float(value)


@pytest.mark.rest
def test_processes_are_kept_going_watched_and_stopped(shop: Path, served: Served, client: Client) -> None:
    with working(shop, served, "--processes", "2", "--drain-s", "0.1") as work:
        work.wait_ready()
        assert work.get("/healthz") == (200, "ok\n")
        client.schedule("orders", "one")
        [[_, pid]] = work.wait_seen(1)
        counted = 'tarry_worker_messages_total{ending="handled",group="billing",topic="orders"}'
        wait_until(lambda: metric(work, counted) == 1)
        os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: metric(work, "tarry_worker_restarts_total") == 1)
        work.wait_ready()
        assert metric(work, counted) == 1  # of the process that is gone
        client.schedule("orders", "two")
        assert work.wait_seen(2)[1][0] == "two"
        client.schedule("orders", "slow")
        work.wait_seen(3)
        assert work.stop() == 0
        [left] = client.receive("orders", group="billing", wait=30)
        assert (left.body, left.attempt) == (b"slow", 1)


@pytest.mark.rest
def test_processes_stop_when_their_supervisor_is_gone(shop: Path, served: Served, client: Client) -> None:
    with working(shop, served) as work:
        work.wait_ready()
        client.schedule("orders", "one")
        [[_, pid]] = work.wait_seen(1)
        work.process.kill()
        wait_until(lambda: not is_there(int(pid)))
        assert client.group_info("orders", "billing").lag == 0


def test_a_process_whose_supervisor_was_gone_before_it_served_stops(shop: Path, served: Served) -> None:
    alive, held = os.pipe()
    report, reported = os.pipe()
    os.close(held)
    settings = WorkSettings("shop:worker", served.address, None, verbose=False)
    command = settings.command(ProcessStart("worker-1", alive, reported))
    with subprocess.Popen(command, cwd=shop, pass_fds=(alive, reported)) as process:
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
            for each in (alive, report, reported):
                os.close(each)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.rest
def test_changed_code_is_loaded_and_a_mistake_waits_for_the_next_change(
    shop: Path, served: Served, client: Client
) -> None:
    with working(shop, served, "--reload") as work:
        work.wait_ready()
        (shop / "shop.py").write_text("mistake")
        wait_until(lambda: "it begins again after a change" in work.log.read_text(), what=work.log.read_text)
        assert "NameError" in work.log.read_text()
        (shop / "shop.py").write_text(PROGRAM.replace("{body}", "changed"))
        work.wait_ready()
        client.schedule("orders", "one")
        assert work.wait_seen(1)[0][0] == "changed"
        assert work.stop() == 0


@pytest.mark.rest
@pytest.mark.parametrize(("text", "code", "line"), [("1/0", 1, "ZeroDivisionError"), ("", 2, "names no worker")])
def test_a_program_that_cannot_begin_ends_the_command(
    shop: Path, served: Served, text: str, code: int, line: str
) -> None:
    (shop / "shop.py").write_text(text)
    with working(shop, served) as work:
        assert work.process.wait(60) == code
        assert line in work.log.read_text()


def test_a_second_signal_ends_it_on_the_spot(shop: Path, served: Served, client: Client) -> None:
    code = f"from shop import worker; worker.address = {served.address!r}; worker.run()"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=shop, stderr=subprocess.DEVNULL)
    try:
        client.schedule("orders", "slow")
        wait_until((shop / "seen").exists)
        process.terminate()
        wait_until(lambda: client.group_info("orders", "billing").leased == 1)
        while process.poll() is None:  # the first may not have come yet
            process.terminate()
            time.sleep(0.01)
        assert process.returncode == 1
        [left] = client.receive("orders", group="billing", wait=30)
        assert left.attempt == 2
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("shop.py:worker", "is a path"),
        ("no_such_shop:worker", "there is no module 'no_such_shop'"),
        ("json:worker", "names no worker; in the module there are: none"),
    ],
)
def test_what_is_no_worker_is_named(target: str, text: str) -> None:
    with pytest.raises(Exception, match=re.escape(text)):
        load(target)


def test_a_worker_is_found_by_its_name_or_as_the_only_one(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    monkeypatch.syspath_prepend(str(shop))
    (shop / "two_shops.py").write_text(PROGRAM + "\nother = tarry.Worker()\n")
    assert load("two_shops:other").handlers == []
    assert load("two_shops:worker").handlers[0].name == "bill"
    with pytest.raises(Exception, match="two_shops:worker, two_shops:other"):
        load("two_shops")


def test_an_address_that_is_taken_is_an_error(served: Served, capsys: Any) -> None:
    assert run(["work", "shop:worker", "--health-port", served.address]) == 5
    assert "cannot listen" in capsys.readouterr().err
