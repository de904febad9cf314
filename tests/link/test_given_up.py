"""Calls of Tarry's Python clients that nobody waits for any more, and calls that get no answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tarry.base.errors import ClosedError, MessageTooLargeError, UnavailableError
from tarry.client import AsyncClient, Client
from tarry.client.aio import THREADS_MAX
from tarry.client.background import background_loop
from tarry.client.feed import CLOSE_S
from tarry.fronts.link.front import LinkFront
from tarry.link import blocking, frames


@contextlib.contextmanager
def silent_broker() -> Iterator[str]:
    """An address that greets whoever connects, and then says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken: list[socket.socket] = []

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    taken.append(connection)
                    connection.sendall(b"".join(frames.frame(frames.FrameKind.WELCOME, 0, b"{}")))

        threading.Thread(target=greet, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        for connection in taken:
            connection.close()


def test_a_receive_that_was_given_up_takes_no_message(front: LinkFront) -> None:
    async def test() -> None:
        async with AsyncClient(front.address) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.receive("t", group="g", wait=600), 0.2)
            await client.schedule("t", b"x", delay=0)
            [message] = await client.receive("t", group="g", wait=30)
            assert message.attempt == 1
            message.ack()

    asyncio.run(test())


def test_what_was_on_its_way_to_a_receive_that_is_given_up_goes_back(front: LinkFront) -> None:
    async def test() -> None:
        async with AsyncClient(front.address) as client:
            nacks: Counter[bytes] = Counter()
            for number in range(40):
                call = asyncio.ensure_future(client.receive("t", group="g", wait=30))
                await client.schedule("t", b"%d" % number, delay=0)
                await asyncio.sleep(0.0003 * (number % 10))  # at any moment of its way
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    for message in await call:
                        nacks[message.body] += 1
                        message.nack(delay=0)
            seen: set[bytes] = set()
            while len(seen) < 40:
                for message in await client.receive("t", group="g", wait=10, max_messages=100):
                    seen.add(message.body)
                    assert message.attempt == 1 + nacks[message.body]
                    message.ack()
            await client.flush()

    asyncio.run(test())


class GoneError(Exception):
    """Raised by a signal's handler."""


def test_a_receive_that_a_signal_ends_takes_no_message(front: LinkFront) -> None:
    def handler(*_: Any) -> None:
        raise GoneError

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with Client(front.address) as client:
            threading.Timer(
                0.3, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            ).start()
            with pytest.raises(GoneError):
                client.receive("t", group="g", wait=60)
            client.schedule("t", b"x", delay=0)
            [message] = client.receive("t", group="g", wait=30)
            assert message.attempt == 1
            message.ack()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_receives_that_wait_hold_up_no_other_call(front: LinkFront) -> None:
    async def test() -> None:
        async with AsyncClient(front.address) as client:
            receives = [asyncio.ensure_future(client.receive("t", group="g", wait=600)) for _ in range(2 * THREADS_MAX)]
            assert (await asyncio.wait_for(client.status(), 30))["state"] == "serving"
            for receive in receives:
                receive.cancel()

    asyncio.run(test())


def test_bulk_ends_where_the_broker_says_nothing() -> None:
    with (
        silent_broker() as address,
        Client(address, timeout=0.5) as client,
        pytest.raises(UnavailableError, match="rows 0 to 2 may or may not"),
    ):
        client.schedule_many([{"topic": "t", "body": b"x", "delay": 1}] * 3)


def test_a_message_of_asyncio_has_an_answer_in_time() -> None:
    async def test() -> None:
        async with AsyncClient(address, timeout=0.5) as client:
            with pytest.raises(UnavailableError, match=r"within 0\.5 s.*may or may not"):
                await client.schedule("t", b"x", delay=1)

    with silent_broker() as address:
        asyncio.run(test())


def test_one_client_in_two_loops_in_turn(front: LinkFront) -> None:
    client = AsyncClient(front.address)

    async def use() -> int:
        return (await client.schedule("t", b"x", delay=0)).seq

    assert asyncio.run(use()) + 1 == asyncio.run(use())
    asyncio.run(client.close())
    with pytest.raises(ClosedError):
        asyncio.run(use())


def test_a_request_above_the_limit_is_not_sent(front: LinkFront, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.client.connection.ASKED_BYTES_MAX", 1 << 20)
    with Client(front.address) as client:
        with pytest.raises(MessageTooLargeError, match="allowed: 1048576"):
            client.schedule("t", bytes(2 << 20), delay=0)
        client.schedule("t", b"x", delay=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads, which is what this is about
def test_a_child_of_a_fork_leaves_the_parents_messages_and_ends(front: LinkFront) -> None:
    with Client(front.address) as client:
        for number in range(3):
            client.schedule("t", b"%d" % number, delay=0)
        with client.consume("t", group="g", timeout=60) as consumer:
            messages = iter(consumer)
            next(messages).ack()
            reads, writes = os.pipe()
            if (child := os.fork()) == 0:
                said = b"?"
                try:
                    next(messages)
                except ClosedError:
                    said = b"closed"
                finally:
                    os.write(writes, said)
                    consumer.close()
                    client.close()
                    os._exit(0)
            begun_s = time.monotonic()
            os.waitpid(child, 0)
            assert time.monotonic() - begun_s < 8, "it waits for nobody"
            assert os.read(reads, 20) == b"closed"
            os.close(reads)
            os.close(writes)
            for _ in range(2):
                next(messages).ack()
            consumer.flush()


def test_a_process_ends_while_a_receive_waits(front: LinkFront) -> None:
    program = (
        "import asyncio, tarry\n"
        f"client = tarry.AsyncClient({front.address!r})\n"
        "async def main():\n"
        "    asyncio.ensure_future(client.receive('t', group='g', wait=600))\n"
        "    await client.status()\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert ended.returncode == 0


def test_a_consumer_that_is_closed_before_it_began_ends(front: LinkFront) -> None:
    with Client(front.address) as client:
        for _ in range(200):
            consumer = client.consume("t", group="g")
            begun_s = time.monotonic()
            consumer.close()
            assert list(consumer) == []
            assert time.monotonic() - begun_s < CLOSE_S, "closing does not wait in vain"


def to_itself(*_: Any) -> socket.socket:
    """A socket that is connected to itself, as the kernel makes one now and then where nobody listens."""
    connection = socket.socket()
    connection.bind(("127.0.0.1", 0))
    connection.connect(connection.getsockname())
    return connection


def test_a_connection_to_itself_is_none_to_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = background_loop()
    connect = loop.create_connection

    async def connect_to_itself(make: Any, *_: Any, **__: Any) -> Any:
        return await connect(make, sock=to_itself())

    monkeypatch.setattr(loop, "create_connection", connect_to_itself)
    with Client("127.0.0.1:7611") as client, pytest.raises(UnavailableError, match="refused"):
        client.status()
    monkeypatch.setattr(socket, "create_connection", to_itself)
    with pytest.raises(UnavailableError, match="refused"):
        blocking.connect("127.0.0.1:7611")
