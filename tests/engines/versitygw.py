"""A server of the S3 protocol whose conditional PUTs are atomic: versitygw, built by `make object-stores`.

Not moto (``tests/s3.py``): there a look and a write are two steps, and of two writers both may win.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tarry.log.objects.s3 import S3Objects
from tests.loopgrpc.h2spec import CACHE
from tests.ports import free_port
from tests.s3 import environment, listens
from tests.waiting import wait_until

SOURCE = "github.com/versity/versitygw/cmd/versitygw@latest"
BUCKET = "tarry-logs"


def program() -> Path:
    """The program. Skips the test where it is not there, and is not to be built, which takes minutes, or cannot be."""
    path = CACHE / "versitygw"
    if not path.is_file() and "TARRY_BUILD_VERSITYGW" not in os.environ:
        pytest.skip(f"versitygw is not in {CACHE}; make object-stores builds it")
    if not path.is_file():
        if shutil.which("go") is None:
            pytest.skip(f"versitygw is not in {CACHE}, and there is no Go to build it")
        CACHE.mkdir(parents=True, exist_ok=True)
        built = subprocess.run(
            ["go", "install", SOURCE], env={**os.environ, "GOBIN": str(CACHE)}, capture_output=True, text=True
        )
        if built.returncode:
            pytest.skip(f"versitygw could not be built: {built.stderr[-300:]}")
    return path


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """The endpoint of a server with one bucket, whose objects are files in a directory."""
    path, port = program(), free_port()
    (directory / BUCKET).mkdir(parents=True)
    command = [path, "--access", "A", "--secret", "S", "--port", f"127.0.0.1:{port}", "posix", directory]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(port) or server.poll() is not None)
        assert server.poll() is None
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def environment_at(address: str) -> dict[str, str]:
    """What a broker's environment has, for its logs and its store there."""
    return environment(f"http://{address}", "A", "S")


def store_at(endpoint: str, prefix: str, bucket: str = BUCKET, **options: Any) -> S3Objects:
    """A shard's objects there."""
    given = {"endpoint": endpoint, "region": "us-east-1", "access_key_id": "A", "secret_access_key": "S", **options}
    return S3Objects(f"s3://{bucket}/{prefix}/shard=0", given, {"allow_http": True})
