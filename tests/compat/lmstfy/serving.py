"""``tarry serve`` with the HTTP front, as a process of its own, for clients of lmstfy in other languages."""

from __future__ import annotations

import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

START_S = 180.0


@dataclass(frozen=True, slots=True)
class Served:
    """Where the two ports are, and the process."""

    host: str
    port: int
    admin: str
    process: subprocess.Popen[str]

    def token(self, namespace: str) -> str:
        """A new token, from the admin port."""
        answer = httpx.post(f"http://{self.admin}/token/{namespace}", params={"description": "test"}, timeout=60)
        return str(answer.raise_for_status().json()["token"])


@contextmanager
def served(data: Path) -> Iterator[Served]:
    """A broker without Flight and pipeline."""
    command = (
        *(sys.executable, "-m", "tarry", "serve", "--data", str(data), "--flight", "", "--pipeline", "off"),
        *("--http", "127.0.0.1:0", "--http-admin", "127.0.0.1:0"),
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], START_S)
        line = process.stdout.readline() if ready else ""
        found = re.search(r"http on ([^:]+):(\d+)[^,]*, http admin on ([^,]+)", line)
        if found is None:
            raise RuntimeError(f"the broker did not serve: {line!r}")
        yield Served(found[1], int(found[2]), found[3], process)
    finally:
        process.terminate()
        process.wait()
