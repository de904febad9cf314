"""A lease that ends between the group's lock and the socket: nothing leaves, and it comes again as the same try.

So it is where readers keep their own offsets: a lease that ends once messages were read.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import tarry
from tarry import Client
from tarry.base.errors import OverloadedError
from tarry.broker import Broker, queues
from tarry.broker.opened_files import Opened
from tarry.broker.queues import Queues
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.gateway.front import GatewayFront, socket_of
from tarry.fronts.gateway.remote import group
from tarry.fronts.gateway.remote.lease import RemoteLease
from tarry.fronts.http.front import HttpFront
from tarry.fronts.link.front import LinkFront
from tarry.fronts.mqtt.front import MqttFront
from tarry.fronts.push.front import PushFront
from tarry.fronts.registry import ServerConfig
from tarry.fronts.rocketmq.classic.front import RemotingFront
from tarry.fronts.rocketmq.common.names import HALF_MESSAGES
from tarry.fronts.rocketmq.common.stubs import definition as d
from tarry.fronts.rocketmq.common.stubs import service as s
from tarry.fronts.rocketmq.front import RocketMQFront
from tarry.groups.delivery import GroupDelivery
from tarry.link.frames import decode_batch
from tarry.spark.broker_client import BrokerClient
from tests.gateway.places import Worker
from tests.gateway.worker_places import workers_of
from tests.http.sqs_place import client_at, make_queue, received
from tests.mqtt.place import PUBLISH, SUBACK, Raw, subscribe
from tests.push.receiver import Receiver
from tests.rocketmq.rpc import Rpc, producer, res
from tests.rocketmq_classic.remoting import Remoting
from tests.rocketmq_classic.test_popping import pop_all
from tests.waiting import wait_until, wait_until_async

BODY = b"due once"


class Lease:
    """One that ends right after the first hand-out, until it is renewed."""

    def __init__(self) -> None:
        self.has_ended = self.is_over = False
        self.refused = 0
        self.ends_elsewhere = False
        self.attempts: list[int] = []
        """Of all messages that were handed out, whether they have left or not."""

    def __call__(self) -> bool:
        self.refused += self.is_over
        return not self.is_over

    def on_hand_out(self, batch: pa.RecordBatch) -> None:
        self.attempts += batch.column("attempt").to_pylist()
        if not self.ends_elsewhere:
            self.end_once()

    def end_once(self) -> None:
        self.is_over, self.has_ended = not self.has_ended, True


class Place:
    """A broker whose lease the test has, and which message is to come: ``send`` sends it."""

    def __init__(self, broker: Broker, stack: ExitStack, lease: Lease) -> None:
        self.broker, self.stack, self.lease = broker, stack, lease
        self.topic, self.group = "orders", "g"
        self.send: Callable[[], object] = lambda: broker.schedule(self.topic, BODY, delay=0)

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
    return received_by_rest(place.http())


def received_by_rest(http: httpx.Client) -> Take:
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
    return received_by_rocketmq(place, place.start(RocketMQFront).port)


def received_by_rocketmq(place: Place, port: int) -> Take:
    rpc = Rpc(port)
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


def flight(place: Place) -> Take:
    client = fl.FlightClient(f"grpc://{place.start(FlightFront).address}")
    place.stack.callback(client.close)
    ticket = fl.Ticket(json.dumps({"op": "receive", "topic": "orders", "group": "g", "wait_ms": 1000}).encode())

    def take() -> bytes:
        while not (found := client.do_get(ticket).read_all()).num_rows:
            pass
        body: bytes = found["body"][0].as_py()
        return body

    return take


def lmstfy(place: Place) -> Take:
    http, place.topic, place.group = place.http(), "ns/orders", "lmstfy"
    secret = place.broker.create_token("ns").secret

    def take() -> bytes:
        asked = {"timeout": 1, "ttr": 60}
        while (answer := http.get("/api/ns/orders", params=asked, headers={"x-token": secret})).status_code != 200:
            pass
        return base64.b64decode(answer.json()["data"])

    return take


def sqs(place: Place) -> Take:
    client, place.group = client_at(f"http://{place.start(HttpFront).address}"), "sqs"
    url = make_queue(client)

    def take() -> bytes:
        while not (found := received(client, url, WaitTimeSeconds=1)):
            pass
        return str(found[0]["Body"]).encode()

    return take


def transaction_checks(place: Place) -> Take:
    rpc = Rpc(place.start(RocketMQFront).port)
    place.stack.callback(rpc.close)
    asked = rpc.telemetry(producer("orders"))
    asked.next()
    place.topic, place.group = HALF_MESSAGES, "checks"
    place.send = lambda: rpc.send("orders", BODY, message_type=d.MessageType.TRANSACTION)

    def take() -> bytes:
        body: bytes = asked.next(60).recover_orphaned_transaction_command.message.body
        return body

    return take


def worker(place: Place) -> Take:
    address = place.start(LinkFront).address

    async def work() -> bytes:
        serving, bodies = tarry.Worker(address), []

        @serving.on("orders", group="g")
        async def handle(message: tarry.Delivery) -> None:
            bodies.append(message.body)

        task = asyncio.create_task(serving.serve())
        await wait_until_async(lambda: bodies)
        serving.stop()
        await task
        return bodies[0]

    return lambda: asyncio.run(work())


def queue_reader(place: Place) -> Take:
    client = place.stack.enter_context(BrokerClient(place.start(FlightFront).address))

    def take() -> bytes:
        while True:
            first, end = client.queues(["orders"])["orders"]
            try:
                for batch in client.queue("orders", first, end) if end else ():
                    body: bytes = batch.column("body")[0].as_py()
                    return body
            except OverloadedError:
                pass

    return take


def classic_pull(place: Place) -> Take:
    client = Remoting(place.start(RemotingFront).port)
    place.stack.callback(client.close)
    return lambda: client.pull_until(1, "orders", "g", wait_s=1)[0]["body"]


def rocketmq_pull(place: Place) -> Take:
    rpc = Rpc(place.start(RocketMQFront).port)
    place.stack.callback(rpc.close)
    request = s.PullMessageRequest(
        group=res("g"), message_queue=d.MessageQueue(topic=res("orders")), offset=0, batch_size=1
    )
    request.filter_expression.CopyFrom(d.FilterExpression(type=d.FilterType.TAG, expression="*"))
    request.long_polling_timeout.FromMilliseconds(1000)

    def take() -> bytes:
        while True:
            for answer in rpc.stream("PullMessage", request):
                if answer.HasField("message"):
                    body: bytes = answer.message.body
                    return body

    return take


def end_in_worker(place: Place) -> None:
    """Have the lease end once a batch has come to a worker."""
    place.lease.ends_elsewhere = True
    decoded = decode_batch

    def decode(payload: memoryview, schema: pa.Schema) -> pa.RecordBatch:
        place.lease.end_once()
        return decoded(payload, schema)

    patches = place.stack.enter_context(pytest.MonkeyPatch.context())
    patches.setattr(RemoteLease, "lasts", lambda _: place.lease())
    patches.setattr(group, "decode_batch", decode)


def rest_in_worker(place: Place) -> Take:
    end_in_worker(place)
    workers = place.stack.enter_context(workers_of(HttpFront, place.broker, 1))
    http = httpx.Client(base_url=f"http://{workers.fronts[0].address}", timeout=60)
    return received_by_rest(place.stack.enter_context(http))


def rocketmq_in_worker(place: Place) -> Take:
    end_in_worker(place)
    gateway = GatewayFront.start(place.broker, socket_of(place.broker.config.data))
    place.stack.callback(gateway.stop)
    worker = Worker(gateway.address)
    place.stack.callback(worker.stop)
    return received_by_rocketmq(place, worker.front.port)


FRONTS = [
    *(link_consumer, link_receive, worker, flight, rest, events, lmstfy, sqs, mqtt, rocketmq, classic_pop, push),
    *(transaction_checks, rest_in_worker, rocketmq_in_worker),
]
PULLS = [classic_pull, rocketmq_pull]
"""They look once more behind the broker's own look, which is the last one for readers of queues."""


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
def read_behind_a_look(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the lease end when a batch was read."""
    sent = Queues._sent  # noqa: SLF001  the moment between the broker's look and the socket

    def read(*args: Any) -> Iterator[pa.RecordBatch]:
        for batch in sent(*args):
            lease.end_once()
            yield batch

    monkeypatch.setattr(Queues, "_sent", read)


@pytest.fixture
def read_before_a_look(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    read_rows = queues._read  # noqa: SLF001  the moment between the first look and that for each batch

    def read(*args: Any) -> Iterator[pa.RecordBatch]:
        for batch in read_rows(*args):
            lease.end_once()
            yield batch

    monkeypatch.setattr(queues, "_read", read)


@pytest.fixture
def place(tmp_path: Path, lease: Lease) -> Iterator[Place]:
    config = ServerConfig(
        data=tmp_path / "data",
        pipeline="off",
        flight=None,
        disk_free_bytes_min=0,
        push_private_addresses="127.0.0.0/8",
        rocketmq_check_first_ms=1,
    )
    with ExitStack() as stack:
        yield Place(stack.enter_context(Broker.open(config)), stack, lease)


@pytest.mark.parametrize("front", FRONTS)
def test_what_was_handed_out_stays_here_once_the_lease_is_over(
    place: Place, lease: Lease, front: Callable[[Place], Take]
) -> None:
    check_that_it_waits(place, lease, front)
    assert lease.attempts[:2] == [1, 1], "the one that has not left counted as a try"


@pytest.mark.parametrize("front", PULLS)
@pytest.mark.usefixtures("read_behind_a_look")
def test_what_was_read_stays_here_once_the_lease_is_over(
    place: Place, lease: Lease, front: Callable[[Place], Take]
) -> None:
    check_that_it_waits(place, lease, front)


@pytest.mark.usefixtures("read_before_a_look")
def test_a_batch_of_a_queue_is_not_read_once_the_lease_is_over(place: Place, lease: Lease) -> None:
    check_that_it_waits(place, lease, queue_reader)


def check_that_it_waits(place: Place, lease: Lease, front: Callable[[Place], Take]) -> None:
    take = front(place)
    place.broker.group(place.topic, place.group, start="earliest")
    with ThreadPoolExecutor(1) as threads:
        taken = threads.submit(take)
        try:
            place.send()
            consumers = place.broker.find_group(place.topic, place.group)

            def is_refused() -> bool:
                return bool(lease.refused) and lease.has_ended and not consumers.counts()["leased"]

            wait_until(lambda: taken.done() or is_refused())
            assert not taken.done(), f"it has left: {taken.result()!r}"
        finally:
            lease.is_over = False
        assert taken.result(60) == BODY
