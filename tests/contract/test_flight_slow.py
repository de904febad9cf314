"""Consumers that are slow, that fail, and that stand still: no lease ends by itself, and nothing is done twice."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.contract.conftest import Served
from tests.waiting import wait_until

from tarry.base.errors import DiskFullError, StaleLeaseError
from tarry.client import AsyncClient, Client, Delivery
from tarry.client.holding import START_ROWS


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A broker whose leases are short, and whose back-off is longer than any test waits without moving on."""
    found = Served(tmp_path / "data", lease_ms=400, retry_ms=600_000)
    yield found
    found.stop()


def schedule(client: Client, count: int, **options: Any) -> None:
    client.schedule_many(
        {"topic": "t", "body": b"%d" % number, "id": f"m{number}", **options} for number in range(count)
    )


def fate(client: Client) -> tuple[int, int]:
    """What is not settled, and what is dead."""
    info = client.group_info("t", "g")
    return info.lag, info.dead


@pytest.fixture
def fails_on_warnings(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


def last_state(client: Client, number: int = 0) -> dict[str, Any]:
    """What the group says of a message in its history."""
    events = client.history(f"m{number}", topic="t").events
    return next(e.details for e in events if e.event == "group" and e.details["group"] == "g")


# -- slow ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1000, 3])
@pytest.mark.usefixtures("fails_on_warnings")
def test_what_waits_behind_a_slow_handler_is_handled_once(prefetch: int, client: Client) -> None:
    client.set_group("t", "g", tries=2)
    schedule(client, 30)
    attempts: Counter[int] = Counter()
    with client.consume("t", group="g", prefetch=prefetch) as consumer:
        for message in consumer:
            attempts[message.attempt] += 1
            time.sleep(0.05)  # the work: all of it takes some leases
            message.ack()
            if attempts.total() == 30:
                break
        consumer.flush()
    assert attempts == {1: 30}
    assert fate(client) == (0, 0)


@pytest.mark.usefixtures("fails_on_warnings")
def test_a_handler_that_takes_many_leases_runs_once(client: Client, served: Served) -> None:
    schedule(client, 1)
    deadlines: set[int] = set()
    with client.consume("t", group="g", timeout=0.5) as consumer:
        bodies = []
        for message in consumer:
            bodies.append(message.body)
            while len(deadlines) < 6:  # the lease was extended so often
                deadlines.add(last_state(client)["until_ms"])
                assert client.receive("t", group="g") == []
            message.ack()
    assert bodies == [b"0"]
    assert fate(client) == (0, 0)


@pytest.mark.usefixtures("fails_on_warnings")
def test_an_idle_consumer_gets_what_a_slow_one_does_not_come_to(client: Client) -> None:
    schedule(client, 20)
    by_other: list[Delivery] = []
    with client.consume("t", group="g") as slow, client.consume("t", group="g") as other:

        def work() -> None:
            for message in other:
                by_other.append(message)
                message.ack()

        messages = iter(slow)
        first = next(messages)
        working = threading.Thread(target=work)
        working.start()
        # The slow one is at its first message all the time.
        wait_until(lambda: len(by_other) == 19, what=lambda: len(by_other))
        first.ack()
        slow.flush()
        other.close()
        working.join(60)
    assert {message.attempt for message in by_other} == {1}, "nobody had looked at them"
    assert fate(client) == (0, 0)


def test_a_consumer_that_nobody_iterates_over_keeps_nothing_from_others(client: Client) -> None:
    schedule(client, 10)
    client.set_group("t", "g")
    with client.consume("t", group="g") as forgotten:
        wait_until(lambda: client.group_info("t", "g").leased)
        with client.consume("t", group="g") as consumer:
            got = [message for _, message in zip(range(9), consumer, strict=False)]
            for message in got:
                message.ack()
            [last] = [message for _, message in zip(range(1), consumer, strict=False)]
            last.ack()
            consumer.flush()
        assert {m.attempt for m in [*got, last]} == {1}
        client.schedule("t", b"more")
        assert next(iter(forgotten)).body == b"more", "it asks again when somebody asks it"


def test_threads_share_what_one_consumer_gets(client: Client) -> None:
    schedule(client, START_ROWS)
    begun = threading.Barrier(START_ROWS + 1, timeout=60)
    with client.consume("t", group="g") as consumer:

        def work() -> None:
            for message in consumer:
                message.ack()
                begun.wait()  # each message is at a thread of its own

        threads = [threading.Thread(target=work) for _ in range(START_ROWS)]
        for thread in threads:
            thread.start()
        begun.wait()
        consumer.close()
        for thread in threads:
            thread.join(60)
    assert fate(client) == (0, 0)


def test_a_thread_that_comes_later_shares_what_another_is_at(client: Client) -> None:
    """The rest of a batch waited behind the message that the first thread was at, for as long as that took."""
    schedule(client, START_ROWS)
    with client.consume("t", group="g", timeout=10) as consumer:
        first = iter(consumer)
        got = [next(first)]  # all that has come is in its hand
        wait_until(lambda: client.group_info("t", "g").leased == START_ROWS)
        others = [iter(consumer) for _ in range(START_ROWS - 1)]
        got += [next(other) for other in others]
        assert len({message.id for message in got}) == START_ROWS
        for message in got:
            message.ack()
        consumer.flush()
    assert fate(client) == (0, 0)


def test_work_that_begins_when_the_consumer_has_ended_is_refused(client: Client) -> None:
    """A pool may come to a message when the loop that gave it has ended, and others have it by then."""
    schedule(client, 2)
    kept = list(client.consume("t", group="g", lease="1h", timeout=0.5))
    assert len(kept) == 2
    done = []
    for message in kept:
        with pytest.raises(StaleLeaseError, match="comes again"), message:
            done.append(message.id)
    assert not done
    assert client.group_info("t", "g").lag == 2, "they are not settled"


@pytest.mark.usefixtures("fails_on_warnings")
def test_batches_are_extended_while_they_are_worked_on(client: Client) -> None:
    schedule(client, 30)
    deadlines: set[int] = set()
    rows = 0
    with client.consume("t", group="g") as consumer:
        for batch in consumer.batches():
            rows += len(batch)
            while len(deadlines) < 4:
                deadlines.add(last_state(client)["until_ms"])
            batch.ack()
            if rows == 30:
                break
        consumer.flush()
    assert fate(client) == (0, 0)


def test_a_fast_consumer_has_its_whole_prefetch(client: Client) -> None:
    schedule(client, 4000)
    with client.consume("t", group="g", prefetch=500) as consumer:
        sizes = []
        for batch in consumer.batches():
            sizes.append(len(batch))
            batch.ack()
            if sum(sizes) == 4000:
                break
    assert sizes[0] <= START_ROWS
    assert max(sizes) > 100


def test_asyncio_keeps_leases_too(served: Served, client: Client) -> None:
    async def main() -> Counter[int]:
        attempts: Counter[int] = Counter()
        async with AsyncClient(served.address) as aio, aio.consume("t", group="g") as consumer:
            async for message in consumer:
                attempts[message.attempt] += 1
                await asyncio.sleep(0.05)
                message.ack()
                if attempts.total() == 20:
                    break
            await consumer.flush()
        return attempts

    schedule(client, 20)
    assert asyncio.run(main()) == {1: 20}
    assert fate(client) == (0, 0)


STANDS_STILL = """
import sys
from tarry.client import Client
from tarry.client.holding import Holding
Holding._judge = lambda *_: None  # it does not give back what waits: it cannot know that it is about to stand still
with Client(sys.argv[1]) as client:
    for message in client.consume("t", group="g", timeout=2, prefetch=2):
        print(message.body.decode(), message.attempt, flush=True)
        message.ack()
        sys.stdin.readline()
"""


def test_what_a_consumer_had_when_it_stood_still_is_not_handed_to_its_loop(served: Served, client: Client) -> None:
    schedule(client, 2)
    arguments = [sys.executable, "-c", STANDS_STILL, served.address]
    stopped = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert stopped.stdout is not None
    assert stopped.stdin is not None
    assert stopped.stdout.readline() == "0 1\n"
    wait_until(lambda: client.group_info("t", "g").leased == 1)
    stopped.send_signal(signal.SIGSTOP)
    try:
        [second] = client.receive("t", group="g", wait=60)
        assert second.body == b"1"
        assert second.attempt > 1, "its lease had ended"
        second.ack()
        client.flush()
    finally:
        stopped.stdin.write("\n")
        stopped.stdin.flush()
        stopped.send_signal(signal.SIGCONT)
    rest, _ = stopped.communicate("\n\n\n", timeout=60)
    assert rest == ""


STOPPED = """
import sys
from tarry.client import Client
with Client(sys.argv[1]) as client:
    with client.consume("t", group="g") as consumer:
        for message in consumer:
            print(message.body.decode(), message.attempt, flush=True)
            message.ack()
            sys.stdin.readline()
"""


def test_a_consumer_that_stands_still_uses_up_no_tries(served: Served, client: Client) -> None:
    client.set_group("t", "g", tries=3)
    schedule(client, START_ROWS)
    arguments = [sys.executable, "-c", STOPPED, served.address]
    stopped = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert stopped.stdout is not None
    assert stopped.stdin is not None
    try:
        seen = [stopped.stdout.readline()]
        wait_until(lambda: client.group_info("t", "g").lag == START_ROWS - 1)
        stopped.send_signal(signal.SIGSTOP)
        wait_until(lambda: client.group_info("t", "g").leased == 0, what="its leases end")
        schedule(client, START_ROWS + 3)  # the first ones are known by their ids
        client.schedule("later", b"", delay="2s")  # for so long it had made a try after the other
        [_] = client.receive("later", group="g", wait=60)
        assert client.group_info("t", "g").leased == 0
        stopped.send_signal(signal.SIGCONT)
        for _ in range(START_ROWS + 2):
            stopped.stdin.write("\n")
            stopped.stdin.flush()
            seen.append(stopped.stdout.readline())
    finally:
        stopped.kill()
        stopped.communicate()
    attempts = {int(number): int(attempt) for number, attempt in (line.split() for line in seen)}
    assert {number for number, attempt in attempts.items() if attempt > 1} <= set(range(1, START_ROWS))
    assert attempts.keys() == set(range(START_ROWS + 3))
    assert max(attempts.values()) <= 2
    assert fate(client)[1] == 0


# -- given back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["close", "break", "forget"])
def test_what_was_not_started_is_given_back_as_the_same_try(way: str, client: Client) -> None:
    schedule(client, START_ROWS, tries=1)
    consumer = client.consume("t", group="g", lease="1h")
    messages = iter(consumer)
    next(messages).ack()
    wait_until(lambda: client.group_info("t", "g").leased == START_ROWS - 1)
    if way == "close":
        consumer.close()
    else:
        del messages
        if way == "break":
            for _ in consumer:
                break
        del consumer
    rest = client.receive("t", group="g", max_messages=START_ROWS, wait=60)
    assert {message.attempt for message in rest} == {1}
    wait_until(lambda: client.group_info("t", "g").dead == (1 if way == "break" else 0))


# -- that fail -------------------------------------------------------------------------------------------------------


def with_consumer(client: Client) -> None:
    with client.consume("t", group="g") as consumer:
        for _ in consumer:
            raise ValueError("no such order")


def with_message(client: Client) -> None:
    for message in client.consume("t", group="g"):
        with message:
            raise ValueError("no such order")


def with_client(client: Client) -> None:
    with Client(client.address) as own:
        consumer = own.consume("t", group="g")
        for _ in consumer:
            raise ValueError("no such order")


def with_batches(client: Client) -> None:
    with client.consume("t", group="g") as consumer:
        for _ in consumer.batches():
            raise ValueError("no such order")


def with_receive(client: Client) -> None:
    for message in client.receive("t", group="g", wait=60):
        try:
            with message:
                raise ValueError("no such order")
        finally:
            client.flush()


def async_with_consumer(client: Client) -> None:
    async def main() -> None:
        async with AsyncClient(client.address) as aio, aio.consume("t", group="g") as consumer:
            async for _ in consumer:
                raise ValueError("no such order")

    asyncio.run(main())


def async_with_message(client: Client) -> None:
    async def main() -> None:
        async with AsyncClient(client.address) as aio:
            async for message in aio.consume("t", group="g"):
                with message:
                    raise ValueError("no such order")

    asyncio.run(main())


WAYS = [
    with_consumer, with_message, with_client, with_batches, with_receive, async_with_consumer, async_with_message,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_handler_that_raises_is_a_try_that_failed_for_that_reason(
    way: Callable[[Client], None], client: Client
) -> None:
    schedule(client, 1)
    with pytest.raises(ValueError, match="no such order"):
        way(client)
    wait_until(lambda: client.group_info("t", "g").waiting == 1)
    state = last_state(client)
    assert (state["state"], state["attempt"], state["reason"]) == ("waiting", 2, "ValueError: no such order")
    assert state["again_ms"] > time.time() * 1000 + 300_000, "the group's back-off"


def test_the_reason_of_the_last_try_is_in_the_dead_letter(client: Client) -> None:
    client.set_group("t", "g", tries=2, retry="fixed 0s")
    schedule(client, 1)
    for number in range(2):
        with pytest.raises(ValueError, match="again"), client.consume("t", group="g") as consumer:
            for message in consumer:
                raise ValueError(f"again {number} {message.attempt}")
    wait_until(lambda: client.group_info("t", "g").dead)
    [letter] = client.dead_letters("t", "g").to_pylist()
    assert dict(letter["properties"])["tarry.dead.reason"] == "ValueError: again 1 2"
    events = client.history("m0", topic="t").events
    assert [e.details["reason"] for e in events if e.event == "dead"] == ["ValueError: again 1 2"]


@pytest.mark.parametrize("way", ["again", "forget"])
def test_a_loop_that_is_left_has_failed_what_it_was_at(way: str, client: Client) -> None:
    schedule(client, 2)

    def leave(consumer: Any) -> None:
        for _ in consumer:
            raise KeyError("x")

    consumer = client.consume("t", group="g")
    with pytest.raises(KeyError):
        leave(consumer)
    if way == "again":
        second = next(iter(consumer))
        assert second.body == b"1"
    else:
        del consumer
    wait_until(lambda: client.group_info("t", "g").waiting == 1)
    state = last_state(client)
    assert (state["attempt"], state["reason"]) == (2, "its consumer's loop was left before it was settled")


def test_run_goes_on_after_what_cannot_be_handled(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    schedule(client, 3)
    handled = []

    def handle(message: Delivery) -> None:
        if message.body == b"1":
            raise ValueError("not this one")
        handled.append(message.body)

    with client.consume("t", group="g", timeout=1) as consumer:
        consumer.run(handle)
    assert handled == [b"0", b"2"]
    assert last_state(client, 1)["reason"] == "ValueError: not this one"
    assert [r.exc_text for r in caplog.records if r.exc_text], "with its traceback"


def test_a_block_of_asyncio_settles_as_a_plain_one(served: Served, client: Client) -> None:
    async def main() -> list[bytes]:
        handled = []
        async with AsyncClient(served.address) as aio, aio.consume("t", group="g", timeout=30) as consumer:
            async for message in consumer:
                with suppress(ValueError):
                    async with message:
                        await asyncio.sleep(0)
                        handled.append(message.body)
                        if message.body == b"1":
                            raise ValueError("not this one")
                    message.ack()  # once more: it does nothing
                    message.ack()
                if len(handled) == 3:
                    break
            await consumer.flush()
        return handled

    schedule(client, 3)
    assert asyncio.run(main()) == [b"0", b"1", b"2"]
    assert last_state(client, 1)["reason"] == "ValueError: not this one"
    assert client.group_info("t", "g").lag == 1, "of which the other two are settled"


def test_run_awaits_what_a_handler_gives(served: Served, client: Client) -> None:
    schedule(client, 2)
    handled = []

    async def handle(message: Delivery) -> None:
        await asyncio.sleep(0)
        if message.body == b"1":
            raise ValueError("not this one")
        handled.append(message.body)

    async def main() -> None:
        async with AsyncClient(served.address) as aio, aio.consume("t", group="g", timeout=1) as consumer:
            await consumer.run(handle)

    asyncio.run(main())
    assert handled == [b"0"]
    assert last_state(client, 1)["reason"] == "ValueError: not this one"


# -- a broker that is away -------------------------------------------------------------------------------------------


def test_a_broker_that_is_away_is_warned_of_once_and_so_is_its_return(
    served: Served, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with client.consume("t", group="g") as one, client.consume("u", group="g") as other:
        client.schedule("t", b"x")
        next(iter(one)).ack()
        one.flush()
        served.stop()
        # Both have tried some times.
        wait_until(lambda: min(c._feed._back_off._next_s for c in (one, other)) > 0.3)  # noqa: SLF001 - the subject
        warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(warned) == 1, warned
        assert "connecting again" in warned[0]
        served.start()
        client.schedule("t", b"y")
        client.schedule("u", b"z")
        next(iter(one)).ack()
        next(iter(other)).ack()
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING][1:]
    assert len(said) == 1, said
    assert "is back after" in said[0]


def test_what_cannot_be_settled_for_now_is_warned_of_once_and_so_is_its_end(
    served: Served, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, refused = served.broker.group("t", "g"), list[int]()
    ack = group.ack

    def refuse(leases: Any, offsets: Any, done: Any) -> None:
        refused.append(len(leases))
        done(DiskFullError("the disk of acks is full: nothing was settled; try again"))

    client.schedule_many({"topic": "t", "body": b"%d" % i} for i in range(4))
    with client.consume("t", group="g", timeout=30) as consumer:
        messages = iter(consumer)
        monkeypatch.setattr(group, "ack", refuse)
        for _ in range(3):
            next(messages).ack()
            with pytest.raises(DiskFullError):
                consumer.flush()
        monkeypatch.setattr(group, "ack", ack)
        next(messages).ack()
        consumer.flush()
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(refused) == 3
    assert len(said) == 2, said
    assert "did not settle all: the disk of acks is full" in said[0]
    assert "those messages come again" in said[0]
    assert "settles again after" in said[1]
