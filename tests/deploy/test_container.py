"""The image: what its file says is there and allowed, and what its steps make serves."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from tests.deploy.containerfile import run_steps, settings_of, stages
from tests.deploy.options import check_command, setting_names
from tests.ports import free_port
from tests.sources import ROOT
from tests.waiting import wait_until

FILE = ROOT / "Containerfile"
_, BUILD, FINAL = stages(FILE)


def the(name: str) -> list[str]:
    """The words of an instruction that the image has once."""
    [found] = [each for each in FINAL if each.name == name]
    return found.words()


def test_it_runs_as_a_user_with_few_rights_and_is_stopped_cleanly() -> None:
    user, group = the("USER")[0].split(":")
    assert int(user) > 0
    assert group == "0"
    assert the("STOPSIGNAL") == ["SIGTERM"]


def test_its_commands_are_those_that_there_are() -> None:
    check_command([*the("ENTRYPOINT"), *the("CMD")])
    [health] = [each.text for each in FINAL if each.name == "HEALTHCHECK"]
    check_command(json.loads(health.partition("CMD ")[2]))


def test_its_settings_are_those_of_the_broker_and_its_ports_are_told() -> None:
    environment = settings_of(FINAL, "ENV")
    ours = {name: value for name, value in environment.items() if name.startswith("TARRY_")}
    assert {name.removeprefix("TARRY_").lower() for name in ours} <= setting_names()
    assert Path(ours["TARRY_DATA"]).parent == Path(the("VOLUME")[0])
    ports = [value.rpartition(":")[2] for name, value in ours.items() if value.startswith("0.0.0.0:")]
    assert ports == the("EXPOSE")


def test_its_extras_are_those_of_the_distribution() -> None:
    extras = settings_of(BUILD, "ARG")["EXTRAS"].split(",")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) <= declared.keys() - {"dev", "spark", "spark43"}


def test_what_is_copied_is_there_and_not_ignored() -> None:
    lines = [line for line in (ROOT / ".containerignore").read_text().splitlines() if not line.startswith("#")]
    for each in BUILD:
        for source in each.words()[:-1] if each.name == "COPY" else ():
            assert (ROOT / source).exists()
            name = source.rstrip("/")
            # The last line that fits counts.
            kept = [line.startswith("!") for line in lines if fnmatch(name, line.lstrip("!").rstrip("/"))]
            assert kept[-1], source


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_a_linter_finds_nothing() -> None:
    done = subprocess.run(["hadolint", FILE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_what_its_steps_make_serves(tmp_path: Path) -> None:
    """Fetched by hash, with the extra of HTTP alone; in a virtual environment, without an image."""
    run_steps(BUILD, ROOT, tmp_path, {"EXTRAS": "http"})
    tarry = tmp_path / "opt" / "tarry" / "bin" / "tarry"
    flight, http, metrics = free_port(), free_port(), free_port()
    environment = {
        **settings_of(FINAL, "ENV"),
        "PATH": f"{tarry.parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "TARRY_PIPELINE": "off",
        "TARRY_DATA": str(tmp_path / "volume" / "data"),
        "TARRY_FLIGHT": f"0.0.0.0:{flight}",
        "TARRY_HTTP": f"0.0.0.0:{http}",
        "TARRY_METRICS": f"0.0.0.0:{metrics}",
    }
    (tmp_path / "volume").mkdir()

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env={**environment, **more}, capture_output=True, text=True, timeout=120)

    refused = run("tarry", "serve")
    assert refused.returncode == 2
    assert "identit" in refused.stderr
    made = run("tarry", "identity", "create", "admin", "--all", "--no-keep", "--data", environment["TARRY_DATA"])
    assert made.returncode == 0, made.stderr
    health = {"TARRY_ENDPOINT": f"127.0.0.1:{flight}"}
    with subprocess.Popen(["tarry", "serve"], env=environment, stdout=subprocess.DEVNULL) as broker:
        wait_until(lambda: run("tarry", "status", **health).returncode == 0)
        sent = run("tarry", "send", "orders", "one", "--delay", "1h", **health)
        broker.send_signal(signal.SIGTERM)
    assert sent.returncode == 0, sent.stderr
    assert broker.returncode == 0
