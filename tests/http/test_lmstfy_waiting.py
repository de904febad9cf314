"""Requests that wait for a queue's jobs wait as one, and what comes is shared out among them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from loopgrpc import UnreadBytes
from tarry.base.errors import ClosedError, TarryError
from tarry.fronts.http.exchange import HttpRequest
from tarry.fronts.http.lmstfy.jobs import LmstfyJob
from tarry.fronts.http.lmstfy.waiting import ROWS_MAX, JobReceive, Waiting
from tarry.fronts.kit.receiving import ReceiveQueue, Waiter
from tests.http.lmstfy_place import serving

LONG_S = 3600.0


class FakeQueue:
    """Keeps who waits; a test serves them."""

    def __init__(self) -> None:
        self.waiting: list[Waiter] = []
        self.group = SimpleNamespace(subscribe=lambda **kwargs: SimpleNamespace(**kwargs), may_send=True)

    def add(self, waiter: Waiter) -> None:
        self.waiting.append(waiter)

    def remove(self, waiter: Waiter) -> None:
        if waiter in self.waiting:
            self.waiting.remove(waiter)

    def serve(self, received: Any) -> None:
        self.waiting.pop(0).on_result(received)


class FakeRequest:
    def __init__(self, host: str) -> None:
        self.host = host

    def on_disconnect(self, call: Callable[[], None]) -> None:
        self.leave = call


def batch(*jobs: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"job": pa.array(jobs, pa.int64())})


class Hall:
    """Requests of which each one's jobs are noted when it is answered."""

    def __init__(self) -> None:
        self.queue = FakeQueue()
        self.answers: dict[str, list[Any] | TarryError] = {}
        self.unread = UnreadBytes(100)
        self._waiting = Waiting(
            asyncio.get_running_loop(),
            lambda _, rows: cast(list[LmstfyJob], rows.column("job").to_pylist()),
            self.unread,
        )

    def add(
        self,
        name: str,
        count: int = 1,
        *,
        lease_ms: int = 1000,
        wait_s: float = LONG_S,
        host: str = "127.0.0.1",
        account: Any = None,
    ) -> FakeRequest:
        request = FakeRequest(host)
        receive = JobReceive(cast(ReceiveQueue, self.queue), ("ns", "q"), count, lease_ms, 0)

        def answer(jobs: list[LmstfyJob] | TarryError) -> None:
            assert name not in self.answers
            self.answers[name] = jobs

        self._waiting.add(cast(HttpRequest, request), receive, account, wait_s, answer)
        return request

    @property
    def wanted(self) -> list[int]:
        return [waiter.rows_max for waiter in self.queue.waiting]


def on_loop(test: Callable[[Hall], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        await test(Hall())

    def called() -> None:
        asyncio.run(run())

    called.__name__ = cast(Any, test).__name__
    return called


@on_loop
async def test_first_come_first_served(hall: Hall) -> None:
    hall.add("a")
    hall.add("b", 3)
    hall.add("c")
    assert hall.wanted == [5], "they wait as one"
    hall.queue.serve(batch(1, 2, 3))
    assert hall.answers == {"a": [1], "b": [2, 3]}, "who has some waits no more"
    assert hall.wanted == [], "not in the midst of serving"
    await asyncio.sleep(0)
    assert hall.wanted == [1]
    hall.queue.serve(batch(4))
    assert hall.answers["c"] == [4]
    await asyncio.sleep(0)
    assert hall.wanted == []


@on_loop
async def test_who_has_not_read_enough_waits_and_those_behind_are_served(hall: Hall) -> None:
    hall.add("a", 3)
    hall.add("b", 2, host="b")
    [waiter] = hall.queue.waiting
    assert waiter.room is not None
    assert waiter.room.is_free
    assert waiter.rows_max == 5
    hall.unread.add("127.0.0.1", 50)
    assert waiter.room.is_free
    assert waiter.rows_max == 2
    hall.unread.add("127.0.0.1", 10)  # which is too late: what there was room for has been asked for
    hall.queue.serve(batch(1, 2))
    assert hall.answers == {"b": [1, 2]}
    await asyncio.sleep(0)
    [waiter] = hall.queue.waiting
    assert waiter.room is not None
    assert not waiter.room.is_free
    hall.unread.add("127.0.0.1", -60)
    assert waiter.room.is_free
    assert waiter.rows_max == 3
    hall.queue.serve(batch(3))
    assert hall.answers["a"] == [3]


@on_loop
async def test_leases_of_other_lengths_wait_beside(hall: Hall) -> None:
    hall.add("a", lease_ms=1000)
    hall.add("b", lease_ms=2000)
    assert [(w.rows_max, cast(Any, w.subscription).lease_ms) for w in hall.queue.waiting] == [(1, 1000), (1, 2000)]


@on_loop
async def test_requests_of_other_identities_wait_beside(hall: Hall) -> None:
    """Each is held against its own quotas."""
    for name, account in (("a", "billing"), ("b", "other"), ("c", "billing"), ("d", None)):
        hall.add(name, account=account)
    found = [(w.rows_max, cast(Any, w.subscription).account) for w in hall.queue.waiting]
    assert found == [(2, "billing"), (1, "other"), (1, None)]


@on_loop
async def test_who_leaves_gets_nothing(hall: Hall) -> None:
    first, second = hall.add("a", 2), hall.add("b")
    first.leave()
    assert hall.wanted == [1]
    hall.queue.serve(batch(1))
    first.leave()
    assert hall.answers == {"a": [], "b": [1]}
    await asyncio.sleep(0)
    second.leave()
    last = hall.add("c")
    last.leave()
    assert hall.wanted == [] and hall.answers == {"a": [], "b": [1], "c": []}


@on_loop
async def test_who_has_waited_long_enough_is_told_that_there_is_nothing(hall: Hall) -> None:
    hall.add("a", wait_s=0.001)
    hall.add("b")
    while "a" not in hall.answers:
        await asyncio.sleep(0.001)
    assert hall.answers == {"a": []}
    assert hall.wanted == [1]


@on_loop
async def test_who_comes_while_others_are_served_waits_with_the_rest(hall: Hall) -> None:
    hall.add("a")
    hall.add("b")
    hall.queue.serve(batch(1))
    hall.add("c")
    await asyncio.sleep(0)
    assert hall.wanted == [2]
    hall.queue.serve(batch(2, 3))
    assert hall.answers == {"a": [1], "b": [2], "c": [3]}


@on_loop
async def test_an_error_and_the_end_are_everybodys(hall: Hall) -> None:
    hall.add("a")
    hall.add("b")
    error = ClosedError("the group was deleted")
    hall.queue.serve(error)
    assert hall.answers == {"a": error, "b": error}
    hall.add("c")
    await asyncio.sleep(0)
    hall.queue.serve(None)
    assert hall.answers["c"] == []


@on_loop
async def test_only_so_much_is_taken_at_once(hall: Hall) -> None:
    for number in range(ROWS_MAX // 100 + 1):
        hall.add(str(number), 100)
    assert hall.wanted == [ROWS_MAX]


@pytest.mark.rest
def test_many_who_wait_get_one_each(tmp_path: Path) -> None:
    with serving(tmp_path) as place, ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(place.consume, "ns/shared?timeout=30&ttr=60") for _ in range(16)]
        ids = [place.publish("ns/shared") for _ in range(16)]
        got = [future.result()["job_id"] for future in waiting]
        assert sorted(got) == sorted(ids)
