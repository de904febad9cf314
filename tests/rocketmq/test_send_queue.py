"""The queue of sends, with a broker that answers when the test says so."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tarry.api.local import OnAccepted
from tarry.base.clock import TestClock
from tarry.base.errors import InvalidMessageError, OverloadedError
from tarry.base.event_loop import post
from tarry.batching import coalescing
from tarry.fronts.rocketmq.common.draft import Draft
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.send_queue import ROWS_BESIDE_MIN, SendQueue
from tarry.message.accepted import Accepted


class Broker:
    """Refuses the body "bad" at once, and "full" later."""

    clock = TestClock(1000)

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.answers: list[Callable[[], None]] = []

    def submit_checked(self, batch: pa.RecordBatch, on_result: OnAccepted, **_: bool) -> None:
        bodies = batch.column("body").to_pylist()
        self.sizes.append(len(bodies))
        if b"bad" in bodies:
            raise InvalidMessageError("no good")
        result = Accepted(len(self.sizes) * 1000, np.zeros(len(bodies), np.int64), bytes(8))
        self.answers.append(lambda: on_result(OverloadedError("full") if b"full" in bodies else result))


class Request:
    """Keeps its answers by place: a seq, or a code."""

    def __init__(self) -> None:
        self.answers: dict[int, int] = {}

    def on_accepted(self, place: int, draft: Draft, seq: int, handle: str) -> None:
        assert place not in self.answers
        self.answers[place] = seq

    def on_refused(self, place: int, draft: Draft, refusal: Refusal) -> None:
        assert place not in self.answers
        self.answers[place] = refusal.code


def drafts(*bodies: bytes) -> list[Draft]:
    return [Draft("t", 1000, body, f"{place}", None, [], None, False, None, False) for place, body in enumerate(bodies)]


async def turns(broker: Broker) -> None:
    """Answer all that is sent, until nothing more is."""
    await asyncio.sleep(0)
    while broker.answers:
        broker.answers.pop(0)()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def run(main: Callable[[Broker, SendQueue], Any]) -> Broker:
    async def serve() -> None:
        await main(broker, SendQueue(broker, asyncio.get_running_loop(), None))  # type: ignore[arg-type]

    broker = Broker()
    asyncio.run(serve())
    return broker


def test_requests_of_a_turn_travel_together_and_a_second_batch_wants_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescing, "LATE_S", math.inf)  # beside an answer that is late, more may be on their way

    async def main(broker: Broker, queue: SendQueue) -> None:
        requests = [Request() for _ in range(5)]
        queue.add(drafts(b"1", b"2"), requests[0])
        queue.add(drafts(b"3"), requests[1])
        await asyncio.sleep(0)
        queue.add(drafts(b"4"), requests[2])
        await asyncio.sleep(0)
        assert broker.sizes == [3], "one batch is on its way, and this is too little for another"
        queue.add(drafts(*[b"5"] * ROWS_BESIDE_MIN), requests[3])
        await asyncio.sleep(0)
        queue.add(drafts(*[b"6"] * ROWS_BESIDE_MIN), requests[4])
        await asyncio.sleep(0)
        assert broker.sizes == [3, 1 + ROWS_BESIDE_MIN], "and two are on their way"
        await turns(broker)
        assert broker.sizes[2:] == [ROWS_BESIDE_MIN]
        assert [r.answers for r in requests[:3]] == [{0: 1000, 1: 1001}, {0: 1002}, {0: 2000}]
        assert all(len(r.answers) == ROWS_BESIDE_MIN for r in requests[3:])

    run(main)


def test_a_bad_message_harms_no_other_request() -> None:
    async def main(broker: Broker, queue: SendQueue) -> None:
        requests = [Request() for _ in range(3)]
        for request, body in zip(requests, (b"1", b"bad", b"3"), strict=True):
            queue.add(drafts(body), request)
        await turns(broker)
        assert [list(r.answers) for r in requests] == [[0], [0], [0]]
        assert requests[1].answers[0] == Code.BAD_REQUEST
        assert requests[0].answers[0] != requests[2].answers[0] > 1000

    assert run(main).sizes == [3, 1, 1, 1]


def test_what_is_wrong_with_all_is_every_requests() -> None:
    async def main(broker: Broker, queue: SendQueue) -> None:
        request = Request()
        queue.add(drafts(b"1", b"full"), request)
        await turns(broker)
        assert request.answers == dict.fromkeys((0, 1), Code.TOO_MANY_REQUESTS)

    run(main)


def test_an_answer_after_the_front_has_stopped_is_nobodys() -> None:
    async def main(broker: Broker, queue: SendQueue) -> None:
        queue.add(drafts(b"1"), Request())
        await asyncio.sleep(0)

    broker = run(main)
    [answer] = broker.answers
    answer()
    loop = asyncio.new_event_loop()
    loop.close()
    post(loop, lambda: None)
