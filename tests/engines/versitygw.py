"""A server of the S3 protocol whose conditional PUTs are atomic: versitygw, built by `make object-stores`.

Not moto (``tests/s3.py``): there a look and a write are two steps, and of two writers both may win.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tarry.log.objects.s3 import S3Objects
from tests.engines.programs import built, running
from tests.ports import free_port
from tests.s3 import environment

SOURCE = "github.com/versity/versitygw/cmd/versitygw@latest"
BUCKET = "tarry-logs"


def program() -> Path:
    """The program. Skips the test where it is not there."""
    return built(SOURCE, "TARRY_BUILD_VERSITYGW")


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """The endpoint of a server with one bucket, whose objects are files in a directory."""
    path, port = program(), free_port()
    (directory / BUCKET).mkdir(parents=True)
    command = [path, "--access", "A", "--secret", "S", "--port", f"127.0.0.1:{port}", "posix", directory]
    with running(command, port):
        yield f"http://127.0.0.1:{port}"


def environment_at(address: str) -> dict[str, str]:
    """What a broker's environment has, for its logs and its store there."""
    return environment(f"http://{address}", "A", "S")


def store_at(endpoint: str, prefix: str, bucket: str = BUCKET, **options: Any) -> S3Objects:
    """A shard's objects there."""
    given = {"endpoint": endpoint, "region": "us-east-1", "access_key_id": "A", "secret_access_key": "S", **options}
    return S3Objects(f"s3://{bucket}/{prefix}/shard=0", given, {"allow_http": True})
