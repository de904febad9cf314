"""The release before this one, from the repository's history, and processes of either."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Self

ROOT = Path(__file__).parents[2]
PREVIOUS = "0ff01ed919558530a01f33fe8da4db639f3feeb6"
"""The commit that stands for the last release. With a new release: its tag."""
SOURCES = ("src", "packages/loopgrpc/src")


def has_history() -> bool:
    """Whether that commit is here: not so in a checkout without history, and in a release's archive."""
    try:
        found = subprocess.run(["git", "cat-file", "-e", f"{PREVIOUS}^{{commit}}"], cwd=ROOT, capture_output=True)
    except FileNotFoundError:
        return False
    return found.returncode == 0


def export(directory: Path) -> Path:
    """Write the sources of the last release into a directory."""
    made = subprocess.run(["git", "archive", PREVIOUS, *SOURCES], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(directory)], input=made.stdout, check=True)
    return directory


class Program:
    """A process of Python that imports Tarry from ``sources``; in a ``with`` block it is stopped in the end."""

    def __init__(self, sources: Path, log: Path, *arguments: str) -> None:
        paths = os.pathsep.join(str(sources / each) for each in SOURCES)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TARRY_")}
        with log.open("a") as file:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                env={**kept, "PYTHONPATH": paths},
                stdout=subprocess.PIPE,
                stderr=file,
                stdin=subprocess.PIPE,
                text=True,
            )
        assert self.process.stdout is not None
        self.out: IO[str] = self.process.stdout
        self.log = log

    def line(self) -> str:
        """Return the next line that it prints."""
        line = self.out.readline()
        assert line, f"{self.log}: {self.log.read_text()}"
        return line

    def stop(self) -> int:
        """Have it end, and return its exit code."""
        self.process.terminate()
        return self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.out.close()
        assert self.process.stdin is not None
        self.process.stdin.close()


def port_of(line: str, before: str) -> int:
    """Return the port in what ``tarry serve`` prints first."""
    return int(line.partition(before)[2].split()[0].strip(",").rpartition(":")[2])
