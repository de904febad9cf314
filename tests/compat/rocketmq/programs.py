"""Builds the programs in a cache directory outside of this tree, and says how each is run."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUILD_S = 1800.0
_BUILT = "built"


def cache() -> Path:
    """Everything that is made: builds, and what runs leave behind."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tarry" / "compat-rocketmq"


class MissingToolError(Exception):
    """A language's own tool is not on this machine."""


def _python(_: Path) -> list[str]:
    return [sys.executable, "-m", "tests.compat.rocketmq.python"]


def _java(directory: Path) -> list[str]:
    if not _is_built(directory):
        _run(directory, "mvn", "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=target/lib")
        _mark(directory)
    # The client writes its log below user.home.
    heap = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [
        "java",
        *heap,
        "-Duser.home=.",
        "-cp",
        f"{directory}/target/classes:{directory}/target/lib/*",
        "compat.Main",
    ]


def _classic_java(main: str, *settings: str) -> Callable[[Path], list[str]]:
    """A program with the classic client, and its main class. ``settings``: Maven's, for its version."""

    def build_with(directory: Path) -> list[str]:
        if not _is_built(directory):
            words = ["compile", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"]
            _run(directory, "mvn", "-q", "-B", *settings, *words)
            _mark(directory)
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.home=."]
        return ["java", *options, "-cp", f"{directory}/target/classes:{directory}/target/lib/*", main]

    return build_with


def _node(directory: Path) -> list[str]:
    if not _is_built(directory):
        _run(directory, "npm", "ci", "--no-fund", "--no-audit", "--loglevel", "error")
        _mark(directory)
    return ["node", str(directory / "main.mjs")]


def _go(directory: Path) -> list[str]:
    if not _is_built(directory):
        _run(directory, "go", "build", "-o", "program", ".")
        _mark(directory)
    return [str(directory / "program")]


def _rust(directory: Path) -> list[str]:
    # Kept when the program changes: the crates below it take minutes.
    target = cache() / "rust-target"
    if not _is_built(directory):
        _run(directory, "cargo", "build", "--locked", "--quiet", "--target-dir", str(target))
        shutil.copy(target / "debug" / "rocketmq-compat", directory / "program")
        _mark(directory)
    return [str(directory / "program")]


LANGUAGES: dict[str, Callable[[Path], list[str]]] = {
    "python": _python,
    "java": _java,
    "node": _node,
    "go": _go,
    "rust": _rust,
    "classic-go": _go,
    "classic-node": _node,
    "classic-java": _classic_java("classic.Main"),
    "classic-java-4.9": _classic_java("classic.Main", "-Drocketmq.version=4.9.8"),
    "classic-admin": _classic_java("admin.Main", "-Drocketmq.version=5.3.3"),
    "classic-admin-5.5": _classic_java("admin.Main", "-Drocketmq.version=5.5.0"),
    "classic-spring": _classic_java("spring.Main"),
    "classic-ons": _classic_java("ons.Main"),
}
SOURCES = {"classic-java-4.9": "classic-java", "classic-admin-5.5": "classic-admin"}
"""Where a program is, if not under its own name."""


def is_classic(language: str) -> bool:
    """Whether its client speaks the classic protocol."""
    return language.startswith("classic-")


def build(language: str) -> list[str]:
    """The command that runs a language's program, which is built where it has changed.

    Raises:
        MissingToolError: the language's tool is not installed.
        subprocess.CalledProcessError: it does not build.
    """
    sources = HERE / SOURCES.get(language, language)
    directory = cache() / language / _digest(sources)
    if not (directory / _BUILT).exists() and language != "python":
        for former in (cache() / language).glob("*"):
            if former != directory:
                shutil.rmtree(former)
        shutil.copytree(sources, directory, dirs_exist_ok=True)
    return LANGUAGES[language](directory)


def _digest(sources: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(path for path in sources.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        found.update(str(path.relative_to(sources)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]


def _is_built(directory: Path) -> bool:
    return (directory / _BUILT).exists()


def _mark(directory: Path) -> None:
    (directory / _BUILT).touch()


def _run(directory: Path, *command: str) -> None:
    if shutil.which(command[0]) is None:
        raise MissingToolError(f"{command[0]} is not installed")
    subprocess.run(command, cwd=directory, check=True, timeout=BUILD_S, stdout=sys.stderr, stdin=subprocess.DEVNULL)
