"""The RocketMQ front, its process killed while it works: what was acknowledged is there, once, and not early."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections import Counter

import grpc
import pytest

from tests.rocketmq.rpc import Code, Rpc, d, now_ms

from .conftest import MakeBroker

TOPIC, GROUP = "orders", "billing"
RUN_S = 1.5
PATIENCE_S = 60
SENDERS = 4
FAST: dict[str, str | int] = {
    "pipeline": "off",
    "horizon_ms": 400,
    "checkpoint_interval_ms": 50,
    "segment_bytes_max": "128KiB",
}


class Sender(threading.Thread):
    """Sends single messages, each again with its id until it is answered, as the official clients do."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._rpc = Rpc(port, shared=False)
        self.stopping = threading.Event()
        self.sent: dict[str, int] = {}
        self.halves: dict[str, object] = {}

    def run(self) -> None:
        count = 0
        while not self.stopping.is_set():
            id, due = uuid.uuid4().hex, now_ms() + count * 37 % 900
            half = {"message_type": d.MessageType.TRANSACTION} if count % 10 == 0 else {"due_ms": due}
            count += 1
            while True:
                try:
                    entry = self._rpc.send(TOPIC, id.encode(), message_id=id, **half)
                    break
                except grpc.RpcError:
                    time.sleep(0.02)
            assert entry.status.code == Code.OK, entry
            if "due_ms" in half:
                self.sent[id] = due
            else:
                self.halves[id] = entry
        self._rpc.close()


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.rest)])
def test_killed_under_load_nothing_acknowledged_is_lost(make_broker: MakeBroker, kills: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    broker = make_broker(rocketmq=f"127.0.0.1:{port}", rocketmq_check_first_ms=3_600_000, **FAST)
    senders = [Sender(port) for _ in range(SENDERS)]
    for sender in senders:
        sender.start()
    got: Counter[str] = Counter()
    early: list[str] = []
    dues: dict[str, int] = {}
    for _ in range(kills):
        _consume(port, time.monotonic() + RUN_S, got, early)
        broker.kill()
        broker.start()
    for sender in senders:
        sender.stopping.set()
        sender.join(PATIENCE_S)
        dues |= sender.sent
    halves = {id: entry for sender in senders for id, entry in sender.halves.items()}
    rpc = Rpc(port)
    assert not got.keys() & halves.keys(), "undecided"
    for entry in halves.values():
        assert rpc.end(TOPIC, entry, d.TransactionResolution.COMMIT) == Code.OK
    end = time.monotonic() + PATIENCE_S
    while (dues.keys() | halves.keys()) - got.keys() and time.monotonic() < end:
        _consume(port, time.monotonic() + 1, got, early)
    missing = (dues.keys() | halves.keys()) - got.keys()
    assert not missing, f"{len(missing)} of {len(dues)} lost"
    assert not early
    assert len(dues) > 50
    assert len(halves) > 5
    assert set(got) == dues.keys() | halves.keys(), "and nothing that nobody was told of"
    rpc.close()


def _consume(port: int, until_s: float, got: Counter[str], early: list[str]) -> None:
    rpc = Rpc(port, shared=False)
    try:
        while time.monotonic() < until_s:
            messages = rpc.receive(TOPIC, GROUP, wait_s=0.3, invisible_ms=10_000)
            for message in messages:
                system = message.system_properties
                got[system.message_id] += 1
                if now_ms() < system.delivery_timestamp.ToMilliseconds():
                    early.append(system.message_id)
            if messages:
                assert rpc.ack(TOPIC, GROUP, *messages).status.code in (Code.OK, Code.MULTIPLE_RESULTS)
    finally:
        rpc.close()
