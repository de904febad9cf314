"""A worker beside a broker: what becomes of messages, how many at a time, and how it stops."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import tarry
from tarry.client import Client
from tarry.worker.outcomes import Ending
from tests.contract.conftest import Served
from tests.waiting import wait_until_async
from tests.worker.conftest import running

pytestmark = pytest.mark.asyncio


def reasons(client: Client, topic: str = "orders") -> list[str]:
    dead = client.dead_letters(topic, "billing").to_pylist()
    return [dict(each["properties"])["tarry.dead.reason"] for each in dead]


def lag(client: Client, topic: str = "orders") -> int:
    return client.group_info(topic, "billing").lag


async def test_what_returns_is_done_and_what_raises_comes_again(served: Served, client: Client) -> None:
    worker, seen = tarry.Worker(served.address), []

    @worker.on("orders", group="billing", retry={KeyError: tarry.Reject})
    async def bill(order: dict[str, Any], message: tarry.Delivery) -> None:
        seen.append((order["n"], message.attempt))
        if order["n"] == 2 and message.attempt < 3:
            raise ValueError("not yet")
        if order["n"] == 3:
            raise KeyError("price")
        if order["n"] == 4:
            raise tarry.Reject("cancelled")
        if order["n"] == 5 and message.attempt == 1:
            raise tarry.Retry("no stock", after=0)

    for number in range(1, 6):
        client.schedule("orders", f'{{"n": {number}}}')
    client.schedule("orders", b"no JSON")
    async with running(worker):
        await wait_until_async(lambda: len(seen) == 8 and lag(client) == 0)
        [figures] = worker.figures()
        assert figures.is_served
    assert sorted(seen) == [(1, 1), (2, 1), (2, 2), (2, 3), (3, 1), (4, 1), (5, 1), (5, 2)]
    assert {ending: count for ending, count in figures.ended.items() if count} == {
        Ending.HANDLED: 3,
        Ending.RETRIED: 3,
        Ending.REJECTED: 3,
    }
    found = sorted(reasons(client))
    assert found[:2] == ["KeyError: 'price'", "cancelled"]
    assert found[2].startswith("the body is no dict[str, Any]: Invalid JSON") or found[2].startswith("the body is no")


async def _cancelled_elsewhere() -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


@pytest.mark.parametrize(
    ("end", "reason"),
    [(lambda: sys.exit(3), "SystemExit: 3"), (_cancelled_elsewhere, "CancelledError")],
    ids=["sys.exit", "cancelled"],
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_what_ends_a_task_elsewhere_is_a_failure_of_its_message_alone(
    served: Served, client: Client, end: Callable[[], Any], reason: str, in_thread: bool
) -> None:
    """The process goes on, and so does what it has of others."""
    worker, seen = tarry.Worker(served.address), []
    client.set_group("orders", "billing", tries=1)

    async def bill(body: str) -> None:
        seen.append(body)
        if body == "ends" and (awaitable := end()) is not None:
            await awaitable

    def bill_in_thread(body: str) -> Any:
        return bill(body) if end is _cancelled_elsewhere else (seen.append(body), body == "ends" and end())

    worker.on("orders", group="billing", concurrency=1)(bill_in_thread if in_thread else bill)
    client.schedule("orders", b"ends")
    async with running(worker):
        await wait_until_async(lambda: reasons(client) == [reason])
        client.schedule("orders", b"next")
        await wait_until_async(lambda: seen == ["ends", "next"] and lag(client) == 0)
        assert worker.figures()[0].ended[Ending.HANDLED] == 1


async def test_tasks_of_one_handler_work_at_the_same_time_when_each_takes_long(served: Served, client: Client) -> None:
    """Unsettled messages count in the consumer's window, which must not be what one of them works through."""
    worker, at_work, let_go = tarry.Worker(served.address), 0, asyncio.Event()

    @worker.on("orders", group="billing", concurrency=6)
    async def bill(message: tarry.Delivery) -> None:
        nonlocal at_work
        at_work += 1
        await let_go.wait()

    for _ in range(10):
        client.schedule("orders", b"x")
    async with running(worker):
        await wait_until_async(lambda: at_work == 6)
        assert worker.figures()[0].in_work == 6
        let_go.set()
        await wait_until_async(lambda: at_work == 10)


async def test_order_keys_are_kept(served: Served, client: Client) -> None:
    worker, seen = tarry.Worker(served.address), []
    client.set_group("orders", "billing", ordered=True)

    @worker.on("orders", group="billing", concurrency=8)
    async def bill(number: int, message: tarry.Delivery) -> None:
        await asyncio.sleep(0)
        if number % 3 == 0 and message.attempt == 1:
            raise ValueError("those behind it wait")
        seen.append((message.order_key, number))

    for number in range(30):
        client.schedule("orders", str(number), order_key=f"k{number % 4}")
    async with running(worker):
        await wait_until_async(lambda: len(seen) == 30)
    for key in range(4):
        assert [n for k, n in seen if k == f"k{key}"] == list(range(key, 30, 4))


