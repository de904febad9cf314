"""The image: what its file says is there and allowed. What its steps make is in ``test_image.py``."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from tests.deploy.containerfile import settings_of, stages
from tests.deploy.options import check_command, setting_names
from tests.sources import ROOT

FILE = ROOT / "Containerfile"
_, BUILD, FILES, _, _, FINAL = stages(FILE)


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
    for each in BUILD + FILES:
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
