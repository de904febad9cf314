"""Running a command in this process, as a test wants it: what it printed, as text or as data."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from tarry.cli.main import run

Captured = pytest.CaptureFixture[str]


def out_of(capsys: Captured, *arguments: str, code: int = 0) -> str:
    """What the command printed; nothing on stderr."""
    capsys.readouterr()
    assert run(arguments) == code
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


def data_of(capsys: Captured, *arguments: str, code: int = 0) -> list[Any]:
    """The values that the command printed with --json."""
    return [json.loads(line) for line in out_of(capsys, *arguments, "--json", code=code).splitlines()]


def error_of(capsys: Captured, *arguments: str) -> tuple[int, str]:
    """Exit code and the one line on stderr of a command that fails, and prints nothing else."""
    capsys.readouterr()
    code = run(arguments)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("tarry: ")
    assert said.err.count("\n") == 1
    return code, said.err.removeprefix("tarry: ").rstrip()


def stdin_is(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Whatever reads stdin next gets ``content``."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
