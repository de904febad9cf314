"""``tarry serve`` with the HTTP front, as a process of its own, for programs that speak SQS's API."""

from __future__ import annotations

import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tarry.client import Client

START_S = 180.0
KEY, SECRET, REGION = "compat", "compat/secret+1", "us-east-1"


@contextmanager
def served(data: Path, *, strict: bool = False, identities: bool = True) -> Iterator[dict[str, str]]:
    """Serve; yield the environment by which SDKs find the broker, and sign.

    ``identities``: there are some, so that signatures are checked.
    """
    command = [sys.executable, "-m", "tarry", "serve", "--data", str(data), "--pipeline", "off"]
    command += [
        "--flight",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--set",
        f"http_sqs_strict={'on' if strict else 'off'}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], START_S)
        line = process.stdout.readline() if ready else ""
        flight, http = re.search(r"flight on ([^,\s]+)", line), re.search(r"http on ([^,\s]+)", line)
        if flight is None or http is None:
            raise RuntimeError(f"the broker did not serve: {line!r}")
        if identities:
            _identify(flight[1])
        yield environment_of(f"http://{http[1]}")
    finally:
        process.terminate()
        process.wait()


def environment_of(url: str) -> dict[str, str]:
    """Return what SDKs read: the endpoint, and what they sign with."""
    return {
        "AWS_ENDPOINT_URL_SQS": url,
        "AWS_ENDPOINT_URL_SCHEDULER": url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _identify(flight: str) -> None:
    with Client(flight) as first:
        first.set_identity("admin", ["admin"])
        token = first.add_credential("admin").secret
    with Client(flight, token=token) as admin:
        admin.add_credential("admin", kind="access_key", access_key=KEY, secret=SECRET)
