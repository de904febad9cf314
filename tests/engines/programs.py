"""Servers that are no package of Python's: built with Go where `make object-stores` asks for it, and run for a test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.loopgrpc.h2spec import CACHE
from tests.s3 import listens
from tests.waiting import wait_until


def built(source: str, variable: str) -> Path:
    """The program of a Go module.

    Skips the test where it is not there, and is not to be built (``variable`` is not set), which takes minutes, or
    cannot be.
    """
    path = CACHE / source.partition("@")[0].rpartition("/")[2]
    if path.is_file():
        return path
    if variable not in os.environ:
        pytest.skip(f"{path.name} is not in {CACHE}; make object-stores builds it")
    if shutil.which("go") is None:
        pytest.skip(f"{path.name} is not in {CACHE}, and there is no Go to build it")
    CACHE.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["go", "install", source], env={**os.environ, "GOBIN": str(CACHE)}, capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"{path.name} could not be built: {made.stderr[-300:]}")
    return path


@contextmanager
def running(command: Sequence[str | Path], port: int) -> Iterator[None]:
    """Run a server for the time of the block, from when it listens on ``port``."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(port) or server.poll() is not None)
        assert server.poll() is None
        yield
    finally:
        server.kill()
        server.wait()
