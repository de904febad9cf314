"""Who may import whom, and where time may come from: read from the source, so that it holds for every line of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tarry

ROOT = Path(tarry.__file__).parent
CORE = ("log", "intake", "store", "registry", "wheel", "ready", "broker")
OUTER = ("fronts", "pipeline", "client", "cli", "demo", "inprocess", "report", "spark", "relay")
BASE = (
    "bulk",
    "jobinfo",
    *("admission", "affinity", "clock", "columns", "config", "delay", "errors", "handle", "message", "metrics"),
    *("groupinfo", "outcome", "properties", "receipt", "recent", "repeat", "views", "wanted"),
)
CLOCK_READERS = {
    ("time", "time"), ("time", "time_ns"), ("time", "localtime"), ("time", "gmtime"), ("time", "ctime"),
    ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"),
}  # fmt: skip


def files(*rooms: str) -> list[Path]:
    return [p for r in rooms for p in (sorted((ROOT / r).rglob("*.py")) if (ROOT / r).is_dir() else [ROOT / f"{r}.py"])]


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file names in an import, also inside functions, with its line."""
    package = [tarry.__name__, *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(p for p in (base, node.module) if p)
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def names_for(path: Path, forbidden: tuple[str, ...]) -> list[str]:
    found = []
    for line, module in imported(path):
        if any(module == f"tarry.{room}" or module.startswith(f"tarry.{room}.") for room in forbidden):
            found.append(f"{path.relative_to(ROOT)}:{line} imports {module}")
    return found


def id_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", files(*CORE), ids=id_of)
def test_the_core_knows_nothing_of_what_is_around_it(path: Path) -> None:
    assert names_for(path, (*OUTER, "testing")) == []


@pytest.mark.parametrize("path", files(*BASE), ids=id_of)
def test_the_base_knows_no_room(path: Path) -> None:
    assert names_for(path, (*CORE, *OUTER, "testing")) == []


@pytest.mark.parametrize("path", files(*CORE[:-1]), ids=id_of)
def test_no_room_knows_the_broker_that_puts_it_together(path: Path) -> None:
    assert names_for(path, ("broker",)) == []


@pytest.mark.parametrize("path", files("client"), ids=id_of)
def test_the_client_needs_no_broker(path: Path) -> None:
    assert names_for(path, (*CORE, "pipeline", "cli", "testing")) == []


@pytest.mark.parametrize("path", files(*CORE, *BASE), ids=id_of)
def test_wall_clock_time_enters_through_clock_alone(path: Path) -> None:
    if path.name == "clock.py":
        return
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if (owner, node.attr) in CLOCK_READERS:
                found.append(f"{node.lineno}: {owner}.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            found += [
                f"{node.lineno}: from time import {a.name}" for a in node.names if ("time", a.name) in CLOCK_READERS
            ]
    assert found == [], "ask the Clock that was passed in"


def test_every_room_was_looked_at() -> None:
    seen = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")}
    assert seen <= {*CORE, *OUTER, *BASE, "__init__", "__main__", "testing", "pytest_plugin"}
    assert all(files(room) for room in CORE)
