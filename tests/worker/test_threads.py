"""Handlers that are plain functions beside a broker: alone, and within a middleware, which runs in the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import tarry
from tarry.base.errors import InvalidArgumentError
from tarry.client import Client
from tarry.worker.handler import Handler
from tarry.worker.outcomes import Ending
from tests.contract.conftest import Served
from tests.waiting import wait_until, wait_until_async
from tests.worker.conftest import running

pytestmark = pytest.mark.asyncio

Make = Callable[..., tarry.Worker]


@pytest.fixture(params=["alone", "within"])
def make(request: pytest.FixtureRequest, served: Served) -> Make:
    """Make a worker of the broker's, with a middleware or without."""

    def made(**options: Any) -> tarry.Worker:
        worker = tarry.Worker(served.address, **options)
        if request.param == "within":

            @worker.middleware
            async def around(message: tarry.Delivery, call_next: Any) -> Any:
                return await call_next(message)

        return worker

    return made


def ended(worker: tarry.Worker) -> dict[Ending, int]:
    """Endings of the worker's one handler, and their numbers."""
    return {ending: count for each in worker.figures() for ending, count in each.ended.items() if count}


async def test_as_many_threads_as_may_work(make: Make, client: Client) -> None:
    worker, together = make(), threading.Barrier(3)
    names, lock, most = set(), threading.Lock(), [0, 0]

    @worker.on("orders", group="billing", concurrency=3)
    def bill(message: tarry.Delivery) -> None:
        with lock:
            most[0] += 1
            most[1] = max(most)
            names.add(threading.current_thread().name)
        together.wait(60)  # nobody gets through alone
        with lock:
            most[0] -= 1

    for _ in range(12):
        client.schedule("orders", b"x")
    async with running(worker):
        await wait_until_async(lambda: ended(worker) == {Ending.HANDLED: 12})
    assert (most[1], len(names), client.group_info("orders", "billing").lag) == (3, 3, 0)


async def test_one_that_takes_long_holds_nothing_back(make: Make, client: Client) -> None:
    """Not even what came in one batch with its message."""
    worker, let_go = make(), threading.Event()

    @worker.on("orders", group="billing", concurrency=2)
    def bill(number: int) -> None:
        if number == 0:
            let_go.wait(60)

    client.schedule_many([{"topic": "orders", "body": b"%d" % number} for number in range(100)])
    async with running(worker):
        await wait_until_async(lambda: ended(worker) == {Ending.HANDLED: 99})
        assert worker.figures()[0].in_work == 1
        let_go.set()
        await wait_until_async(lambda: ended(worker) == {Ending.HANDLED: 100})
        assert worker.figures()[0].in_work == 0


async def test_what_is_late_is_told_and_keeps_its_thread(make: Make, client: Client) -> None:
    worker, let_go = make(), threading.Event()
    seen: list[Any] = []

    @worker.on("orders", group="billing", timeout=0.05, concurrency=1)
    def bill(message: tarry.Delivery) -> None:
        seen.append(message.attempt)
        if message.attempt == 1:
            wait_until(lambda: message.lost)
            let_go.wait(60)
            seen.append("over")

    client.schedule("orders", b"x")
    async with running(worker):
        await wait_until_async(lambda: ended(worker) == {Ending.RETRIED: 1})
        assert seen == [1]  # the next try has no thread
        let_go.set()
        await wait_until_async(lambda: ended(worker) == {Ending.RETRIED: 1, Ending.HANDLED: 1})
    assert seen == [1, "over", 2]


@pytest.mark.parametrize("raises", [False, True])
async def test_only_the_late_one_has_failed(make: Make, client: Client, raises: bool) -> None:
    """What it returns or raises after that counts for nothing, and others have their time."""
    worker, let_go = make(), threading.Event()
    client.set_group("orders", "billing", tries=1)

    @worker.on("orders", group="billing", timeout=0.2, concurrency=2)
    def bill(number: int) -> None:
        if number == 0:
            let_go.wait(60)
            if raises:
                raise ValueError("too late")

    client.schedule_many([{"topic": "orders", "body": b"%d" % number} for number in range(50)])
    async with running(worker):
        await wait_until_async(lambda: ended(worker) == {Ending.RETRIED: 1, Ending.HANDLED: 49})
        let_go.set()
        client.schedule("orders", b"50")
        await wait_until_async(lambda: ended(worker) == {Ending.RETRIED: 1, Ending.HANDLED: 50})
    [dead] = client.dead_letters("orders", "billing").to_pylist()
    assert dict(dead["properties"])["tarry.dead.reason"] == "TimeoutError: not handled within 0.2 s"


