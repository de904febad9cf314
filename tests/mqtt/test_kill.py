"""kill -9 of the broker while clients publish: what had its PUBACK is delivered after the next start."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tarry.fronts.mqtt.packets import V3
from tests.mqtt.place import PUBACK, PUBLISH, SUBACK, Raw, ack, publish, subscribe

SERVING = re.compile(r"tarry \S+ serving mqtt on 127\.0\.0\.1:(\d+), data .*\n")
MESSAGES = 400


@contextmanager
def served(data: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """``tarry serve`` in a process of its own, and its port."""
    command = [sys.executable, "-m", "tarry", "serve", "--data", str(data), "--flight", "", "--pipeline", "off"]
    command += ["--set", "mqtt=127.0.0.1:0", "--set", "push=off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = SERVING.fullmatch(process.stdout.readline())
            assert found is not None
            yield process, int(found[1])
        finally:
            process.kill()


def test_what_was_acknowledged_comes(tmp_path: Path) -> None:
    with served(tmp_path / "data") as (process, port), Raw(port) as consumer, Raw(port) as producer:
        consumer.connect(V3, client_id="consumer", clean=False)
        consumer.send(subscribe("a", version=V3))
        consumer.expect(SUBACK)
        consumer.socket.close()
        producer.connect(V3, client_id="producer")
        packets = [publish("a", b"%d" % number, packet_id=number, version=V3) for number in range(1, MESSAGES + 1)]
        producer.send(*packets)
        acked = {int.from_bytes(producer.expect(PUBACK), "big") for _ in range(MESSAGES // 4)}
        process.kill()
    assert acked == set(range(1, MESSAGES // 4 + 1)), "PUBACKs come in the order of their messages"
    with served(tmp_path / "data") as (_, port), Raw(port) as consumer:
        consumer.connect(V3, client_id="consumer", clean=False)
        consumer.send(subscribe("a", version=V3))
        missing = set(acked)
        while missing:
            packet = consumer.packet()
            assert packet is not None
            if packet[0] >> 4 == PUBLISH:
                packet_id = int.from_bytes(packet[1][3:5], "big")
                missing.discard(int(packet[1][5:]))
                consumer.send(ack(packet_id))
