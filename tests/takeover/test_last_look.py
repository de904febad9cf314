"""A lease that ends between the group's lock and the socket: nothing leaves, and it comes again as the same try."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tarry import Client
from tarry.broker import Broker
from tarry.broker.opened_files import Opened
from tarry.fronts.http.front import HttpFront
from tarry.fronts.link.front import LinkFront
from tarry.fronts.mqtt.front import MqttFront
from tarry.fronts.push.front import PushFront
from tarry.fronts.registry import ServerConfig
from tarry.fronts.rocketmq.classic.front import RemotingFront
from tarry.fronts.rocketmq.front import RocketMQFront
from tarry.groups.delivery import GroupDelivery
from tests.mqtt.place import PUBLISH, SUBACK, Raw, subscribe
from tests.push.receiver import Receiver
from tests.rocketmq.rpc import Rpc
from tests.rocketmq_classic.remoting import Remoting
from tests.rocketmq_classic.test_popping import pop_all
from tests.waiting import wait_until

BODY = b"due once"


class Lease:
    """One that ends right after the first hand-out, until it is renewed."""

    def __init__(self) -> None:
        self.has_ended = self.is_over = False
        self.refused = 0
        self.attempts: list[int] = []
        """Of all messages that were handed out, whether they have left or not."""

    def __call__(self) -> bool:
        self.refused += self.is_over
        return not self.is_over

    def on_hand_out(self, batch: pa.RecordBatch) -> None:
        self.attempts += batch.column("attempt").to_pylist()
        self.is_over, self.has_ended = not self.has_ended, True


class Place:
    """A broker whose lease the test has."""

    def __init__(self, broker: Broker, stack: ExitStack) -> None:
        self.broker, self.stack = broker, stack

    def start(self, front: Any) -> Any:
        started = front.start(self.broker, "127.0.0.1:0")
        self.stack.callback(started.stop, 0.2)
        return started

    def http(self) -> httpx.Client:
        client = httpx.Client(base_url=f"http://{self.start(HttpFront).address}", timeout=60)
        return self.stack.enter_context(client)


Take = Callable[[], bytes]
"""Returns the body of the first message that comes, asking again as often as it is answered that there is none."""


def link_consumer(place: Place) -> Take:
    client = place.stack.enter_context(Client(place.start(LinkFront).address))

    def take() -> bytes:
        with client.consume("orders", group="g") as consumer:
            return next(iter(consumer)).body

    return take


def link_receive(place: Place) -> Take:
    client = place.stack.enter_context(Client(place.start(LinkFront).address))

    def take() -> bytes:
        while not (found := list(client.receive("orders", group="g", wait=1))):
            pass
        return found[0].body

    return take


def rest(place: Place) -> Take:
    http = place.http()

    def take() -> bytes:
        asked = {"wait_ms": 1000}
        while not (found := http.post("/v1/topics/orders/groups/g/receive", json=asked).json()["messages"]):
            pass
        return str(found[0]["body"]).encode()

    return take


def events(place: Place) -> Take:
    http = place.http()

    def take() -> bytes:
        with http.stream("GET", "/v1/topics/orders/groups/g/events") as answer:
            line = next(line for line in answer.iter_lines() if line.startswith("data:"))
            return str(json.loads(line.removeprefix("data:"))["body"]).encode()

    return take


def mqtt(place: Place) -> Take:
    raw = place.stack.enter_context(Raw(place.start(MqttFront).port))
    raw.connect()

    def take() -> bytes:
        raw.send(subscribe("$share/g/orders"))
        raw.expect(SUBACK)
        return raw.expect(PUBLISH)[-len(BODY) :]

    return take


def rocketmq(place: Place) -> Take:
    rpc = Rpc(place.start(RocketMQFront).port)
    place.stack.callback(rpc.close)

    def take() -> bytes:
        while not (found := rpc.receive("orders", "g", wait_s=1)):
            pass
        body: bytes = found[0].body
        return body

    return take


def classic_pop(place: Place) -> Take:
    client = Remoting(place.start(RemotingFront).port)
    place.stack.callback(client.close)
    return lambda: pop_all(client, 1)[0]["body"]


def push(place: Place) -> Take:
    receiver = place.stack.enter_context(Receiver())
    pushing = PushFront.start(place.broker)
    place.stack.callback(pushing.stop)
    place.broker.set_push("s", topic="orders", group="g", url=receiver.url)

    def take() -> bytes:
        wait_until(lambda: receiver.got)
        return receiver.got[0].body

    return take


FRONTS = [link_consumer, link_receive, rest, events, mqtt, rocketmq, classic_pop, push]


@pytest.fixture
def lease(monkeypatch: pytest.MonkeyPatch) -> Lease:
    lease, hand_out = Lease(), GroupDelivery._hand_out  # noqa: SLF001  the moment between lock and socket

    def handed_out(*args: Any) -> Any:
        batch = hand_out(*args)
        lease.on_hand_out(batch)
        return batch

    monkeypatch.setattr(GroupDelivery, "_hand_out", handed_out)
    monkeypatch.setattr(Opened, "may_hand_out", property(lambda _: lease))
    return lease


@pytest.fixture
def place(tmp_path: Path, lease: Lease) -> Iterator[Place]:
    config = ServerConfig(
        data=tmp_path / "data", pipeline="off", flight=None, disk_free_bytes_min=0, push_private_addresses="127.0.0.0/8"
    )
    with ExitStack() as stack:
        yield Place(stack.enter_context(Broker.open(config)), stack)


@pytest.mark.parametrize("front", FRONTS)
def test_what_was_handed_out_stays_here_once_the_lease_is_over(
    place: Place, lease: Lease, front: Callable[[Place], Take]
) -> None:
    place.broker.group("orders", "g", start="earliest")
    take = front(place)
    with ThreadPoolExecutor(1) as threads:
        taken = threads.submit(take)
        try:
            place.broker.schedule("orders", BODY, delay=0)
            group = place.broker.find_group("orders", "g")
            wait_until(lambda: lease.refused and lease.has_ended and not group.counts()["leased"])
            assert not taken.done(), "it has left"
        finally:
            lease.is_over = False
        assert taken.result(60) == BODY
    assert lease.attempts[:2] == [1, 1], "the one that has not left counted as a try"
