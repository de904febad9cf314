"""The distributions of this repository: their versions, what they need of each other, and the commands they bring."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
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
SOURCES = ROOT / "src" / "tarry"
OF_EXTRAS = (
    *("bridge", "celery", "django", "spark", "outbound", "fronts/http", "fronts/rocketmq", "log/objects"),
    *("cli/bridge", "identity/jwt", "worker/middleware.py", "pytest_plugin.py"),
)
"""Beginnings of the paths of modules that only work with an extra."""
BROUGHT = {"pydantic": {"pydantic_core", "annotated_types"}}


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


def imported(module: Path) -> Iterator[str]:
    """Yield the packages that a module imports, also within its functions."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def test_what_works_without_an_extra_needs_no_package_of_one() -> None:
    """Certificates of the native port were one that did: no traceback of a missing module for a documented setting."""
    there = {Requirement(text).name.replace("-", "_") for text in PROJECTS["tarry"]["dependencies"]}
    there |= {name for dependency, names in BROUGHT.items() if dependency in there for name in names}
    lacking = {
        (package, place)
        for module in SOURCES.rglob("*.py")
        if not (place := module.relative_to(SOURCES).as_posix()).startswith(OF_EXTRAS)
        for package in imported(module)
        if package not in {"tarry", *there, *sys.stdlib_module_names}
    }
    assert not lacking
