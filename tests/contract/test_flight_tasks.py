"""Several tasks over one asynchronous consumer: one is woken for what comes, and nothing is left lying by it."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.contract.conftest import Served
from tests.waiting import wait_until_async

from tarry.client import AsyncClient, Client


@pytest.mark.parametrize("seed", range(2))
def test_tasks_that_are_cancelled_leave_nothing_lying(seed: int, served: Served, client: Client) -> None:
    """A task may be cancelled between its waking and its first step, or with a message in hand."""
    chance, seen = random.Random(seed), set()
    # The message of a loop that was left is its task's until another loop begins, or its lease ends: none may begin.
    client.set_group("t", "g", tries=0, retry="fixed 1ms", lease_ms=2000)

    async def main() -> None:
        async with AsyncClient(served.address) as c:
            consumer = c.consume("t", group="g")

            async def work() -> None:
                async for message in consumer:
                    if chance.random() < 0.5:
                        await asyncio.sleep(0)
                    seen.add(message.id)
                    message.ack()

            tasks = [asyncio.create_task(work()) for _ in range(4)]
            for start in range(0, 300, 3):
                await c.schedule_many({"topic": "t", "body": b"x", "id": f"m{start + each}"} for each in range(3))
                at = chance.randrange(len(tasks))
                tasks[at].cancel()
                tasks[at] = asyncio.create_task(work())
            await wait_until_async(lambda: len(seen) == 300)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_a_task_that_waits_gets_what_another_leaves(served: Served, client: Client) -> None:
    """All of a batch comes to one task; as long as its handler waits, the others have the rest."""

    async def main() -> None:
        async with AsyncClient(served.address) as c:
            consumer, at_work, let_go = c.consume("t", group="g"), set(), asyncio.Event()

            async def work() -> None:
                async for message in consumer:
                    at_work.add(message.id)
                    await let_go.wait()
                    message.ack()

            tasks = [asyncio.create_task(work()) for _ in range(5)]
            await c.schedule_many({"topic": "t", "body": b"x"} for _ in range(5))
            await wait_until_async(lambda: len(at_work) == 5)
            let_go.set()
            await consumer.close()
            await asyncio.gather(*tasks)

    asyncio.run(main())
    assert client.group_info("t", "g").lag == 0


def test_a_task_that_comes_later_shares_what_another_is_at(served: Served, client: Client) -> None:
    """The rest of a batch waited behind the message that the first task was at, for as long as that took."""

    async def main() -> None:
        async with AsyncClient(served.address) as c:
            await c.schedule_many({"topic": "t", "body": b"x", "id": f"m{number}"} for number in range(3))
            consumer = c.consume("t", group="g", timeout=10)
            loops = [aiter(consumer)]
            got = [await anext(loops[0])]
            await wait_until_async(lambda: client.group_info("t", "g").leased == 3)
            for _ in range(2):
                loops.append(aiter(consumer))
                got.append(await anext(loops[-1]))
            assert {message.id for message in got} == {"m0", "m1", "m2"}
            for message in got:
                message.ack()
            await consumer.close()

    asyncio.run(main())
    assert client.group_info("t", "g").lag == 0