@pytest.mark.parametrize("is_late_first", [True, False])
async def test_a_stop_does_not_wait_for_what_has_failed_by_its_time_out(
    make: Make, client: Client, is_late_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    worker, begun, let_go = make(drain_s=600), threading.Event(), threading.Event()

    @worker.on("orders", group="billing", timeout=0.05 if is_late_first else 0.5)
    def bill(message: tarry.Delivery) -> None:
        begun.set()
        let_go.wait(60)

    client.set_group("orders", "billing", tries=1)
    client.schedule("orders", b"x")
    async with running(worker):
        await wait_until_async(begun.is_set)
        if is_late_first:
            await wait_until_async(lambda: ended(worker) == {Ending.RETRIED: 1})
    assert not let_go.is_set() and "still handled" not in caplog.text
    let_go.set()
    assert client.dead_letters("orders", "billing").num_rows == 1


async def test_an_exception_without_a_text_is_a_failure_as_others(make: Make, client: Client) -> None:
    worker = make()

    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @worker.on("orders", group="billing")
    def bill(message: tarry.Delivery) -> None:
        raise UnprintableError

    client.set_group("orders", "billing", tries=1)
    client.schedule("orders", b"x")
    async with running(worker):
        await wait_until_async(lambda: ended(worker) == {Ending.RETRIED: 1})
    [dead] = client.dead_letters("orders", "billing").to_pylist()
    assert dict(dead["properties"])["tarry.dead.reason"] == "UnprintableError: its text cannot be made (RuntimeError)"


@pytest.mark.parametrize("says", ["ack", "nack"])
async def test_what_raises_after_it_is_settled_is_told_as_that(
    make: Make, client: Client, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make()

    @worker.on("orders", group="billing")
    def bill(message: tarry.Delivery) -> None:
        assert not message.settled
        message.ack() if says == "ack" else message.nack("1h", reason="later")
        assert message.settled
        raise ValueError("behind it")

    client.schedule("orders", b"x")
    async with running(worker):
        await wait_until_async(lambda: ended(worker) == {Ending.HANDLED: 1})
    assert "attempt 1, was settled by its handler, which then failed: ValueError: behind it" in caplog.text
    info = client.group_info("orders", "billing")
    assert (info.waiting, info.dead) == (0 if says == "ack" else 1, 0)


async def test_an_exit_in_what_a_function_returns_is_about_its_message(make: Make, client: Client) -> None:
    worker = make()

    async def leave(number: int) -> None:
        if number == 0:
            sys.exit(3)

    @worker.on("orders", group="billing")
    def bill(number: int) -> Awaitable[None]:
        return leave(number)

    client.set_group("orders", "billing", tries=1)
    for number in range(2):
        client.schedule("orders", str(number))
    async with running(worker):
        await wait_until_async(lambda: ended(worker) == {Ending.RETRIED: 1, Ending.HANDLED: 1})
    [dead] = client.dead_letters("orders", "billing").to_pylist()
    assert dict(dead["properties"])["tarry.dead.reason"] == "SystemExit: 3"


async def test_a_reason_that_is_no_text_is_refused_where_it_is_said(make: Make, client: Client) -> None:
    worker, seen = make(), list[str]()

    @worker.on("orders", group="billing")
    def bill(message: tarry.Delivery) -> None:
        for settle in (message.nack, message.reject):
            with pytest.raises(InvalidArgumentError) as refused:
                settle(reason=ValueError("no"))  # type: ignore[operator]
            seen.append(str(refused.value))

    client.schedule("orders", b"x")
    async with running(worker):
        await wait_until_async(lambda: ended(worker) == {Ending.HANDLED: 1})
    assert seen == ["reason is ValueError('no'); allowed: a text"] * 2


async def test_a_stop_gives_back_what_no_thread_has_begun(make: Make, client: Client) -> None:
    """As the same try, and so does what is not done in time. What is done in time is done."""
    worker, begun, let_go, never = make(drain_s=0.5), [], threading.Event(), threading.Event()

    @worker.on("orders", group="billing", concurrency=2)
    def bill(number: int) -> None:
        begun.append(number)
        (let_go if number == 0 else never).wait(60)

    for number in range(6):
        client.schedule("orders", str(number))
    task = asyncio.create_task(worker.serve())
    await wait_until_async(lambda: len(begun) == 2)
    worker.stop()
    asyncio.get_running_loop().call_soon(let_go.set)  # after the stop has begun
    await task
    left = client.receive("orders", group="billing", max_messages=10)
    never.set()
    assert sorted(begun) == [0, 1]
    assert sorted((m.body, m.attempt) for m in left) == [(b"%d" % n, 1) for n in range(1, 6)]


async def test_what_is_lost_comes_again_and_its_end_does_not_count(
    make: Make, served: Served, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    worker, let_go = make(), threading.Event()
    seen: list[Any] = []

    @worker.on("orders", group="billing", concurrency=2)
    def bill(message: tarry.Delivery) -> None:
        seen.append(message.attempt)
        if len(seen) == 1:
            let_go.wait(60)
            seen.append(message.lost)

    client.schedule("orders", b"x")
    with caplog.at_level(logging.WARNING, "tarry.worker"):
        async with running(worker):
            await wait_until_async(lambda: seen == [1])
            served.stop()
            served.start()
            await wait_until_async(lambda: "was lost while it was handled" in caplog.text)
            let_go.set()
            await wait_until_async(lambda: ended(worker) == {Ending.LOST: 1, Ending.HANDLED: 1})
    assert True in seen


async def test_each_message_has_the_context_of_the_lifespans(make: Make, client: Client) -> None:
    worker = make()
    seen: list[str] = []
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")

    @worker.lifespan
    async def one_tenant() -> Any:
        tenant.set("ours")
        yield

    @worker.on("orders", group="billing", concurrency=1)
    def bill(message: tarry.Delivery) -> None:
        seen.append(tenant.get())
        tenant.set("of the message before")

    for _ in range(3):
        client.schedule("orders", b"x")
    async with running(worker):
        await wait_until_async(lambda: len(seen) == 3)
    assert seen == ["ours"] * 3


async def test_what_it_returns_to_be_awaited_is_awaited_in_the_loop(make: Make, client: Client) -> None:
    """And cancelled where it takes too long."""
    worker, loop = make(), asyncio.get_running_loop()
    seen: list[Any] = []

    async def work(number: int) -> None:
        try:
            await asyncio.sleep(3600 if number == 0 else 0)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        seen.append(asyncio.get_running_loop() is loop)

    @worker.on("orders", group="billing", timeout=0.1, concurrency=1, retry={TimeoutError: tarry.Reject})
    def bill(number: int) -> Awaitable[None]:
        return work(number)

    for number in range(2):
        client.schedule("orders", str(number))
    async with running(worker):
        await wait_until_async(lambda: ended(worker) == {Ending.REJECTED: 1, Ending.HANDLED: 1})
    assert sorted(map(str, seen)) == ["True", "cancelled"]


async def test_a_thread_that_dies_ends_the_worker_and_loses_nothing(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others are at is done first; what it had comes again."""
    worker, begun, let_go = tarry.Worker(served.address), threading.Barrier(2), threading.Event()

    def fail(handler: Handler, message: tarry.Delivery, error: BaseException) -> Ending:
        let_go.set()
        raise MemoryError("of the thread")

    monkeypatch.setattr(Handler, "fail", fail)

    @worker.on("orders", group="billing", concurrency=2)
    def bill(number: int) -> None:
        begun.wait(60)
        if number == 0:
            raise ValueError("no")
        let_go.wait(60)

    for number in range(2):
        client.schedule("orders", str(number))
    with pytest.raises(MemoryError, match="of the thread"):
        await worker.serve()
    [left] = client.receive("orders", group="billing", max_messages=10, wait=30)
    assert (left.body, left.attempt) == (b"0", 2)
