"""The bridge beside a real RabbitMQ: programs written for the plugin, but for the exchange's name."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from tarry.client import Client
from tests.rabbitmq.place import Bridged, bridged
from tests.rabbitmq.rough_place import properties_of, raw_program
from tests.rabbitmq.server import FOUND, WHY_NOT, RabbitServer
from tests.snippets import snippets
from tests.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "rabbitmq.md"
pytestmark = [pytest.mark.asyncio, pytest.mark.rest, pytest.mark.skipif(not FOUND, reason=WHY_NOT)]


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    server = RabbitServer(tmp_path_factory.mktemp("rabbit"))
    yield server
    server.kill()


class Channel:
    """A program's channel: it publishes to the delayed exchange, and takes from a queue of its own."""

    def __init__(self, channel: Any, queue: Any) -> None:
        self.channel, self.queue = channel, queue

    async def publish(self, body: bytes, headers: dict[str, Any], routing_key: str = "new", **more: Any) -> None:
        exchange = await self.channel.get_exchange("orders.delayed", ensure=False)
        await exchange.publish(aio_pika.Message(body, headers=headers, **more), routing_key)

    async def next(self) -> Any:
        async with asyncio.timeout(60):
            while (message := await self.queue.get(fail=False)) is None:
                await asyncio.sleep(0.01)
        await message.ack()
        return message


@asynccontextmanager
async def opened(place: Bridged) -> AsyncIterator[Channel]:
    """Open a channel that raises where no queue takes a message, once the bridge has bound its own."""
    await asyncio.to_thread(place.until_connected)
    async with await aio_pika.connect(place.rabbit.url) as connection:
        channel = await connection.channel(on_return_raises=True)
        exchange = await channel.declare_exchange("orders", "direct", durable=True)
        queue = await channel.declare_queue(exclusive=True)
        for key in ("new", "old"):
            await queue.bind(exchange, key)
        yield Channel(channel, queue)


async def test_messages_wait_are_cancelled_and_are_refused(rabbit: RabbitServer, tmp_path: Path) -> None:
    with bridged(tmp_path, rabbit, "--tries", "2") as place:
        async with opened(place) as program:
            answers = await program.channel.declare_queue(exclusive=True)
            await program.publish(b"at once", {}, "old")
            assert (await program.next()).body == b"at once"
            began = time.time()
            await program.publish(b"later", {"x-delay": 1500, "of": "shop"}, message_id="1", content_type="text/plain")
            await program.publish(b"never", {"x-delay": 3_600_000}, message_id="2")
            await program.publish(b"", {"x-tarry-cancel": True}, message_id="2", reply_to=answers.name)
            await program.publish(b"bad", {"x-delay": "soon"}, message_id="3")
            await program.publish(b"unbound", {"x-delay": 1}, "nobody's", message_id="4")
            await program.publish(b"nowhere", {"x-delay": 1, "x-tarry-exchange": "none"}, message_id="5")
            later = await program.next()
            assert time.time() - began >= 1.5
            assert (later.body, later.message_id, later.content_type) == (b"later", "1", "text/plain")
            assert (later.headers, later.exchange) == ({"x-delay": -1500, "of": "shop"}, "orders")
            assert (await Channel(program.channel, answers).next()).body == b"done"
            await program.publish(b"", {"x-tarry-cancel": "no"}, reply_to=answers.name, correlation_id="6")
            answer = await Channel(program.channel, answers).next()
            assert (answer.body, answer.headers["x-tarry-outcome"], answer.correlation_id) == (
                b"refused",
                "refused",
                "6",
            )
            assert "header x-tarry-cancel is 'no'; allowed: " in answer.headers["x-tarry-refused"]
            refused = await Channel(program.channel, await program.channel.get_queue("tarry.delay.refused")).next()
            assert "header x-delay is 'soon'" in refused.headers["x-tarry-refused"]
        with Client(place.endpoint) as client:
            wait_until(lambda: client.dead_letters("rabbitmq.delayed", "bridge").num_rows == 2)
            assert client.pending() == [] or sum(each.pending for each in client.pending()) == 0
        assert place.bridge.stop() == 0
        told = place.bridge.said
        assert "message 3, published to exchange 'orders.delayed' with routing key 'new', is refused: " in told
        assert "taking from queue tarry.delay; exchanges: " in told
        assert "RabbitMQ does not take message 4: no queue takes it: NO_ROUTE, exchange 'orders', routing key" in told
        assert "RabbitMQ does not take message 5: there is no exchange 'none'" in told


