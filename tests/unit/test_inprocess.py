"""The in-process broker for asyncio: many tasks' messages in few batches, and each task gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tarry
from tarry.api.operations.messages import Cancel
from tarry.api.outcome import Outcome
from tarry.base.errors import (
    ClosedError,
    ForgedHandleError,
    InvalidArgumentError,
    InvalidMessageError,
    KeyExistsError,
    OverloadedError,
    TarryError,
)
from tarry.broker.embedded import AsyncBroker
from tarry.message.accepted import PLACED, Accepted
from tarry.message.receipt import OUTCOMES, Receipt


class Judge:
    """A broker that refuses the body "bad" at once, "late" from another thread, and places the others."""

    def __init__(self, refusal: type[InvalidMessageError] = KeyExistsError) -> None:
        self.sizes: list[int] = []
        self.seq = 0
        self.refusal = refusal

    def submit(self, data: pa.RecordBatch, done: Callable[[Any], None], **_: bool) -> None:
        bodies = data.column("body").to_pylist()
        self.sizes.append(len(bodies))
        if b"full" in bodies:
            raise OverloadedError("full")
        if b"bad" in bodies:
            raise self.refusal("no good", row=bodies.index(b"bad"))
        if b"late" in bodies:
            done(self.refusal("no good", row=bodies.index(b"late")))
            return
        first, self.seq = self.seq, self.seq + len(bodies)
        due = np.arange(first, self.seq)
        placed = np.zeros(len(bodies), PLACED)
        placed["seq"], placed["due_ms"], placed["first_seq"], placed["rows"] = due, due, first, len(bodies)
        placed["outcome"] = [OUTCOMES.index("replaced") if body == b"again" else 0 for body in bodies]
        done(Accepted(first, due, bytes(8), placed if b"again" in bodies else None))


def answers_of(judge: Judge, bodies: list[bytes]) -> list[Any]:
    async def main() -> list[Any]:
        broker = AsyncBroker(judge)  # type: ignore[arg-type]
        return await asyncio.gather(*(broker.schedule("t", body) for body in bodies), return_exceptions=True)

    return asyncio.run(main())


@pytest.mark.parametrize("word", [b"bad", b"late"])
@pytest.mark.parametrize("count", [1, 2, 100])
def test_a_refused_row_harms_only_its_own_task(word: bytes, count: int) -> None:
    judge = Judge()
    bodies = [word if i % 10 == 3 and i < count * 10 else b"%d" % i for i in range(1000)]
    answers = answers_of(judge, bodies)
    for body, answer in zip(bodies, answers, strict=True):
        if body == word:
            assert type(answer) is KeyExistsError
            assert (str(answer), answer.row) == ("no good", None)
        else:
            assert (answer.seq, answer.outcome) == (answer.due_ms, "scheduled")
    assert sorted(a.seq for a in answers if not isinstance(a, TarryError)) == list(range(1000 - count))
    assert judge.sizes[:2] == [1000, 999]  # the others go again together; after a second refusal, each on its own
    # And each refused one alone: an entry before it may have had its key, and was refused with it.
    assert len(judge.sizes) == (3 if count == 1 else 2 + 998 + 2)


def test_a_refused_message_alone(tmp_path: Path) -> None:
    [answer] = answers_of(Judge(), [b"bad"])
    assert type(answer) is KeyExistsError


def test_a_task_that_leaves_while_its_batch_is_under_way_harms_nobody() -> None:
    class Slow(Judge):
        """Answers when it is told to."""

        def __init__(self) -> None:
            super().__init__()
            self.answers: list[Callable[[], None]] = []

        def submit(self, data: pa.RecordBatch, done: Callable[[Any], None], **_: bool) -> None:
            self.answers.append(lambda: Judge.submit(self, data, done))

    async def main() -> None:
        judge = Slow()
        broker = AsyncBroker(judge)  # type: ignore[arg-type]
        tasks = [asyncio.ensure_future(broker.schedule("t", body)) for body in (b"a", b"b", b"late", b"c", b"d")]
        await asyncio.sleep(0)  # the tasks begin
        tasks[0].cancel()  # before it is sent
        await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[2].cancel()
        while judge.answers:
            judge.answers.pop()()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [*[asyncio.CancelledError] * 3, Receipt, Receipt]

    asyncio.run(main())


def test_what_cannot_become_columns_leaves_nobody_waiting() -> None:
    class Broken(Judge):
        def submit(self, data: pa.RecordBatch, done: Callable[[Any], None], **_: bool) -> None:
            raise ZeroDivisionError("a fault of ours")

    async def main() -> list[Any]:
        broker = AsyncBroker(Broken())  # type: ignore[arg-type]
        return await asyncio.gather(*(broker.schedule("t", b"") for _ in range(5000)), return_exceptions=True)

    assert {type(answer) for answer in asyncio.run(main())} == {TarryError}


def test_what_is_wrong_with_all_is_everybody_s() -> None:
    answers = answers_of(Judge(), [b"a", b"full", b"b"])
    assert [type(a) for a in answers] == [OverloadedError] * 3


def test_outcomes_come_by_row() -> None:
    answers = answers_of(Judge(), [b"a", b"again", b"b"])
    assert [(a.seq, a.outcome) for a in answers] == [(0, "scheduled"), (1, "replaced"), (2, "scheduled")]


def test_tasks_that_cancel_share_calls(tmp_path: Path) -> None:
    async def main() -> None:
        with tarry.open(tmp_path, disk_free_bytes_min=0) as broker:
            calls: list[int] = []
            call = broker.call

            def counted(operation: Any) -> Any:
                if isinstance(operation, Cancel):
                    calls.append(len(operation.handles))
                return call(operation)

            broker.call = counted  # type: ignore[method-assign]
            tasks = AsyncBroker(broker)
            receipts = await asyncio.gather(*(tasks.schedule("t", b"", delay="1h") for _ in range(500)))
            damaged, forged = "x" * 50, Receipt("", 0, 0, 0, 1, b"12345678").handle
            first = await asyncio.gather(*(tasks.cancel(r.handle) for r in receipts[:400]))
            assert (set(first), calls) == ({Outcome.DONE}, [400])
            asked = [*(r.handle for r in receipts[398:402]), damaged, forged]
            answers = await asyncio.gather(*(tasks.cancel(text) for text in asked), return_exceptions=True)
            assert answers[:4] == ["cancelled", "cancelled", "done", "done"]
            assert [type(a) for a in answers[4:]] == [InvalidArgumentError, ForgedHandleError]
            gone = asyncio.ensure_future(tasks.cancel(receipts[402].handle))
            await asyncio.sleep(0)
            gone.cancel()
            assert await tasks.cancel(receipts[402].handle) in ("done", "cancelled")
            assert await tasks.cancel(receipts[402].handle) == "cancelled"
            moved = await tasks.reschedule(receipts[403].handle, delay="2h")
            assert moved.receipt is not None
            assert await tasks.cancel_many([receipts[403].handle, moved.receipt.handle]) == ["cancelled", "done"]
            keyed = await tasks.schedule("t", b"", key="k", delay="1h")
            assert await tasks.find_key("t", "k") == keyed
            assert (await tasks.reschedule_key("t", "k", delay=60)).outcome == "done"
            assert await tasks.cancel_keys("t", ["k", "no"]) == ["done", "unknown"]
            assert await tasks.cancel_key("t", "k") == "cancelled"
            with pytest.raises(KeyExistsError):
                await asyncio.gather(
                    *(tasks.schedule("t", b"", key="k", on_key="refuse", delay="1h") for _ in range(2))
                )
        with pytest.raises(ClosedError):
            await tasks.cancel(receipts[0].handle)

    asyncio.run(main())


def test_a_real_broker(tmp_path: Path) -> None:
    async def main() -> None:
        with tarry.open(tmp_path, disk_free_bytes_min=0) as broker:
            tasks = AsyncBroker(broker)
            receipts = await asyncio.gather(*(tasks.schedule("t", b"%d" % i, delay="1h") for i in range(5000)))
            assert sorted(r.seq for r in receipts) == list(range(5000))
            with pytest.raises(InvalidMessageError, match="limit"):
                await tasks.schedule("t", b"", delay="50000d")
            waiting = asyncio.ensure_future(tasks.schedule("t", b""))
            await asyncio.sleep(0)
            await tasks.close()
            with pytest.raises(ClosedError):
                await waiting

    asyncio.run(main())
