"""A server of the S3 protocol, with conditional writes, and a store's URI there: for tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    pytest.importorskip("moto.server")
    # In a process of its own: some calls of delta-rs keep the interpreter's lock while they wait for the server.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not listens(port):
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def environment(endpoint: str, access_key: str, secret_key: str) -> dict[str, str]:
    """What an operator sets: docs/spark-clusters.md."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def set_environment(monkeypatch: pytest.MonkeyPatch, endpoint: str, access_key: str, secret_key: str) -> None:
    """Set it, and nothing else of AWS."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in environment(endpoint, access_key, secret_key).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def s3_uri(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    set_environment(monkeypatch, s3_endpoint, "tests", "tests")
    bucket = tmp_path.name.replace("_", "-").lower()
    fs.S3FileSystem(endpoint_override=s3_endpoint, allow_bucket_creation=True).create_dir(bucket)
    return f"s3://{bucket}/a/store"
