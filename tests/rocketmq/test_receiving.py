"""What becomes of messages whose receive ends in each possible moment; on the front's own parts, turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from loopgrpc import Call, Framed, Promise, UnreadBytes
from loopgrpc.framing import Deframer
from loopgrpc.request import Request
from tarry.base.config import Config
from tarry.broker import Broker
from tarry.fronts.kit import receiving as receive_queue
from tarry.fronts.rocketmq.common.stubs import service as s
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.v5 import receiving, settling
from tarry.fronts.rocketmq.v5.components import Components
from tarry.fronts.rocketmq.v5.routes import ListeningAddress
from tarry.fronts.rocketmq.v5.service import NAME
from tests.rocketmq.conftest import WAIT_S
from tests.rocketmq.rpc import Code, ack_request, message, receive_request

pytestmark = pytest.mark.asyncio


class Shop:
    """The parts of a front without its wire."""

    def __init__(self, broker: Broker, components: Components) -> None:
        self.broker = broker
        self._handlers = components.service.handlers()

    def call(self, name: str, request: Any, client: str = "c") -> tuple[Call, Any]:
        """The call, and what its handler returned."""
        path = f"/{NAME}/{name}"
        asked = Request([(b"x-mq-client-id", client.encode())])
        asked.path, asked.metadata_places = path.encode(), [0]
        call = Call(asked, "127.0.0.1:1", None)
        handler: Any = self._handlers[path]
        found = handler.fn(request.SerializeToString(), call)
        return call, answer_of(found) if isinstance(found, Promise) else found

    def receive(self, client: str = "c", push: bool = True, **more: Any) -> tuple[Call, Any]:
        return self.call("ReceiveMessage", receive_request("orders", "g", push=push, **more), client)

    async def received(self, client: str = "c", **more: Any) -> list[Any]:
        call, answer = self.receive(client, **more)
        found = await messages_in(await asyncio.wait_for(answer, WAIT_S))
        call.end(cancelled=False)
        return found

    async def send(self, *bodies: bytes) -> None:
        before = self.broker.queue_state(["orders"])["orders"][1]
        for body in bodies:
            request = s.SendMessageRequest(messages=[message("orders", body)])
            answer = s.SendMessageResponse.FromString(await self.call("SendMessage", request)[1])
            assert answer.status.code == Code.OK
        await until(lambda: self.broker.queue_state(["orders"])["orders"][1] == before + len(bodies))

    async def ack(self, client: str, *messages: Any) -> Any:
        request = ack_request("orders", "g", *messages)
        return s.AckMessageResponse.FromString(await self.call("AckMessage", request, client)[1])


async def messages_in(answers: Any) -> list[Any]:
    """Of all that a receive was answered with."""
    parts = [answers] if isinstance(answers, bytes) else [part async for part in answers]
    deframer = Deframer(b"identity", 1 << 30)
    whole = [m for part in parts for m in (deframer.feed(part) if isinstance(part, Framed) else [part])]
    found = [s.ReceiveMessageResponse.FromString(each) for each in whole]
    assert found[0].HasField("status")
    assert found[-1].HasField("delivery_timestamp")
    return [each.message for each in found if each.HasField("message")]


def answer_of(promise: Promise) -> asyncio.Future[Any]:
    """The promise as a future, with a call's side of it played."""
    future = asyncio.get_running_loop().create_future()
    responder = SimpleNamespace(
        respond_all=future.set_result, wait_for_promise=lambda _: None, on_promise_kept=future.set_result
    )
    promise.attach(responder)  # type: ignore[arg-type]
    return future


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not what():
            await asyncio.sleep(0.001)


def tries(messages: list[Any]) -> list[int]:
    return [each.system_properties.delivery_attempt for each in messages]


@pytest_asyncio.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    loop = asyncio.get_running_loop()
    config = Config(data=tmp_path, pipeline="off", disk_free_bytes_min=0)
    with Broker.open(config) as broker, ThreadPoolExecutor(1) as pool:
        address = ListeningAddress("127.0.0.1", 1)
        components = Components(broker, loop, RunInThread(loop, pool), address, UnreadBytes())
        yield Shop(broker, components)
        components.close()


async def test_who_leaves_while_its_group_is_made(shop: Shop) -> None:
    call, answer = shop.receive(wait_s=20)
    call.end(cancelled=True)
    assert answer.done()
    await shop.send(b"x")
    assert tries(await shop.received("other")) == [1]


async def test_who_leaves_while_it_waits_takes_nothing(shop: Shop) -> None:
    assert await shop.received(wait_s=0) == []
    call, answer = shop.receive(wait_s=20)
    assert not answer.done()
    call.end(cancelled=True)
    assert answer.done()
    await shop.send(b"x")
    assert tries(await shop.received("other")) == [1]


