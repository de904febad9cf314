"""A server of Azure Blob Storage: Azurite, installed by `make object-stores` with npm."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.engines.programs import running
from tests.loopgrpc.h2spec import CACHE
from tests.ports import free_port

PLACE = CACHE.parent / "azurite"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""They are no secret: every installation of Azurite has them."""
CONTAINER = "backups"
_VERSION = "2021-08-06"


def program() -> Path:
    """The program. Skips the test where it is not there, and is not to be installed, or cannot be."""
    path = PLACE / "node_modules" / ".bin" / "azurite-blob"
    if shutil.which("node") is None:
        pytest.skip("there is no node, which Azurite needs")
    if not path.is_file() and "TARRY_BUILD_CLOUDS" not in os.environ:
        pytest.skip(f"Azurite is not in {PLACE}; make object-stores installs it")
    if not path.is_file():
        PLACE.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(["npm", "install", "azurite"], cwd=PLACE, capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"Azurite could not be installed: {made.stderr[-300:]}")
    return path


@contextmanager
def served(directory: Path) -> Iterator[dict[str, str]]:
    """A server with one container: what a command's environment has for it."""
    path, port = program(), free_port()
    command = [path, "--location", directory, "--blobPort", str(port), "--disableTelemetry", "--silent"]
    with running(command, port):
        _create_container(port)
        yield {
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}",
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_ALLOW_HTTP": "true",
        }


def token_to_read() -> str:
    """A SAS token that lists and reads the container, and may do nothing else."""
    until = "2099-01-01T00:00:00Z"
    resource = f"/blob/{ACCOUNT}/{CONTAINER}"
    signed = "\n".join(["rl", "", until, resource, "", "", "", _VERSION, "c", "", "", "", "", "", "", ""])
    return urlencode({"sp": "rl", "se": until, "sv": _VERSION, "sr": "c", "sig": _signature(signed)})


def _signature(text: str) -> str:
    return base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()


def _create_container(port: int) -> None:
    """Create it: what obstore, which a backup uses, cannot do."""
    path, date = f"/{ACCOUNT}/{CONTAINER}", datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n/{ACCOUNT}{path}\nrestype:container"
    headers = {
        "x-ms-date": date,
        "x-ms-version": _VERSION,
        "Authorization": f"SharedKey {ACCOUNT}:{_signature(signed)}",
        "Content-Length": "0",
    }
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("PUT", f"{path}?restype=container", headers=headers)
    assert connection.getresponse().status == 201
    connection.close()
