"""Tarry's Python clients on the link: connections, threads, and what becomes of a client that is forgotten."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import socket
import threading
import time
from pathlib import Path

import pytest

from tarry.api.operations import GetGroup
from tarry.base.errors import ClosedError, UnavailableError
from tarry.broker import Broker
from tarry.client import AsyncClient, Client
from tarry.client.consuming import FEEDS_MAX
from tarry.client.delivery import Delivery
from tarry.fronts.link.front import LinkFront
from tests.waiting import TIMEOUT_S, wait_until, wait_until_async


def test_by_a_unix_socket(tmp_path: Path, broker: Broker) -> None:
    front = LinkFront.start(broker, f"unix:{tmp_path}/s")
    try:
        with Client(front.address) as client:
            client.schedule("t", b"x", delay=0)
            [message] = client.receive("t", group="g", wait=30)
            assert message.body == b"x"
            message.ack()
            client.flush()
            assert client.group_info("t", "g").lag == 0
    finally:
        front.stop(0.2)


def test_consumers_have_no_threads_and_share_connections(front: LinkFront) -> None:
    with Client(front.address) as client:
        consumers = [client.consume("t", group=f"g{number}", timeout=30) for number in range(40)]
        client.schedule("t", b"x", delay=0)
        for consumer in consumers:
            next(iter(consumer)).ack()
            consumer.flush()
        of_clients = [each.name for each in threading.enumerate() if each.name.startswith("tarry-client")]
        assert of_clients == ["tarry-client"], "one for all clients of a process"
        for consumer in consumers:
            consumer.close()


def test_more_consumers_than_one_connection_takes(front: LinkFront, broker: Broker) -> None:
    with Client(front.address) as client:
        consumers = [client.consume("t", group="g") for _ in range(FEEDS_MAX + 1)]
        client.schedule("u", b"x", delay=0)
        with client.consume("u", group="g", timeout=60) as one:
            next(iter(one)).ack()
            one.flush()
        for consumer in consumers:
            consumer.close()


def test_a_forgotten_consumer_gives_back_what_it_holds(front: LinkFront) -> None:
    with Client(front.address) as client:
        client.schedule("t", b"x", delay=0)
        consumer = client.consume("t", group="g", lease="1h")
        messages = iter(consumer)
        assert next(messages).attempt == 1
        del messages, consumer
        gc.collect()
        with client.consume("t", group="g", timeout=60) as other:
            assert next(iter(other)).attempt == 2


def test_what_is_in_work_when_the_broker_stops_is_settled(broker: Broker) -> None:
    """The broker waits for its consumers, up to its grace; what nobody has begun is for others at once."""
    front = LinkFront.start(broker, "127.0.0.1:0")
    begun, may_end = threading.Event(), threading.Event()

    def handle(message: Delivery) -> None:
        begun.set()
        assert may_end.wait(TIMEOUT_S)

    with Client(front.address) as client:
        for _ in range(3):
            client.schedule("t", b"x", delay=0)
        consumer = client.consume("t", group="g")
        working = threading.Thread(target=consumer.run, args=[handle])
        working.start()
        assert begun.wait(TIMEOUT_S)
        stopping = threading.Thread(target=front.stop, args=[TIMEOUT_S])
        stopping.start()
        wait_until(lambda: (info := broker.call(GetGroup("t", "g"))).leased == 1 and info.lag == 3)
        may_end.set()
        stopping.join()
        assert broker.call(GetGroup("t", "g")).lag == 2
        consumer.close()
        working.join()


def test_what_tasks_have_in_work_when_the_broker_stops_is_settled(broker: Broker) -> None:
    front = LinkFront.start(broker, "127.0.0.1:0")

    async def work() -> None:
        begun = asyncio.Semaphore(0)
        may_end = asyncio.Event()

        async def handle(message: Delivery) -> None:
            begun.release()
            await may_end.wait()

        async with AsyncClient(front.address) as client:
            for _ in range(3):
                await client.schedule("t", b"x", delay=0)
            consumer = client.consume("t", group="g")
            loops = [asyncio.create_task(consumer.run(handle)) for _ in range(2)]
            for _ in loops:
                await begun.acquire()
            stopping = asyncio.create_task(asyncio.to_thread(front.stop, TIMEOUT_S))
            await wait_until_async(lambda: broker.call(GetGroup("t", "g")).leased == 2)
            may_end.set()
            await stopping
            assert broker.call(GetGroup("t", "g")).lag == 1
            await consumer.close()
            await asyncio.gather(*loops)

    asyncio.run(work())


def test_a_forgotten_client_leaves_no_connection(front: LinkFront) -> None:
    client = Client(front.address)
    client.schedule("t", b"x", delay=3600)
    client.status()
    way = client.native("")
    connections = way.connection, way.calls
    del client, way
    gc.collect()
    wait_until(lambda: all(each._peer is None or each._peer.lost for each in connections))  # noqa: SLF001


def of_a_fork(client: Client, said: object) -> None:
    try:
        client.status()
    except ClosedError as error:
        said.send(str(error))  # type: ignore[attr-defined]
    with Client(client.address) as own:
        said.send(own.status()["state"])  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads, which is what this is about
def test_a_fork_needs_a_client_of_its_own(front: LinkFront) -> None:
    context = multiprocessing.get_context("fork")
    hears, says = context.Pipe()
    with Client(front.address) as client:
        client.status()
        child = context.Process(target=of_a_fork, args=(client, says))
        child.start()
        assert hears.poll(30)
        assert "before a fork" in hears.recv()
        assert hears.poll(30)
        assert hears.recv() == "serving"
        child.join(30)
        assert client.status()["state"] == "serving"


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "what answers speaks HTTP"),
        ([b"HT", b"TP/1.1 400 Bad Request\r\n\r\n"], "what answers speaks HTTP"),
        # Each is the length of a frame that a broker may send later.
        ([b"SSH-2.0-OpenSSH_9.6\r\n"], "what answers is no Tarry broker of this release: it begins with b'SSH-2.0-O'"),
        ([b"220 smtp ready\r\n"], "what answers is no Tarry broker of this release: it begins with b'220 smtp '"),
        (
            [b"\x02\0\0\0\x40\0\0\0\0{]"],
            r"what answers is no Tarry broker of this release: it begins with b'\x02\x00\x00\x00@\x00\x00\x00\x00'",
        ),
    ],
)
def test_what_answers_is_no_broker(parts: list[bytes], says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"

        def answer() -> None:
            connection, _ = listening.accept()
            for part in parts:
                connection.sendall(part)
                time.sleep(0.1)
            connection.recv(1 << 16)
            connection.close()

        answering = threading.Thread(target=answer)
        answering.start()
        with Client(address) as client, pytest.raises(UnavailableError) as refused:
            client.status()
        answering.join()
    assert str(refused.value) == (
        f"no answer from the broker at {address}: {says}; "
        "allowed: a broker's native port (setting `flight`, 7611 by default); nothing was sent"
    )


def test_many_at_once_of_asyncio(front: LinkFront) -> None:
    async def test() -> None:
        async with AsyncClient(front.address) as client:
            receipts = await asyncio.gather(*(client.schedule("t", b"%d" % n, delay=0) for n in range(500)))
            assert len({receipt.seq for receipt in receipts}) == 500
            seen = set()
            async for message in client.consume("t", group="g", timeout=30):
                seen.add(message.seq)
                message.ack()
                if len(seen) == 500:
                    break
            assert seen == {receipt.seq for receipt in receipts}
            many = await asyncio.gather(*(client.receive("t", group="h", start="earliest") for _ in range(100)))
            assert sum(map(len, many)) == 100

    asyncio.run(test())