async def test_who_is_served_at_once_and_leaves(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive_queue, "GATHER_S", 0)
    assert await shop.received(wait_s=0) == []
    await shop.send(b"y", b"z")
    call, answer = shop.receive()
    assert answer.done(), "nobody stood in line before"
    assert shop.broker.group_info("orders", "g").leased == 2
    call.end(cancelled=True)
    assert tries(await shop.received("other")) == [2, 2]


@pytest.mark.parametrize("rows", [3, 100])
async def test_who_leaves_before_it_has_taken_the_answer(shop: Shop, rows: int) -> None:
    """In one piece, and in several of which none is in the stream's hands."""
    await shop.send(*[b"x"] * rows)
    call, answer = shop.receive(most=1000)
    found = await asyncio.wait_for(answer, WAIT_S)
    assert isinstance(found, bytes) == (rows == 3)
    call.end(cancelled=True)
    assert tries(await shop.received("other", most=1000)) == [2] * rows


async def test_who_leaves_in_the_middle_of_a_large_answer(shop: Shop) -> None:
    await shop.send(*[b"x"] * 100)
    call, answer = shop.receive(most=1000)
    chunks = await asyncio.wait_for(answer, WAIT_S)
    for _ in range(2):
        await anext(chunks)
    call.end(cancelled=True)
    assert len(await shop.received("other", most=1000)) == 100 - receiving.CHUNK_ROWS, "the first chunk was taken"


async def test_what_was_taken_stays_with_the_client(shop: Shop) -> None:
    await shop.send(b"x")
    assert len(await shop.received()) == 1
    assert await shop.received("other", wait_s=0) == []


async def test_nothing_comes(shop: Shop) -> None:
    for wait_s in (0, 0.05):
        call, answer = shop.receive(wait_s=wait_s)
        assert await messages_in(await asyncio.wait_for(answer, WAIT_S)) == []
        call.end(cancelled=False)
    await shop.send(b"x")
    assert tries(await shop.received()) == [1], "the one that was late holds nothing"


async def test_a_message_that_cannot_be_told_is_logged_and_goes_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await shop.send(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(receiving, "answers_of", lambda *_, **__: 1 / 0)
        _, answer = shop.receive()
        refused = s.ReceiveMessageResponse.FromString(await asyncio.wait_for(answer, WAIT_S))
    assert refused.status.code == Code.INTERNAL_SERVER_ERROR
    assert "ReceiveMessage failed" in caplog.text
    assert tries(await shop.received()) == [2]


@pytest.fixture
def long_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by a test before its shop, which takes the window as it is then."""
    monkeypatch.setattr(settling, "GATHER_S", 2 * WAIT_S)


async def test_acknowledgements_that_nobody_waits_for_are_settled_together(
    long_gathering: None, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.send(*[b"x"] * 6)
    first, second, third, *others = await shop.received(most=3) + await shop.received("simple", push=False, most=3)
    group = shop.broker.find_group("orders", "g")
    settled: list[int] = []
    ack_each = group.ack_each
    monkeypatch.setattr(group, "ack_each", lambda leases, *more: settled.append(len(leases)) or ack_each(leases, *more))
    answers = [asyncio.ensure_future(shop.ack("c", each)) for each in (first, second)]
    for _ in range(10):
        await asyncio.sleep(0)  # a turn of the loop
    assert settled == [], "a push consumer's thread is at the next message already"
    answers.append(asyncio.ensure_future(shop.ack("simple", others[0])))
    await until(lambda: settled != [])
    assert settled == [3], "somebody may wait for one of them"
    answers += [asyncio.ensure_future(shop.ack("c", third)), asyncio.ensure_future(shop.ack("simple", *others[1:]))]
    assert {answer.status.code for answer in await asyncio.gather(*answers)} == {Code.OK}
    assert settled == [3, 3]
    assert shop.broker.group_info("orders", "g").lag == 0


async def test_an_acknowledgement_that_nobody_waits_for_is_settled_after_its_window(shop: Shop) -> None:
    await shop.send(b"x")
    [got] = await shop.received()
    answer = await asyncio.wait_for(shop.ack("c", got), WAIT_S)
    assert answer.status.code == Code.OK
    assert shop.broker.group_info("orders", "g").lag == 0


async def test_an_acknowledgement_that_lets_the_next_one_go_does_not_wait(long_gathering: None, shop: Shop) -> None:
    await shop.send(b"x")
    [got] = await shop.received()
    shop.broker.set_group("orders", "g", inflight_max=1)
    answer = await asyncio.wait_for(shop.ack("c", got), WAIT_S)
    assert answer.status.code == Code.OK
