"""A standby that can be seen and told, on the machine that has it: ``tarry status --data``, ``tarry takeover``."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.base.clock import TestClock
from tarry.base.errors import ClosedError
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.log.file_engine import ROLE_FILE, TAKEOVER_FILE
from tarry.log.objects.engine import ObjectEngine, Takeover
from tarry.log.objects.role import DEAD_S, read_role, tell_to_take_over
from tests.engines.object_store import CutWay, MemoryObjects
from tests.faults import FaultyFiles
from tests.ports import free_port
from tests.waiting import wait_until

SINCE = "1970-01-01T00:00:05.000Z"


class Standing:
    """An engine that stands by in a thread of its own, as a broker's does."""

    def __init__(self, store: MemoryObjects, data: Path, takeover: Takeover) -> None:
        self.data, self.way, self.stop = data, CutWay(store), threading.Event()
        self.engine = ObjectEngine(
            self.way, FaultyFiles(), data, TestClock(5000), takeover=takeover, is_stopped=self.stop.is_set
        )
        self.epoch = 0
        self._thread = threading.Thread(target=self._claim)
        self._thread.start()

    def _claim(self) -> None:
        try:
            self.epoch = self.engine.claim()
        except ClosedError:
            return
        self.engine.serve({"flight": "here:1"})

    def role(self) -> dict[str, Any]:
        return read_role(self.data) or {}

    def follows(self) -> bool:
        return bool(self.role().get("position"))

    def end(self) -> None:
        self.stop.set()
        self._thread.join()
        if self.epoch:
            self.engine.release()


@pytest.fixture
def store() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def owner(store: MemoryObjects, tmp_path: Path) -> Iterator[ObjectEngine]:
    engine = ObjectEngine(store, FaultyFiles(), tmp_path / "owner", TestClock(4000))
    engine.claim()
    yield engine
    engine.release()


def standing(store: MemoryObjects, data: Path, takeover: Takeover) -> Standing:
    standby = Standing(store, data, takeover)
    wait_until(standby.follows)
    return standby


def test_a_standby_is_seen_and_told(
    store: MemoryObjects, owner: ObjectEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "standby"
    data.mkdir()
    (data / TAKEOVER_FILE).touch()  # for a process of before
    standby = standing(store, data, "manual")
    try:
        assert run(["status", "--data", str(data), "--json"]) == ExitCode.OK
        shown = json.loads(capsys.readouterr().out)
        assert (shown["role"], shown["takeover"], shown["owner"]["epoch"]) == ("standby", "manual", 1)
        assert shown["position"]["epoch"] == 1 and shown["position"]["round"] > 0
        assert shown["behind"] == {"rounds": 0, "ms": 1000} and shown["owner"]["heard_ms"] == 5000
        assert shown["bucket"] == {"reachable": True, "error": None}
        assert run(["takeover", "--data", str(data), "--json"]) == ExitCode.OK
        taken = json.loads(capsys.readouterr().out)
        assert (taken["epoch"], taken["addresses"]) == (2, {"flight": "here:1"})
        wait_until(lambda: not owner.is_owner())
        assert run(["takeover", "--data", str(data)]) == ExitCode.OK
        assert capsys.readouterr().out == "serving as the owner of epoch 2 already\n"
    finally:
        standby.end()
    assert not (data / ROLE_FILE).exists()
    assert run(["status", "--data", str(data)]) == ExitCode.UNAVAILABLE
    assert "has no standby" in capsys.readouterr().err


@pytest.mark.usefixtures("owner")
def test_a_standby_is_told_from_a_broker_that_does_not_run(
    store: MemoryObjects, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    standby = standing(store, tmp_path / "standby", "manual")
    owned = f"(epoch 1, followed since {SINCE}), heard of "
    try:
        for command in (["status"], ["top", "--once"]):
            assert run([*command, "--data", str(standby.data)]) == ExitCode.OK
            said = capsys.readouterr().out
            assert f"standby of an object store since {SINCE}, process " in said
            assert owned in said and "takeover  manual: when it is told" in said
            for data, shown in ((standby.data, owned), (tmp_path, "tarry status --data DIR shows one")):
                monkeypatch.setenv("TARRY_DATA", str(data))
                assert run([*command, "--endpoint", f"127.0.0.1:{free_port()}"]) == ExitCode.UNAVAILABLE
                assert shown in capsys.readouterr().err
    finally:
        standby.end()
    assert run(["status", "--data", str(tmp_path / "owner")]) == ExitCode.OK
    assert "owner of" in (said := capsys.readouterr().out) and "serves    not yet" in said


@pytest.mark.rest
@pytest.mark.usefixtures("owner")
def test_a_standby_without_the_bucket_says_so(
    store: MemoryObjects, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    standby = standing(store, tmp_path / "standby", "auto")
    try:
        standby.way.is_cut = True
        wait_until(lambda: bool(standby.role()["bucket"]["error"]))
        assert run(["status", "--data", str(standby.data)]) == ExitCode.FAILED
        assert run(["takeover", "--data", str(standby.data)]) == ExitCode.UNAVAILABLE
        assert "cannot take over: cut off" in capsys.readouterr().err
        assert not (standby.data / TAKEOVER_FILE).exists()
    finally:
        standby.way.is_cut = False
        standby.end()


@pytest.mark.rest
@pytest.mark.usefixtures("owner")
def test_of_two_that_are_told_one_serves(store: MemoryObjects, tmp_path: Path) -> None:
    two = [standing(store, tmp_path / name, "auto") for name in ("2", "3")]
    try:
        tell_to_take_over(two[0].data)
        wait_until(lambda: two[0].epoch == 2)
        wait_until(lambda: two[1].role()["position"]["epoch"] == 2)
        assert two[1].role()["role"] == "standby"
    finally:
        for each in two:
            each.end()


@pytest.mark.usefixtures("owner")
def test_a_dead_process_does_not_look_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = json.loads((tmp_path / "owner" / ROLE_FILE).read_bytes())
    other = tmp_path / "dead"
    other.mkdir()
    for age_s, is_alive in ((DEAD_S - 4, True), (DEAD_S + 1, False), (-3600, False)):
        written = left["written_boot_s"]
        monkeypatch.setattr("tarry.log.objects.role.boot_s", lambda at=written + age_s: at)
        (other / ROLE_FILE).write_text(json.dumps(left))
        assert (read_role(other) is not None) == is_alive
