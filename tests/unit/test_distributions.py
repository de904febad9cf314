"""The distributions of this repository: their versions, what they need of each other, and the commands they bring."""

from __future__ import annotations

import ast
import runpy
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
    *("cli/bridge", "identity/jwt", "worker/middleware.py", "broker/traces/answers.py", "broker/traces/otlp.py"),
    *("backup/bucket.py", "pytest_plugin.py"),
)
"""Beginnings of the paths of modules that only work with an extra."""
CLIENT_HOOK = runpy.run_path(str(ROOT / "packages/client/hatch_build.py"))
CLIENT_ROOTS = ("client", "worker", "celery", "link", "repeat", "batching")
BROUGHT = {"pydantic": {"pydantic_core", "annotated_types"}}


def requirements(project: dict[str, Any]) -> list[Requirement]:
    extras = project.get("optional-dependencies", {}).values()
    return [Requirement(text) for texts in (project["dependencies"], *extras) for text in texts]


def test_these_are_all() -> None:
    assert PROJECTS.keys() == {"tarry", "tarry-client", "loopgrpc", *OURS.values()}
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
    needs = "tarry-client" if name == "tarry" else "tarry"
    own = [needed for needed in requirements(PROJECTS[name]) if needed.name == needs]
    assert [str(needed.specifier) for needed in own] == [f"=={VERSION}"]
    assert PROJECTS["tarry-client"]["version"] == VERSION


@pytest.mark.parametrize(("command", "name"), OURS.items())
def test_each_brings_its_command(command: str, name: str) -> None:
    brought = PROJECTS[name]["entry-points"][GROUP]
    assert brought.keys() == {command}
    assert callable(EntryPoint(command, brought[command], GROUP).load())


def test_the_client_has_what_it_imports_and_no_more() -> None:
    """What ``pyproject.toml`` keeps out of ``tarry`` is what the client, workers and Celery's transport import."""
    named = set(CLIENT_HOOK["files_of_client"](ROOT))
    sources = {path for path in named if path.suffix == ".py"}
    assert named - sources == {SOURCES / "py.typed"}
    assert {str(path.relative_to(ROOT)) for path in sources} == {str(path.relative_to(ROOT)) for path in reached()}


def reached() -> set[Path]:
    """Return the modules that the client's roots import when they are used, and the packages that these are in."""
    left = [path for package in CLIENT_ROOTS for path in (SOURCES / package).rglob("*.py")]
    left += [SOURCES / name for name in ("__init__.py", "errors.py", "message/message.py", "api/outcome.py")]
    found: set[Path] = set()
    while left:
        if (path := left.pop()) in found:
            continue
        found.add(path)
        left += [parent / "__init__.py" for parent in path.parents if parent.is_relative_to(SOURCES)]
        for name in names_used(ast.parse(path.read_text())):
            module = ROOT / "src" / Path(*name.split("."))
            left += [each for each in (module.with_suffix(".py"), module / "__init__.py") if each.exists()]
    return found


def names_used(tree: ast.AST) -> Iterator[str]:
    """Yield what a module imports, but for what only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from names_used(node)


def imported(module: Path) -> Iterator[str]:
    """Yield the packages that a module imports, also within its functions."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def test_what_works_without_an_extra_needs_no_package_of_one() -> None:
    """Certificates of the native port were one that did: no traceback of a missing module for a documented setting."""
    client = PROJECTS["tarry-client"]
    needed = PROJECTS["tarry"]["dependencies"] + client["dependencies"] + client["optional-dependencies"]["native"]
    there = {Requirement(text).name.replace("-", "_") for text in needed}
    there |= {name for dependency, names in BROUGHT.items() if dependency in there for name in names}
    lacking = {
        (package, place)
        for module in SOURCES.rglob("*.py")
        if not (place := module.relative_to(SOURCES).as_posix()).startswith(OF_EXTRAS)
        for package in imported(module)
        if package not in {"tarry", *there, *sys.stdlib_module_names}
    }
    assert not lacking
