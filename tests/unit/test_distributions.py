"""The distributions of this repository: their versions, what they need of each other, and the commands they bring."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from packaging.requirements import Requirement
from tests.sources import ROOT

from tarry.base.version import VERSION
from tarry.cli.plugins import GROUP, OURS

PLACES = [ROOT, *sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))]
PROJECTS: dict[str, dict[str, Any]] = {
    project["name"]: project
    for place in PLACES
    for project in [tomllib.loads((place / "pyproject.toml").read_text())["project"]]
}


def requirements(project: dict[str, Any]) -> list[Requirement]:
    extras = project.get("optional-dependencies", {}).values()
    return [Requirement(text) for texts in (project["dependencies"], *extras) for text in texts]


def test_these_are_all() -> None:
    assert PROJECTS.keys() == {"tarry", "loopgrpc", *OURS.values()}
    for place in PLACES[1:]:
        assert (place / "README.md").exists()
        assert (place / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_each_fits_the_others() -> None:
    """What needs a distribution of ours allows the version that is here, and knows no extra that is not there."""
    for project in PROJECTS.values():
        for needed in requirements(project):
            if found := PROJECTS.get(needed.name):
                assert needed.specifier.contains(found["version"]), (project["name"], needed)
                assert needed.extras <= found["optional-dependencies"].keys() if needed.extras else True
    assert not [needed for needed in requirements(PROJECTS["loopgrpc"]) if needed.name.startswith("tarry")]


@pytest.mark.parametrize("name", ["tarry", *OURS.values()])
def test_what_belongs_together_has_one_version(name: str) -> None:
    assert PROJECTS[name]["version"] == VERSION
    own = [needed for needed in requirements(PROJECTS[name]) if needed.name == "tarry" and name != "tarry"]
    assert [str(needed.specifier) for needed in own] == [f"=={VERSION}"] * (name != "tarry")


@pytest.mark.parametrize(("command", "name"), OURS.items())
def test_each_brings_its_command(command: str, name: str) -> None:
    brought = PROJECTS[name]["entry-points"][GROUP]
    assert brought.keys() == {command}
    assert callable(EntryPoint(command, brought[command], GROUP).load())