async def test_nothing_is_lost_when_each_is_killed(rabbit: RabbitServer, tmp_path: Path) -> None:
    """And what has a message id does not come twice, but where RabbitMQ had it and its confirm was lost."""
    with bridged(tmp_path, rabbit) as place:
        async with opened(place) as program:
            for number in range(200):
                await program.publish(b"%d" % number, {"x-delay": 4000 + number}, message_id=str(number))
                if number == 60:
                    place.bridge.kill()
                    place.bridge.start()
                if number == 120:
                    place.broker.kill()
                    place.broker.start()
            found = [await program.next() for _ in range(100)]
            place.bridge.kill()
            place.bridge.start()
            while {message.message_id for message in found} != set(map(str, range(200))):
                found.append(await program.next())
            assert all(message.body == message.message_id.encode() for message in found)


async def test_it_connects_again(rabbit: RabbitServer, tmp_path: Path) -> None:
    with bridged(tmp_path, rabbit) as place:
        async with await aio_pika.connect(rabbit.url) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange("orders", "direct", durable=True)
            queue = await channel.declare_queue("kept", durable=True)
            await queue.bind(exchange, "new")
            await asyncio.to_thread(place.until_connected)
            message = aio_pika.Message(b"x", headers={"x-delay": 3000}, delivery_mode=2)
            await (await channel.get_exchange("orders.delayed")).publish(message, "new")
            with Client(place.endpoint) as client:
                wait_until(lambda: sum(each.pending for each in client.pending()) == 1)
        rabbit.kill()
        rabbit.start()
        async with await aio_pika.connect(rabbit.url) as connection:
            channel = await connection.channel()
            assert (await Channel(channel, await channel.get_queue("kept")).next()).body == b"x"
        assert f"RabbitMQ at 127.0.0.1:{rabbit.port} is away" in place.bridge.said


async def test_the_pages_program_runs(rabbit: RabbitServer, tmp_path: Path) -> None:
    [program] = [each.code for each in snippets("python") if each.page == "docs/rabbitmq.md"]
    code = program.replace("amqp://guest:guest@127.0.0.1/", rabbit.url)
    with bridged(tmp_path, rabbit) as place:
        async with opened(place):
            await asyncio.to_thread(exec, compile(code, "docs/rabbitmq.md", "exec"), {})
            with Client(place.endpoint) as client:
                wait_until(lambda: sum(each.pending for each in client.pending()) == 1)
                assert client.find_key("rabbitmq.delayed", "order-17") is not None


async def test_programs_may_publish_before_tarry_is_there(rabbit: RabbitServer, tmp_path: Path) -> None:
    with bridged(tmp_path, rabbit, "--exchange", "early.delayed=early", "--queue", "before") as place:
        for each in (place.bridge, place.broker):
            each.kill()
        (tmp_path / "bridge.log").write_text("")
        async with await aio_pika.connect(rabbit.url) as connection:
            channel = await connection.channel()
            for name in ("early.delayed", "orders.delayed"):
                await channel.exchange_delete(name)
            place.bridge.start()
            await asyncio.to_thread(wait_until, lambda: "Tarry is away" in place.bridge.said, 60)
            exchange = await channel.declare_exchange("early", "direct", durable=True)
            queue = await channel.declare_queue(exclusive=True)
            await queue.bind(exchange, "new")
            message = aio_pika.Message(b"early", headers={"x-delay": 1})
            await published(connection, message)
            place.broker.start()
            assert (await Channel(channel, queue).next()).body == b"early"


async def published(connection: Any, message: aio_pika.Message) -> None:
    """Publish it to an exchange as soon as that is there: RabbitMQ closes the channel of who asks before."""
    async with asyncio.timeout(60):
        while True:
            try:
                channel = await connection.channel()
                await (await channel.get_exchange("early.delayed")).publish(message, "new")
            except aio_pika.exceptions.ChannelNotFoundEntity:
                await asyncio.sleep(0.05)
            else:
                return


