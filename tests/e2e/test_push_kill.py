"""The broker killed while it pushes: each message arrives at least once, none early, and none is acknowledged without a
2xx; subscriptions are there again.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest

from tarry import Client
from tarry.errors import UnavailableError
from tests.push.receiver import Got, Receiver, Reply
from tests.waiting import wait_until

from .conftest import MakeBroker

TOPIC = "orders"
RUN_S = 1.5
ROWS_MAX = 4000
FAST: dict[str, str | int] = {
    "pipeline": "off",
    "horizon_ms": 400,
    "checkpoint_interval_ms": 50,
    "segment_bytes_max": "128KiB",
    "push_private_addresses": "127.0.0.0/8",
}


class Producer(threading.Thread):
    """Schedules while it is not told to stop, each message again with its id until it is accepted."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.stopping = threading.Event()
        self.accepted: dict[str, int] = {}

    def run(self) -> None:
        client, count = Client(self._address), 0
        while not self.stopping.is_set() and count < ROWS_MAX:
            id = f"m{count}"
            try:
                receipt = client.schedule(TOPIC, id, delay=f"{count * 37 % 900}ms", id=id)
            except UnavailableError:
                time.sleep(0.02)
                client.close()
                client = Client(self._address)
                continue
            self.accepted[id] = receipt.due_ms
            count += 1
        client.close()


@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.rest)])
def test_killed_while_it_pushes(make_broker: MakeBroker, kills: int) -> None:
    chance = random.Random(kills)
    acknowledged: Counter[str] = Counter()

    def behave(got: Got) -> Reply:
        if chance.random() < 0.1:
            return Reply(500)
        if chance.random() < 0.05:
            return Reply(act=lambda _: None)  # the connection is closed without an answer
        acknowledged[got.body.decode()] += 1
        return Reply()

    with Receiver(behave) as receiver:
        broker = make_broker(**FAST)
        with Client(broker.address) as client:
            client.set_push(
                "s", topic=TOPIC, url=receiver.url, retry="fixed 20ms", tries=0, concurrency=8, breaker_failures=0
            )
        producer = Producer(broker.address)
        producer.start()
        for _ in range(kills):
            seen = len(receiver.got)
            wait_until(lambda seen=seen: len(receiver.got) > seen + 50)
            time.sleep(chance.random() * RUN_S)  # a kill comes at any moment
            broker.kill()
            broker.start()
        producer.stopping.set()
        producer.join(60)
        with Client(broker.address) as client:
            assert [info.name for info in client.push_subscriptions()] == ["s"]
            # What was accepted, and answered by nobody, may be there beside what the producer knows of.
            wait_until(lambda: set(producer.accepted) <= set(acknowledged))
            wait_until(lambda: client.group_info(TOPIC, "push-s").lag == 0)
        early = [got for got in receiver.got if got.at_ms < int(got.headers["x-tarry-due-ms"])]
        assert early == []
        assert {got.body.decode() for got in receiver.got} == set(acknowledged), "none is settled without a 2xx"
        ids: dict[str, set[str]] = {}
        for got in receiver.got:
            ids.setdefault(got.body.decode(), set()).add(got.headers["webhook-id"])
        assert all(len(found) == 1 for found in ids.values()), "a message has one webhook-id, before and after a kill"
