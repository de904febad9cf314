"""Commands of other distributions: found, listed, and told of where they cannot be had."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import typer
import typer.main

from tarry.cli import plugins
from tarry.cli.exits import ExitCode
from tarry.cli.main import COMMANDS, command, run

HERE = "tests.unit.test_cli_plugins"
several = typer.Typer()


def hello(name: str) -> None:
    """Greet."""
    typer.echo(f"Hello, {name}!")
    raise typer.Exit(7)


@several.command()
def one() -> None:
    typer.echo("1")


@several.command()
def two() -> None:
    typer.echo("2")


def install(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Let these be all that is installed: modules and attributes by the names of their commands."""
    entries = [EntryPoint(name, value, plugins.GROUP) for name, value in values.items()]

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == plugins.GROUP
        return [entry for entry in entries if name in (None, entry.name)]

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    monkeypatch.setenv("COLUMNS", "200")


def test_a_function_and_a_group_of_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, hello=f"{HERE}:hello", several=f"{HERE}:several")
    assert run(["hello", "Ada"]) == 7
    assert run(["several", "two"]) == 0
    assert capsys.readouterr().out == "Hello, Ada!\n2\n"
    assert run(["hello"]) == ExitCode.USAGE
    assert "Missing argument" in capsys.readouterr().err


def test_they_are_listed_behind_ours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    install(monkeypatch, hello=f"{HERE}:hello", send=f"{HERE}:hello")
    names = command().list_commands(None)
    assert (names[0], names[-3:]) == ("serve", ["demo", "hello", "relay"])
    assert names.count("send") == 1
    assert run(["--help"]) == 0
    assert "Greet." in capsys.readouterr().out
    assert run(["send", "--help"]) == 0  # a name that is taken stays ours
    assert "Greet." not in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(plugins.OURS))
def test_one_of_ours_that_is_not_installed(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch)
    assert run([name, "--kafka", "localhost:9092", "x"]) == ExitCode.FAILED
    assert capsys.readouterr().err == (
        f"tarry: not_found: the command '{name}' is in the distribution tarry-{name}; "
        f"allowed: pip install --find-links dist tarry-{name} (dist: the directory of Tarry's wheels)\n"
    )
    for arguments in (["--help"], [name, "--help"]):
        assert run(arguments) == 0
        assert f"tarry-{name}" in capsys.readouterr().out


def test_one_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The others work, and the help does."""
    install(monkeypatch, bad="nowhere.to.be.found:command", hello=f"{HERE}:hello")
    assert run(["bad"]) == ExitCode.FAILED
    assert "the command 'bad' of nowhere.to.be.found:command cannot be loaded: No module" in capsys.readouterr().err
    assert run(["--help"]) == 0
    assert run(["hello", "Ada"]) == 7


def test_no_such_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    install(monkeypatch)
    assert run(["hallo"]) == ExitCode.USAGE
    assert "No such command 'hallo'" in capsys.readouterr().err


def test_nothing_is_looked_up_for_a_command_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(**_: Any) -> list[EntryPoint]:
        raise AssertionError

    monkeypatch.setattr(plugins, "entry_points", looked)
    assert run(["pending", "-e", "127.0.0.1:1"]) == ExitCode.UNAVAILABLE


@pytest.mark.parametrize("name", sorted(plugins.OURS))
def test_the_help_of_ours_imports_nothing_slow(name: str) -> None:
    code = (
        "import sys; from tarry.cli.main import run; run(sys.argv[1:]);"
        "heavy = {'pyarrow', 'pyspark', 'numpy', 'deltalake', 'pandas', 'matplotlib'} & set(sys.modules);"
        f"sys.exit(str(heavy or '') or int('tarry_{name}.command' not in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, name, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_lines_of_help_are_broken_by_the_terminal_alone() -> None:
    def paragraphs(found: Any) -> list[str]:
        below = [found.get_command(None, name) for name in getattr(found, "list_commands", lambda _: [])(None)]
        return (found.help or "").split("\n\n") + [each for one in below if one for each in paragraphs(one)]

    ours = [each for name in COMMANDS for each in paragraphs(command().get_command(None, name))]
    assert [each for each in ours if "\n" in each and not each.startswith("\b")] == []
