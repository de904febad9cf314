"""How each program for RabbitMQ is built."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.compat.sources import NoSourceError

HERE = Path(__file__).parent
BUILD_S_MAX = 900
PIKA = "pika==1.3.2"


class Built(NamedTuple):
    """A program that is ready to run, and what it is told beside the URL and the exchange's name."""

    command: list[str]
    place: Path
    environment: Mapping[str, str] = {}


def _python(directory: Path) -> Built:
    place = _copy("python", directory, sys.executable)
    library = directory / "library"
    _run([sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target", str(library), PIKA], directory)
    return Built([sys.executable, "main.py"], place, {"PYTHONPATH": str(library)})


def _node(directory: Path) -> Built:
    place = _copy("node", directory, "npm")
    _run(["npm", "ci", "--no-audit", "--no-fund"], place)
    return Built(["node", "main.mjs"], place)


def _spring(directory: Path) -> Built:
    place = _copy("spring", directory, "mvn")
    _run(["mvn", "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"], place)
    return Built(["java", "-XX:+UseSerialGC", "-cp", "target/classes:target/lib/*", "compat.Main"], place)


def _copy(name: str, directory: Path, tool: str) -> Path:
    if shutil.which(tool) is None:
        raise NoSourceError(f"{tool} is not installed")
    return Path(shutil.copytree(HERE / name, directory / name))


def _run(command: list[str], place: Path) -> None:
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=BUILD_S_MAX, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {(done.stdout + done.stderr)[-3000:]}")


PROGRAMS: Mapping[str, Callable[[Path], Built]] = {"python": _python, "node": _node, "spring": _spring}
"""Each is built into a directory. Raises NoSourceError."""
