"""The threat model: each test that it names is there, and each file that holds somebody."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.sources import SOURCE_ROOTS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text()


@cache
def names_in(path: Path) -> set[str]:
    """Names of the functions of a module and of its classes."""
    tree = ast.parse(path.read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    bodies = [tree.body, *(each.body for each in classes)]
    return {node.name for body in bodies for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_test_that_is_named_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+|\*)`", TEXT)
    assert len(named) > 50
    for path, name in named:
        there = names_in(ROOT / "tests" / path)
        assert name == "*" or name in there, f"{path}::{name}"


def test_each_file_that_holds_somebody_is_there() -> None:
    roots = (*SOURCE_ROOTS, *(root / "tarry" for root in SOURCE_ROOTS), ROOT)
    named = set(re.findall(r"`((?:\w+/)+[\w.-]+)`", TEXT))
    assert len(named) > 15
    assert {path for path in named if not any((root / path).exists() for root in roots)} == set()


def test_each_row_of_somebody_names_a_test() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| who")]
    assert [row[:60] for row in rows if "::" not in row] == []


def test_it_is_linked() -> None:
    for page in ("SECURITY.md", "README.md", "docs/identity.md", "docs/operations-security.md"):
        assert "threat-model.md" in (ROOT / page).read_text(), page
