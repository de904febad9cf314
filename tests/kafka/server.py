"""A real Kafka of one node (KRaft) in a directory of its own. ``python -m tests.kafka.server`` fetches its jars."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tarry.spark.runtime.java import find_java_home
from tests.jars import fetched

POM = Path(__file__).with_name("pom.xml")
VERSION = "4.3.1"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"

_PROPERTIES = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
log.dirs={logs}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


def jars() -> Path:
    """The directory of Kafka's jars, fetched by Maven when they are not there.

    Raises:
        NotFoundError: there is no Maven, and no jars.
    """
    return fetched(POM, f"kafka-{VERSION}", "kafka_2.13-*.jar", os.environ.get("TARRY_KAFKA_JARS"))


class Kafka:
    """One node; :meth:`kill` and :meth:`start` as often as wanted, on the same directory and port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._java = find_java_home(directory) / "bin" / "java"
        self._jars = jars()
        self.port, controller = _free_port(), _free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = directory / "server.properties"
        text = _PROPERTIES.format(port=self.port, controller=controller, logs=directory / "logs")
        self._properties.write_text(text)
        tool = ["kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(self._properties)]
        subprocess.run([*self._command(), *tool], check=True, capture_output=True, timeout=120)

    def _command(self) -> list[str]:
        return [str(self._java), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{self._jars}/*"]

    def start(self) -> None:
        """Start, and wait until it answers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with (self._directory / "kafka.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command(), "kafka.Kafka", str(self._properties)], stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 90
        while True:
            try:
                AdminClient({"bootstrap.servers": self.address, "log_level": 0}).list_topics(timeout=2)
                return
            except KafkaException:
                tail = (self._directory / "kafka.log").read_text()[-2000:]
                assert self._process.poll() is None, f"Kafka has ended: {tail}"
                assert time.monotonic() < deadline, f"Kafka does not answer: {tail}"

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it, as a power failure would."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None


@contextmanager
def kafka() -> Iterator[Kafka]:
    """A Kafka that is gone at the end."""
    directory = Path(tempfile.mkdtemp(prefix="tarry-kafka-"))
    server = Kafka(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


if __name__ == "__main__":
    sys.stdout.write(f"{jars()}\n")
