"""What the pages of containers and Kubernetes show: each command, argument and file is one that there is."""

from __future__ import annotations

import re
import shlex

import pytest
from tests.deploy.containerfile import settings_of, stages
from tests.deploy.manifests import plain
from tests.deploy.options import check_command, setting_names
from tests.sources import ROOT

PAGES = {name: (ROOT / "docs" / name).read_text() for name in ("containers.md", "kubernetes.md")}
STAGES = stages(ROOT / "Containerfile")
COMMAND = re.compile(r"\btarry (?:identity|status|serve)\b(?:[^#|`'\n]|(?<= )'[^'\n]*')*")


def blocks(page: str) -> str:
    return "\n".join(re.findall(r"^```text\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", PAGES)
def test_each_command_of_tarry_is_one_that_there_is(page: str) -> None:
    found = [words for line in PAGES[page].splitlines() for words in COMMAND.findall(line)]
    commands = [shlex.split(words) for words in found if not words.endswith("--data")]
    assert len(commands) >= 3
    data = settings_of(STAGES[-1], "ENV")["TARRY_DATA"]
    for words in commands:
        given = check_command(words)
        assert str(given.get("data") or data) == data, words
        # Nobody listens yet when the first identity is made.
        assert "admin" not in words or given["data"] is not None


def test_each_build_argument_and_setting_is_one_that_there_is() -> None:
    arguments = {name for stage in STAGES for name in settings_of(stage, "ARG")}
    shown = re.findall(r"--build-arg (\w+)=", blocks("containers.md"))
    table = re.findall(r"^\| `([A-Z_]+)` \|", PAGES["containers.md"], re.MULTILINE)
    assert set(shown) < set(table) == arguments
    no_settings = {"NAME", "CONFIG", "ENDPOINT", "CA"}
    for page in PAGES.values():
        names = set(re.findall(r"\bTARRY_([A-Z_]+)", page)) - no_settings
        assert {name.lower() for name in names} <= setting_names()


def test_each_file_and_object_is_one_that_there_is() -> None:
    page = blocks("kubernetes.md")
    files = re.findall(r"\bexamples/[\w./-]+", page)
    assert len(files) >= 4
    assert all((ROOT / each).exists() for each in files)
    objects = {f"{manifest['kind'].lower()}/{manifest['metadata']['name']}" for manifest in plain().values()}
    named = re.findall(r"\b(?:statefulset|job)/[\w-]+", page)
    assert named
    assert set(named) <= objects