async def test_what_takes_too_long_is_tried_again(served: Served, client: Client) -> None:
    worker, cancelled = tarry.Worker(served.address), []

    @worker.on("orders", group="billing", timeout=0.05, retry={TimeoutError: tarry.Reject})
    async def bill(message: tarry.Delivery) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(message.attempt)
            raise

    client.schedule("orders", b"x")
    async with running(worker):
        await wait_until_async(lambda: reasons(client))
    assert (cancelled, reasons(client)) == ([1], ["TimeoutError: not handled within 0.05 s"])


async def test_a_message_that_is_lost_is_cancelled_and_comes_again(served: Served, client: Client) -> None:
    worker, seen = tarry.Worker(served.address), []

    @worker.on("orders", group="billing")
    async def bill(message: tarry.Delivery) -> None:
        seen.append(message.attempt)
        if len(seen) == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append(message.lost)
                raise

    client.schedule("orders", b"x")
    async with running(worker):
        await wait_until_async(lambda: seen == [1])
        served.stop()
        served.start()
        await wait_until_async(lambda: len(seen) == 3)
        assert worker.figures()[0].ended[Ending.LOST] == 1
        await wait_until_async(lambda: worker.figures()[0].ended[Ending.HANDLED])
    assert seen[:2] == [1, True]


async def test_a_stop_waits_for_what_is_handled_and_no_longer(served: Served, client: Client) -> None:
    """Short work is done, long work goes to others as the same try, and what nobody has begun does, too."""
    worker, begun, let_go = tarry.Worker(served.address, drain_s=0.5), [], asyncio.Event()

    @worker.on("orders", group="billing", concurrency=2)
    async def bill(number: int) -> None:
        begun.append(number)
        await (let_go if number == 0 else asyncio.Event()).wait()

    for number in range(6):
        client.schedule("orders", str(number))
    task = asyncio.create_task(worker.serve())
    await wait_until_async(lambda: len(begun) == 2)
    worker.stop()
    let_go.set()
    await task
    assert begun == [0, 1]
    left = client.receive("orders", group="billing", max_messages=10)
    assert sorted((m.body, m.attempt) for m in left) == [(b"%d" % n, 1) for n in range(1, 6)]


async def test_a_stop_does_not_wait_for_a_thread_that_hangs(served: Served, client: Client) -> None:
    worker, begun, let_go = tarry.Worker(served.address, drain_s=0.01), threading.Event(), threading.Event()

    @worker.on("orders", group="billing")
    def bill(message: tarry.Delivery) -> None:
        begun.set()
        let_go.wait(60)

    client.schedule("orders", b"x")
    task = asyncio.create_task(worker.serve())
    await wait_until_async(begun.is_set)
    worker.stop()
    await task
    [left] = client.receive("orders", group="billing", wait=30)
    let_go.set()
    assert left.attempt == 1


async def test_lifespans_are_around_all_and_middleware_around_each(served: Served, client: Client) -> None:
    worker, seen = tarry.Worker(served.address), []

    @worker.lifespan
    async def database() -> Any:
        worker.state.database = "open"
        await worker.client.schedule("orders", b"first")
        yield
        seen.append("closed")

    @worker.lifespan
    def cache() -> Any:
        seen.append(("cache", worker.state.database))
        yield
        seen.append("cache is gone")

    @worker.middleware
    async def outer(message: tarry.Delivery, call_next: Any) -> Any:
        seen.append("in")
        try:
            return await call_next(message)
        finally:
            seen.append("out")

    @worker.middleware
    async def inner(message: tarry.Delivery, call_next: Any) -> Any:
        return [await call_next(message)]

    @worker.on("orders", group="billing")
    async def bill(message: tarry.Delivery) -> None:
        seen.append(("async", worker.state.database))
        await worker.client.schedule("mail", b"bill")

    @worker.on("mail", group="billing")
    def mail(message: tarry.Delivery) -> None:
        seen.append(("sync", worker.sync_client.has_topic("orders")))

    async with running(worker):
        await wait_until_async(lambda: sum(each == "out" for each in seen) == 2)
    # The mail is due while the bill waits for the answer.
    assert (seen[:3], seen[-2:]) == ([("cache", "open"), "in", ("async", "open")], ["cache is gone", "closed"])
    assert seen.index(("sync", True)) > seen.index("in", 2)
    with pytest.raises(tarry.TarryError, match="does not run"):
        _ = worker.client


async def test_a_lifespan_that_fails_ends_the_worker(served: Served) -> None:
    worker = tarry.Worker(served.address)
    worker.on("orders", group="billing")(lambda message: None)

    @worker.lifespan
    def database() -> Any:
        raise OSError("no database")
        yield

    with pytest.raises(OSError, match="no database"):
        await worker.serve()


async def test_what_trying_again_does_not_help_ends_the_worker(served: Served, client: Client) -> None:
    worker = tarry.Worker(served.address)
    worker.on("no such topic!", group="tarry.x")(lambda message: None)
    with pytest.raises(tarry.TarryError, match="not a topic name"):
        await worker.serve()
