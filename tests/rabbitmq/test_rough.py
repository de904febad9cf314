"""What RabbitMQ and its programs do to a bridge: it goes on, and what it was given comes, as it was."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.bridge.amqp_fields import AmqpProperties
from tarry.client import Client
from tests.rabbitmq.place import Bridged, Program, bridged
from tests.rabbitmq.rough_place import properties_of, raw_program
from tests.rabbitmq.server import FOUND, WHY_NOT, RabbitServer
from tests.waiting import wait_until

CONNECTED = "connected to RabbitMQ"
pytestmark = [pytest.mark.asyncio, pytest.mark.rest, pytest.mark.skipif(not FOUND, reason=WHY_NOT)]


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    server = RabbitServer(tmp_path_factory.mktemp("rabbit"))
    yield server
    server.kill()


@pytest.fixture(scope="module")
def place(rabbit: RabbitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridged]:
    with bridged(tmp_path_factory.mktemp("place"), rabbit, "--tries", "2") as found:
        yield found


def table(**fields: bytes) -> bytes:
    entries = b"".join(bytes([len(name)]) + name.encode() + value for name, value in fields.items())
    return struct.pack(">I", len(entries)) + entries


EVERY_KIND = {
    b"t": b"t\1", b"b": b"b\x85", b"B": b"B\x85", b"s": b"s\x80\0", b"u": b"u\x80\0", b"I": b"I\x80\0\0\0",
    b"i": b"i\x80\0\0\0", b"l": b"l" + struct.pack(">q", 5), b"f": b"f" + struct.pack(">f", 0.1),
    b"d": b"d" + struct.pack(">d", 0.1), b"D": b"D\x02\0\0\0\x96", b"S": b"S\0\0\0\2\xc3\xa4", b"S2": b"S\0\0\0\1\xff",
    b"x": b"x\0\0\0\2\0\xff", b"T": b"T" + struct.pack(">Q", 1_700_000_000),
    b"T-ms": b"T" + struct.pack(">Q", 1_700_000_000_123), b"T-never": b"T" + b"\xff" * 8, b"V": b"V",
    b"A": b"A\0\0\0\3t\1V",
    b"F": b"F" + table(of=b"F" + table(n=b"l" + struct.pack(">q", 1)), t=b"T" + struct.pack(">Q", 1)),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_properties_come_back_to_the_byte(rabbit: RabbitServer, place: Bridged, kind: str) -> None:
    async with raw_program(rabbit.url, kind) as program:
        properties = properties_of(50, message_id=f"every kind, {kind}")
        properties.headers |= EVERY_KIND
        properties.fields |= {"priority": b"\5", "timestamp": struct.pack(">Q", 1_700_000_000_123)}
        for name in ("content_type", "content_encoding", "correlation_id", "reply_to", "type", "app_id"):
            properties.set_text(name, f"a {name}")
        properties.set_text("expiration", "60000")
        await program.publish(b"\0\xff", properties)
        properties.negate("x-delay")
        found, body = await program.next()
        if kind == "quorum":  # who takes by get, as this program does, is told the target queue's own count
            assert found.headers.pop(b"x-delivery-count") == b"l" + bytes(8)
        assert (found, body) == (properties, b"\0\xff")
        plain = AmqpProperties()
        await program.publish(b"", plain)
        found, body = await program.next()
        found.headers.pop(b"x-delivery-count", None)
        assert (found, body) == (plain, b"")


async def test_what_cannot_be_is_put_aside_with_the_reason(rabbit: RabbitServer, place: Bridged) -> None:
    async with raw_program(rabbit.url) as program:
        # Not infinity, which RabbitMQ itself does not take: it closes the connection of who publishes it.
        for value in (b"l" + struct.pack(">q", 2**62), b"S\0\0\0\4soon", b"d" + struct.pack(">d", 1e300)):
            properties = AmqpProperties(headers={b"x-delay": value})
            await program.publish(b"x", properties)
            found, body = await program.next("tarry.delay.refused")
            assert (found.headers[b"x-delay"], body) == (value, b"x")
            assert str(found.header("x-tarry-refused")).startswith("header x-delay is ")
        await program.send(b"x" * (5 << 20), 1)
        found, body = await program.next("tarry.delay.refused")
        assert "body has 5242880 bytes; allowed: 4194304" in found.header("x-tarry-refused")
        assert len(body) == 5 << 20
        await program.send(b"x" * (4 << 20), 1)
        assert (await program.next())[1] == b"x" * (4 << 20)
        await program.send(b"many headers", 1, of="x" * 60_000)
        found, body = await program.next("tarry.delay.refused")
        assert "properties have" in found.header("x-tarry-refused")
        await program.send_with_key(b"no text", b"k\xff")
        found, body = await program.next("tarry.delay.refused")
        assert "routing key is 'k\\udcff'; allowed: a text in UTF-8" in found.header("x-tarry-refused")
        assert body == b"no text"
        await program.send(b"past", -5)
        assert (await program.next())[0].header("x-delay") == -5


async def test_who_asks_for_an_answer_at_no_text_takes_no_place(rabbit: RabbitServer, place: Bridged) -> None:
    """More of them than a window has: what comes behind them is taken all the same."""
    async with raw_program(rabbit.url) as program:
        for number in range(1100):
            properties = AmqpProperties(fields={"reply_to": bytes([100]) + b"\xff" * 100})
            properties.set_header("x-tarry-cancel", True if number % 2 else "perhaps")
            properties.set_text("message_id", "nobody's")
            await program.publish(b"", properties)
        await program.send(b"behind", 1)
        assert (await program.next())[1] == b"behind"
        for _ in range(550):
            assert "x-tarry-cancel is 'perhaps'" in (await program.next("tarry.delay.refused"))[0].header(
                "x-tarry-refused"
            )
        assert "cannot be handled" not in place.bridge.said


async def test_a_stop_does_not_wait_for_a_rabbitmq_that_stands_still(rabbit: RabbitServer, place: Bridged) -> None:
    async with raw_program(rabbit.url) as program:
        for number in range(50):
            await program.send(b"%d" % number, 1)
        assert len(await program.bodies(50)) == 50
        with rabbit.frozen():
            assert place.bridge.stop() == 0
        place.bridge.start()
        await program.send(b"again", 1)
        assert (await program.next())[1] == b"again"


async def test_an_exchange_that_is_not_there_or_refuses_touches_no_other(rabbit: RabbitServer, place: Bridged) -> None:
    async with raw_program(rabbit.url) as program:
        await program.channel.exchange_declare("inner", exchange_type="fanout", internal=True, auto_delete=True)
        await program.channel.exchange_declare("leaves", exchange_type="fanout")
        await program.send(b"known", 1, x_tarry_exchange="leaves", message_id="known")  # no queue: it is returned
        await program.channel.exchange_delete("leaves")
        for number in range(40):
            await program.send(b"%d" % number, 300, message_id=f"good {number}")
            if number < 4:
                await program.send(b"", 300, x_tarry_exchange=["none", "inner", "leaves", "orders"][number], key="none")
        assert {int(body) for body in await program.bodies(40)} == set(range(40))
        with Client(place.endpoint) as client:
            wait_until(lambda: client.dead_letters("rabbitmq.delayed", "bridge").num_rows == 5)
            dead = str(client.dead_letters("rabbitmq.delayed", "bridge").to_pylist())
        for reason in ("there is no exchange 'none'", "RabbitMQ refuses it", "no queue takes it: NO_ROUTE"):
            assert reason in dead
        assert await program.is_empty()


async def test_a_message_id_again(rabbit: RabbitServer, place: Bridged) -> None:
    """A program that publishes once more what it could not handle gets it again; one that asks twice does not."""
    async with raw_program(rabbit.url) as program:
        for _ in range(3):
            await program.send(b"again", 50, message_id="job")
            assert (await program.next())[1] == b"again"
        for _ in range(3):
            await program.send(b"once", 800, message_id="twice published")
        await program.send(b"something else", 900, message_id="twice published")
        assert await program.bodies(2) == [b"once", b"something else"]
        await program.send(b"end", 100)
        assert await program.bodies(1) == [b"end"]


async def test_a_queue_that_is_deleted_is_made_again(rabbit: RabbitServer, place: Bridged) -> None:
    async with raw_program(rabbit.url) as program:
        await program.channel.queue_delete("tarry.delay")
        wait_until(lambda: "queue tarry.delay is not there any more" in place.bridge.said)
        async with asyncio.timeout(60):
            while not await program.is_taken(b"x", properties_of(1)):
                await asyncio.sleep(0.05)
        assert await program.bodies(1) == [b"x"]


async def test_two_bridges_take_from_one_queue(rabbit: RabbitServer, place: Bridged, tmp_path: Path) -> None:
    words = (
        "bridge",
        "rabbitmq",
        "--url",
        rabbit.url,
        "--endpoint",
        place.endpoint,
        "--exchange",
        "orders.delayed=orders",
    )
    other = Program(tmp_path / "other.log", *words)
    try:
        wait_until(lambda: CONNECTED in other.said)
        async with raw_program(rabbit.url) as program:
            for number in range(400):
                await program.send(b"%d" % number, number, message_id=f"two {number}")
            assert sorted(map(int, await program.bodies(400))) == list(range(400))
            assert await program.is_empty()
        assert other.stop() == 0
        assert "taken=0" not in other.said.splitlines()[-1]
        assert "given=0" not in other.said.splitlines()[-1]
    finally:
        other.kill()


async def test_a_stop_doubles_nothing(rabbit: RabbitServer, place: Bridged) -> None:
    async with raw_program(rabbit.url) as program:
        for number in range(600):
            await program.send(b"%d" % number, number, message_id=f"stop {number}")
            if number % 200 == 199:
                assert place.bridge.stop() == 0
                before = place.bridge.said.count(CONNECTED)
                place.bridge.start()
                # Before, a signal ends it on the spot: nothing of it is under way.
                wait_until(lambda before=before: place.bridge.said.count(CONNECTED) > before)
        assert sorted(map(int, await program.bodies(600))) == list(range(600))
        assert await program.is_empty()
