"""Docstrings are plain sentences: the first line is short, and says what the thing is or does, not in a clause.

Ruff holds the rest (D205, D401: a summary line of its own, and functions in the imperative).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.sources import SOURCE_ROOTS

SUMMARY_CHARACTERS_MAX = 100
CLAUSE = re.compile(r"(What|Whether|How|Who|Whom|Whose|Which|Where|When|Why)\b")
PATHS = [path for root in SOURCE_ROOTS for path in sorted(root.rglob("*.py"))]


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all statements in it, without their expressions, of which there are ten times as many."""
    yield node
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            yield from statements(child)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Those of modules, classes and functions, and the texts behind assignments, each with its line."""
    for node in statements(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                body = node.body
            case _:
                continue
        for before, statement in zip([None, *body], body, strict=False):
            documents = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if documents:
                    yield statement.lineno, text


def faults(source: str) -> list[str]:
    found = []
    for line, text in docstrings(ast.parse(source)):
        summary = text.strip().partition("\n")[0]
        if CLAUSE.match(summary):
            found.append(f"{line}: begins with a clause: {summary!r}")
        if len(summary) > SUMMARY_CHARACTERS_MAX:
            found.append(f"{line}: {len(summary)} characters in its first line; allowed: {SUMMARY_CHARACTERS_MAX}")
    return found


def test_docstrings_are_plain_sentences() -> None:
    assert PATHS
    found = {"/".join(path.parts[-3:]): faults(path.read_text()) for path in PATHS}
    assert {name: each for name, each in found.items() if each} == {}


def test_a_clause_and_a_long_line_are_found() -> None:
    assert len(faults(f'"""What it is."""\nclass A:\n    """{"x" * 101}"""\nB = 1\n"""Whether it is."""\n')) == 3
    assert faults('"""A thing."""\nB = 1\n"""Bytes of a frame."""\n') == []
