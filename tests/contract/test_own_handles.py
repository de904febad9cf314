"""Handles of messages that fronts have gathered: one caller's stands for no other's message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.gateway.raw_link import WAIT_S

from tarry.api.local import AnyBroker
from tarry.api.outcome import Outcome
from tarry.base.errors import InvalidArgumentError
from tarry.broker import Broker
from tarry.errors import TarryError
from tarry.fronts.gateway.front import GatewayFront, socket_of
from tarry.fronts.gateway.remote.broker import RemoteBroker
from tarry.fronts.kit.desk import Desk
from tarry.fronts.registry import ServerConfig
from tarry.fronts.rocketmq.common.draft import Draft
from tarry.fronts.rocketmq.common.half_messages import HalfMessages
from tarry.fronts.rocketmq.common.refusal import Refusal
from tarry.fronts.rocketmq.common.send_queue import SendQueue
from tarry.message import handle as handles
from tarry.message.admission import assembled
from tarry.message.receipt import Receipt
from tarry.message.rows import make_row


def forged(mine: str, theirs: str) -> str:
    """A handle of another message, made of one's own: what its token would cover if it were for the whole batch."""
    own, other = handles.decode(mine), handles.decode(theirs)
    first = min(own.first_seq, other.seq)
    rows = max(own.first_seq + own.rows, other.seq + 1) - first
    return handles.encode(other.seq, other.due_ms, first, rows, own.token)


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    with Broker.open(ServerConfig(data=tmp_path / "data", pipeline="off")) as broker:
        yield broker


async def _by_desk(broker: AnyBroker, options: list[dict[str, Any]]) -> list[Receipt]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        desk = Desk(broker, loop, pool)
        futures = [desk.schedule_row(make_row("t", b"x", delay=60, **each)) for each in options]
        return list(await asyncio.wait_for(asyncio.gather(*futures), WAIT_S))


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "plain": [{} for _ in range(5)],
    "named": [{"key": f"k{number}", "id": f"i{number}"} for number in range(5)],
    "again": [{"key": "same", "on_key": "keep"}, {"key": "same", "on_key": "keep"}, {}, {"id": "i"}, {"id": "i"}],
}


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("place", ["here", "worker"])
def test_a_neighbours_handle_cannot_be_made_of_ones_own(broker: Broker, kind: str, place: str) -> None:
    receipts = _gathered(broker, place, OPTIONS[kind])
    seqs = {each.seq for each in receipts}
    for mine in receipts:
        assert handles.decode(mine.handle).rows == 1
        for theirs in receipts:
            if theirs.seq != mine.seq:
                with pytest.raises(InvalidArgumentError):
                    broker.cancel(forged(mine.handle, theirs.handle))
    assert {broker.cancel(each.handle) for each in receipts} <= {Outcome.DONE, Outcome.CANCELLED}
    assert len(seqs) == {"plain": 5, "named": 5, "again": 3}[kind]
    assert [each.pending for each in broker.pending()] == [0]


def _gathered(broker: Broker, place: str, options: list[dict[str, Any]]) -> list[Receipt]:
    if place == "here":
        return asyncio.run(_by_desk(broker, options))
    gateway = GatewayFront.start(broker, socket_of(broker.config.data))
    remote = RemoteBroker(gateway.address, "w", "rocketmq", "w-1")

    async def run() -> list[Receipt]:
        await remote.connect(lambda: None)
        return await _by_desk(remote, options)

    try:
        return asyncio.run(run())
    finally:
        remote.close()
        gateway.stop()


@pytest.mark.parametrize("own", [True, False])
def test_checked_rows_of_several_callers(broker: Broker, own: bool) -> None:
    now_ms = broker.clock.now_ms()
    rows = {
        "topic": pa.array(["t", "t"]),
        "due_ms": pa.array([now_ms + 60_000] * 2, pa.int64()),
        "body": pa.array([b"", b""], pa.binary()),
    }
    found: list[Any] = []
    done: Callable[[Any], None] = found.append
    broker.submit_checked(assembled(rows, now_ms), done, own_handles=own)
    while not found:
        broker.ping()
    assert not isinstance(found[0], TarryError)
    mine, theirs = found[0].handles()
    assert found[0].seqs.tolist() == [handles.decode(each).seq for each in (mine, theirs)]
    if own:
        with pytest.raises(InvalidArgumentError):
            broker.cancel(forged(mine, theirs))
    else:
        assert broker.cancel(forged(mine, theirs)) is Outcome.DONE


class Sent:
    """A request of a RocketMQ client, which waits for its recall handle."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.handle: asyncio.Future[str] = loop.create_future()

    def on_accepted(self, place: int, draft: Draft, seq: int, handle: str) -> None:
        self.handle.set_result(handle)

    def on_refused(self, place: int, draft: Draft, refusal: Refusal) -> None:
        self.handle.set_exception(refusal)


@pytest.mark.parametrize("is_half", [False, True])
def test_recall_handles_of_two_clients(broker: Broker, is_half: bool) -> None:
    due_ms = broker.clock.now_ms() + 60_000

    async def run() -> list[str]:
        loop = asyncio.get_running_loop()
        queue, requests = SendQueue(broker, loop, HalfMessages(broker)), [Sent(loop), Sent(loop)]
        for number, request in enumerate(requests):
            queue.add([Draft("t", due_ms, b"x", f"i{number}", None, [], None, is_half, None, True)], request)
        return list(await asyncio.wait_for(asyncio.gather(*(each.handle for each in requests)), WAIT_S))

    mine, theirs = asyncio.run(run())
    assert handles.decode(theirs).seq == handles.decode(mine).seq + 1
    with pytest.raises(InvalidArgumentError):
        broker.cancel(forged(mine, theirs))
    if is_half:  # its front alone decides what becomes of it
        with pytest.raises(InvalidArgumentError, match="Tarry's own"):
            broker.cancel(theirs)
    else:
        assert broker.cancel(theirs) is Outcome.DONE
