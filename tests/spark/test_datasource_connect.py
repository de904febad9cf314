"""``format("tarry")`` through Spark Connect: a server that is a process, and a client that has no JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tarry.spark.runtime.process import kill_session

from ..contract.conftest import Served
from ..sources import PYTHON_PATH
from .exactness import LONG, ROOT

pytestmark = [pytest.mark.spark, pytest.mark.rest, LONG]

PATIENCE_S = 240.0


def test_batches_and_streams(tmp_path: Path) -> None:
    for needed in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(needed, reason="Spark Connect's client needs pyspark[connect]")
    served = Served(tmp_path / "data", checkpoint_interval_ms=20)
    try:
        with server(tmp_path) as port:
            command = [
                sys.executable,
                "-m",
                "tests.spark.connect_process",
                "drive",
                port,
                served.address,
                str(tmp_path),
            ]
            done = subprocess.run(
                command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
        assert done.returncode == 0, done.stderr[-4000:]
        assert "all is well" in done.stdout
    finally:
        served.stop()


@contextmanager
def server(directory: Path) -> Iterator[str]:
    """Its port."""
    command = [sys.executable, "-m", "tests.spark.connect_process", "serve", str(directory)]
    with (directory / "server.log").open("w") as log:
        process = subprocess.Popen(
            command,
            env=environment(),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port.isdigit(), (directory / "server.log").read_text()[-4000:]
        yield port
    finally:
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            pass
        kill_session(process.pid)
        process.communicate()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": PYTHON_PATH}