async def test_the_rights_that_the_page_names_are_enough(
    rabbit: RabbitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [line] = [each for each in PAGE.read_text().splitlines() if "tarry identity create bridge" in each]
    _, *command = shlex.split(line)
    with bridged(tmp_path, rabbit) as place:
        place.bridge.kill()
        monkeypatch.setenv("TARRY_ENDPOINT", place.endpoint)
        monkeypatch.setenv("TARRY_TOKEN", await tarry("identity", "create", "admin", "--all", "--no-keep"))
        monkeypatch.setenv("TARRY_TOKEN", await tarry(*command))
        place.bridge.start()
        async with opened(place) as program:
            answers = await program.channel.declare_queue(exclusive=True)
            await program.publish(b"never", {"x-delay": 3_600_000}, message_id="never")
            await program.publish(b"", {"x-tarry-cancel": True}, message_id="never", reply_to=answers.name)
            assert (await Channel(program.channel, answers).next()).body == b"done"
            await program.publish(b"soon", {"x-delay": 1})
            assert (await program.next()).body == b"soon"
        assert place.bridge.stop() == 0


async def tarry(*words: str) -> str:
    """Run a command, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tarry", *words, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode().strip()


async def test_a_queue_of_another_kind_is_named(rabbit: RabbitServer, tmp_path: Path) -> None:
    async with await aio_pika.connect(rabbit.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("mine", durable=True)
        with bridged(tmp_path, rabbit, "--queue", "mine") as place:
            assert await asyncio.to_thread(place.bridge.wait) == 2
            assert "RabbitMQ refuses what the bridge needs" in place.bridge.said


async def test_an_exchange_that_is_deleted_is_made_again(rabbit: RabbitServer, tmp_path: Path) -> None:
    """With the rights alone that the page names."""
    own, to = r"^(tarry\.delay(\.refused)?|orders\.delayed)$", r"^(tarry\.delay(\.refused)?|orders(\.delayed)?)$"
    rabbit.control("add_user", "bridge", "secret")
    rabbit.control("set_permissions", "bridge", own, to, own)
    with bridged(tmp_path, rabbit, "--url", rabbit.url.replace("guest:guest", "bridge:secret")) as place:
        await asyncio.to_thread(place.until_connected)
        async with raw_program(rabbit.url) as program:
            for name in ("orders.delayed", "tarry.delay"):
                await program.channel.exchange_delete(name)
                await until_said(place, f"exchange {name} is not there any more, and is made again")
            await program.until_there("orders.delayed")
            async with asyncio.timeout(60):
                while not await program.is_taken(b"x", properties_of(1)):
                    await asyncio.sleep(0.05)
            assert await program.bodies(1) == [b"x"]
            # One of another kind is not the bridge's to take away: it says so, and works on.
            await program.channel.exchange_delete("orders.delayed")
            await program.channel.exchange_declare("orders.delayed", exchange_type="fanout", durable=True)
            await until_said(place, "RabbitMQ refuses what the bridge needs: PRECONDITION_FAILED")
            await program.channel.exchange_delete("orders.delayed")
            await program.until_there("orders.delayed")
        assert place.bridge.stop() == 0
        assert place.bridge.said.count("connected to RabbitMQ") == 1


async def until_said(place: Bridged, text: str) -> None:
    await asyncio.to_thread(wait_until, lambda: text in place.bridge.said, 60, lambda: place.bridge.said)


@pytest.mark.parametrize(
    ("path", "options", "code", "text"),
    [
        (
            "nope",
            (),
            2,
            "refuses the virtual host 'nope': NOT_ALLOWED - vhost nope not found; allowed: one that is there",
        ),
        ("", ("--exchange", "nonsense"), 2, "--exchange is 'nonsense'; allowed: NAME=TARGET"),
        ("", ("--exchange", "orders.delayed=others"), 2, "orders.delayed=others; allowed: one target for each name"),
        ("", ("--exchange", "a=a"), 2, "would come to the bridge again; allowed: another target"),
        (
            "",
            ("--data", "/proc/nope"),
            2,
            "--data is /proc/nope: /proc/nope: No such file or directory; allowed: a broker",
        ),
        ("", ("--password-file", "{wrong}"), 9, "refuses the login of user 'guest'"),
    ],
)
async def test_what_cannot_be_is_named(
    rabbit: RabbitServer, tmp_path: Path, path: str, options: tuple[str, ...], code: int, text: str
) -> None:
    (tmp_path / "wrong").write_text("wrong")
    given = [each.format(wrong=tmp_path / "wrong") for each in options]
    with bridged(tmp_path, rabbit, "--url", rabbit.url + path, *given) as place:
        assert await asyncio.to_thread(place.bridge.wait) == code
        assert text in place.bridge.said
        assert "taking from queue" not in place.bridge.said
