"""The commands that try a client: its own test suite where it has one, else a program of ours that uses all of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.lmstfy.source import copy_of, go
from benchmarks.peers.lmstfy.source import source as lmstfy_source

from tests.compat.sources import NoSourceError

from .sources import checkout

HERE = Path(__file__).parent
BUILD_S_MAX = 1800
Build = Callable[[Path | None, Path], list[str]]
"""From checkouts that are there (None: none) and a directory to build in, the command. Raises NoSourceError."""


class Program(NamedTuple):
    """How a client is tried."""

    tool: str
    """The command that builds or runs it."""
    build: Build


def _go(given: Path | None, directory: Path) -> list[str]:
    """The package ``client`` of lmstfy itself; one file of its tests starts Redis in a container, and is replaced."""
    found = given / "lmstfy" if given is not None and (given / "lmstfy").is_dir() else lmstfy_source(directory)
    if found is None:
        raise NoSourceError("there is no source of lmstfy; allowed: --sources DIRECTORY that has lmstfy")
    copy = copy_of(found, directory / "lmstfy-copy")
    shutil.copyfile(HERE / "go" / "setup_test.go", copy / "client" / "setup_test.go")
    return _go_tests(copy, directory)


def _go_client(given: Path | None, directory: Path) -> list[str]:
    """The Go client that stands alone; the file of its tests that names the server is replaced."""
    copy = copy_of(checkout("go-lmstfy-client", given, directory), directory / "go-copy")
    shutil.copyfile(HERE / "go-client" / "setup_test.go", copy / "client" / "setup_test.go")
    return _go_tests(copy, directory)


def _go_tests(copy: Path, directory: Path) -> list[str]:
    binary = directory / "client.test"
    go("test", "-c", "-o", str(binary), "./client", directory=copy)
    return [str(binary), "-test.v"]


def _php(given: Path | None, directory: Path) -> list[str]:
    client = checkout("php-lmstfy-client", given, directory) / "src" / "Client.php"
    return ["php", str(HERE / "php" / "main.php"), str(client)]


def _java(given: Path | None, directory: Path) -> list[str]:
    """The client's classes, compiled together with the program."""
    client = checkout("java-lmstfy-client", given, directory)
    project = directory / "java"
    shutil.copytree(HERE / "java", project)
    shutil.copytree(client / "src" / "main" / "java", project / "src" / "main" / "java", dirs_exist_ok=True)
    words = ["compile", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"]
    _run(["mvn", "-q", "-B", *words], project)
    # Of 2018: its Gson looks into classes of Java's own, as was allowed then.
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens", "java.base/java.lang=ALL-UNNAMED"]
    return ["java", *options, "-cp", "target/classes:target/lib/*", "compat.Main"]


def _rust(_: Path | None, directory: Path) -> list[str]:
    """The crate's own tests, in a copy of it: ``cargo`` does not run those of what it has fetched."""
    project = directory / "rust"
    shutil.copytree(HERE / "rust", project)
    (project / "src").mkdir()
    (project / "src" / "lib.rs").touch()
    words = ["cargo", "metadata", "--format-version", "1"]
    described = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    if described.returncode:
        raise NoSourceError(f"the crate cannot be fetched: {described.stderr[-300:]}")
    crates = json.loads(described.stdout)["packages"]
    crate = next(Path(one["manifest_path"]).parent for one in crates if one["name"] == "lmstfy-client")
    copy = copy_of(crate, directory / "crate")
    shutil.copyfile(HERE / "rust" / "crate.lock", copy / "Cargo.lock")
    # Kept, since the crates below it take minutes.
    target = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tarry" / "compat-lmstfy-rust"
    words = ["cargo", "test", "--locked", "--no-run", "--quiet", "--message-format", "json", "--target-dir"]
    built = _run([*words, str(target)], copy)
    return [next(one["executable"] for one in map(json.loads, built.splitlines()) if one.get("executable"))]


def _run(command: list[str], directory: Path) -> str:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=BUILD_S_MAX, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


LANGUAGES: dict[str, Program] = {
    "go": Program("go", _go),
    "go-client": Program("go", _go_client),
    "java": Program("mvn", _java),
    "php": Program("php", _php),
    "rust": Program("cargo", _rust),
}


def command_of(language: str, given: Path | None, directory: Path) -> list[str]:
    """Build what tries a client; relative paths in the command are below ``directory / language``.

    Raises:
        NoSourceError: a tool or the source is not here. RuntimeError: it does not build.
    """
    program = LANGUAGES[language]
    if shutil.which(program.tool) is None:
        raise NoSourceError(f"{program.tool} is not installed")
    return program.build(given, directory)


def identities_command(directory: Path) -> list[str]:
    """Build what tries two tokens with lmstfy's own Go client, which is compiled within a copy of lmstfy.

    Raises:
        NoSourceError: Go or the source is not here. RuntimeError: it does not build.
    """
    if shutil.which("go") is None:
        raise NoSourceError("go is not installed")
    directory.mkdir(parents=True, exist_ok=True)
    found = lmstfy_source(directory)
    if found is None:
        raise NoSourceError("there is no source of lmstfy; allowed: LMSTFY_SOURCE=CHECKOUT")
    copy = copy_of(found, directory / "lmstfy-copy")
    shutil.copytree(HERE / "go-identities", copy / "tarryidentities")
    program = directory / "identities"
    go("build", "-o", str(program), "./tarryidentities", directory=copy)
    return [str(program)]
