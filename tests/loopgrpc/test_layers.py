"""The package stands by itself: it imports the standard library and hpack alone, and its modules import no circles."""

from __future__ import annotations

import ast
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import loopgrpc
from tests.sources import SOURCE_ROOTS

SOURCES = sorted(Path(loopgrpc.__file__).parent.glob("*.py"))
TESTS = sorted(Path(__file__).parent.glob("*.py"))
ALLOWED = {"loopgrpc", "hpack", *sys.stdlib_module_names}
MAY_CONCERN = re.compile(r"loopgrpc|^\s*from\s*\.", re.MULTILINE)
"""What a file has in it that imports the package, or relatively; others need not be parsed."""


def imported(path: Path) -> list[str]:
    """Every module that a file names in an import, also for types alone and inside functions."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            modules.append(node.module or "")
    return modules


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_it_needs_the_standard_library_and_hpack_alone(path: Path) -> None:
    assert {module.split(".")[0] for module in imported(path)} <= ALLOWED


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_its_tests_know_nothing_of_tarry(path: Path) -> None:
    assert not [module for module in imported(path) if module.split(".")[0] == "tarry"]


def test_its_modules_import_no_circles() -> None:
    graph = {f"loopgrpc.{path.stem}": imported(path) for path in SOURCES}
    assert list(TopologicalSorter(graph).static_order())


def test_others_use_its_public_names_alone() -> None:
    """Tarry is a user like any other."""
    deep = {
        f"{path}: {module}"
        for root in SOURCE_ROOTS
        for path in root.rglob("*.py")
        if "loopgrpc" not in path.relative_to(root).parts and MAY_CONCERN.search(path.read_text())
        for module in imported(path)
        if module.startswith("loopgrpc.")
    }
    assert not deep
