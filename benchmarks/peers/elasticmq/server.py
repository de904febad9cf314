"""A process of ElasticMQ, on a free port; Maven fetches its jars once, into the user's cache."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.jars import fetched

from benchmarks.harness import cpu_s_of, free_endpoint, rss_bytes_of, workspace

POM = Path(__file__).with_name("pom.xml")
START_S, STOP_S = 60.0, 20.0
HEAP = "-Xmx2g"
_CONFIG = """
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1", sqs-limits = strict }}
rest-stats {{ enabled = false }}
queues {{ }}
"""


@dataclass
class ElasticMq:
    """A process that serves SQS's API."""

    process: subprocess.Popen[bytes]
    place: str
    """Host and port."""

    @property
    def rss_mb(self) -> float:
        return rss_bytes_of(self.process.pid) / (1 << 20)

    def cpu_s(self) -> float:
        return cpu_s_of(self.process.pid)


@contextmanager
def elasticmq_server() -> Iterator[ElasticMq]:
    """ElasticMQ with empty queues, ended after the block.

    Raises:
        RuntimeError: there is no Java, or it did not start in time.
    """
    java = shutil.which("java")
    if java is None:
        raise RuntimeError("there is no java; allowed: Java 17 or newer in PATH")
    jars = fetched(POM, "elasticmq-1.6.16", "elasticmq-server_*.jar")
    with workspace() as directory:
        place = free_endpoint()
        config = directory / "elasticmq.conf"
        config.write_text(_CONFIG.format(port=place.rpartition(":")[2]))
        command = [java, HEAP, f"-Dconfig.file={config}", "-cp", f"{jars}/*", "org.elasticmq.server.Main"]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
            try:
                _wait(place, process, directory / "log")
                yield ElasticMq(process, place)
            finally:
                _end(process)


def _wait(place: str, process: subprocess.Popen[bytes], log: Path) -> None:
    host, _, port = place.rpartition(":")
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and process.poll() is None:
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"ElasticMQ did not start in {START_S:g} s: {log.read_text(errors='replace')[-2000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_S)
