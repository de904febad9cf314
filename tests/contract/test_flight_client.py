"""The Python client against a served broker: what its documentation promises, and what it does when things break."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.spark.forwarder import Forwarder
from tests.waiting import wait_until

from tarry.base.errors import (
    ClosedError,
    DelayTooLongError,
    FilterPausedError,
    InvalidArgumentError,
    InvalidMessageError,
    MessageTooLargeError,
    StaleLeaseError,
    UnavailableError,
)
from tarry.client import Accepted, AsyncClient, Client, Consumer, Delivery, feed, received
from tarry.message import handle
from tarry.message.message import Message
from tarry_demo.broker_process import BrokerProcess

OLD_MS = 946_684_800_000
"""2000 begins: long ago, and allowed."""


def take(messages: Iterable[Delivery], count: int) -> list[Delivery]:
    got: list[Delivery] = []
    for message in messages:
        got.append(message)
        message.ack()
        if len(got) == count:
            break
    return got


# -- scheduling ------------------------------------------------------------------------------------------------------


def test_schedule(client: Client, served: Any) -> None:
    before = served.broker.clock.now_ms()
    receipt = client.schedule("t", "text", delay="1h")
    assert 0 <= receipt.due_ms - before - 3_600_000 < 60_000
    assert (receipt.seq, receipt.id) == (0, "0" * 16)
    found = handle.decode(receipt.handle)
    assert (found.seq, found.due_ms) == (receipt.seq, receipt.due_ms)
    assert handle.verify(found, (served.config.data / "secret.key").read_bytes()[:32])
    due = datetime(2030, 1, 1, tzinfo=UTC)
    for at in (due, int(due.timestamp() * 1000)):
        assert client.schedule("t", b"", due=at, id="mine").due == due
    assert client.schedule("t", b"", delay=due).due == due
    assert client.schedule("t", b"", delay="2030-01-01T00:00:00Z").due == due


def test_what_is_scheduled_arrives_whole(client: Client) -> None:
    client.schedule(
        "t", b"\x00body", delay=0, id="i", key="k", tag="g", properties={"a": "1", "ü": "ö"}, ttl="1h", tries=3
    )
    client.schedule("t", b"plain")
    with client.consume("t", group="g", timeout=30) as consumer:
        full, plain = sorted(take(consumer, 2), key=lambda m: m.seq)
    assert (full.topic, full.body, full.id, full.key, full.tag) == ("t", b"\x00body", "i", "k", "g")
    assert full.properties == {"a": "1", "ü": "ö"}
    assert full.expire_ms is not None
    assert full.expire_ms - full.born_ms == 3_600_000
    assert (full.attempt, full.seq, plain.offset) == (1, 0, 1)
    assert full.due == datetime.fromtimestamp(full.due_ms / 1000, UTC)
    assert full.lateness_ms >= 0
    assert (plain.id, plain.key, plain.tag, plain.properties, plain.expire_ms) == (f"{1:016x}", None, None, {}, None)
    assert "plain" in repr(plain)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"topic": "t t"}, InvalidMessageError),
        ({"body": 5}, InvalidMessageError),
        ({"delay": float("nan")}, InvalidArgumentError),
        ({"delay": -1}, InvalidArgumentError),
        ({"delay": datetime(2030, 1, 1)}, InvalidArgumentError),
        ({"due": datetime(2030, 1, 1)}, InvalidArgumentError),
        ({"delay": 1, "due": 1}, InvalidMessageError),
        ({"delay": "50000d"}, DelayTooLongError),
        ({"body": bytes(5 << 20)}, MessageTooLargeError),
        ({"ttl": -1}, InvalidMessageError),
    ],
)
def test_what_is_not_allowed(arguments: dict[str, Any], kind: type[Exception], common_client: Client) -> None:
    with pytest.raises(kind):
        common_client.schedule(**{"topic": "t", "body": b"", **arguments})
    assert common_client.pending() == []


def test_many_threads_share_batches_and_a_bad_message_harms_only_its_own_caller(client: Client) -> None:
    answers: dict[int, Any] = {}
    start = threading.Barrier(32)

    def call(number: int) -> None:
        # Only the broker knows these two limits, so the bad ones travel with the good.
        bad = {0: {"delay": "50000d"}, 1: {"body": bytes(5 << 20)}}.get(number % 8, {})
        start.wait()
        try:
            answers[number] = client.schedule(**{"topic": "t", "body": b"%d" % number, "delay": "1h", **bad})
        except InvalidMessageError as error:
            answers[number] = error

    threads = [threading.Thread(target=call, args=(n,)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, answer in answers.items():
        if number % 8 < 2:
            assert type(answer) is (MessageTooLargeError if number % 8 else DelayTooLongError)
            assert answer.row is None
            assert not str(answer).startswith("row")
    assert len({a.seq for n, a in answers.items() if n % 8 >= 2}) == 24
    assert client.pending()[0].pending == 24


def test_schedule_many(client: Client) -> None:
    messages: list[Any] = [
        Message("t", b"0", OLD_MS),
        {"topic": "t", "body": "1", "delay": timedelta(hours=1), "id": "one"},
        *({"topic": "u", "body": b"x", "due": OLD_MS + i, "properties": {"n": str(i)}} for i in range(10_000)),
    ]
    receipts = client.schedule_many(iter(messages))
    assert [r.seq for r in receipts] == list(range(10_002))
    assert (receipts[0].due_ms, receipts[1].id, receipts[2].due_ms) == (OLD_MS, "one", OLD_MS)
    assert client.schedule_many([]) == []


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"topic": "t"}, "row 4999: field 'body' is missing"),
        ({"topic": "t", "body": b"", "dealy": 1}, "row 4999: unknown field 'dealy'"),
        ({"topic": "t", "body": b"", "delay": "soon"}, "row 4999: not a duration"),
        ("text", "row 4999: a message of type str"),
        ({"topic": "t", "body": b"", "delay": "50000d"}, "row 4999: due .* limit"),
    ],
)
def test_schedule_many_names_the_bad_message(bad: Any, problem: str, client: Client) -> None:
    good = {"topic": "t", "body": b"", "delay": "1h"}
    with pytest.raises(InvalidMessageError, match=problem) as caught:
        client.schedule_many([good] * 4999 + [bad] + [good])
    assert caught.value.row == 4999


def test_schedule_batch(client: Client) -> None:
    rows = 10_000
    table = pa.table({"topic": ["t"] * rows, "body": [b"b"] * rows, "due_ms": OLD_MS + np.arange(rows)})
    reported: list[Accepted] = []
    chunks = client.schedule_batch(table, chunk_rows=3000, progress=reported.append)
    assert reported == chunks
    assert [(c.row, c.first_seq, c.count) for c in chunks] == [
        (0, 0, 3000), (3000, 3000, 3000), (6000, 6000, 3000), (9000, 9000, 1000),
    ]  # fmt: skip
    np.testing.assert_array_equal(np.concatenate([c.due_ms for c in chunks]), OLD_MS + np.arange(rows))
    last = handle.decode(chunks[3].handles()[-1])
    assert (last.seq, last.due_ms) == (9999, OLD_MS + 9999)
    assert sum(c.count for c in client.schedule_batch(table.to_batches()[0])) == rows
    assert sum(c.count for c in client.schedule_batch(table.to_reader(1000))) == rows
    frame = pd.DataFrame({"topic": ["t"] * 3, "body": ["a", "b", "c"], "due": pd.Timestamp("2030-01-01", tz="UTC")})
    [accepted] = client.schedule_batch(frame)
    assert accepted.due_ms.tolist() == [1893456000000] * 3
    assert client.schedule_batch(table.slice(0, 0)) == []
    large = pa.table({"topic": ["t"] * 40, "body": [bytes(1 << 20)] * 40, "delay_ms": [3_600_000] * 40})
    assert sum(c.count for c in client.schedule_batch(large)) == 40


def test_a_bad_chunk_names_the_row_of_the_whole(client: Client) -> None:
    rows = 10_000
    delays = np.zeros(rows, np.int64)
    delays[7654] = -1
    table = pa.table({"topic": ["t"] * rows, "body": [b"b"] * rows, "delay_ms": delays})
    reported: list[Accepted] = []
    with pytest.raises(InvalidMessageError, match=r"^row 7654: delay_ms is -1") as caught:
        client.schedule_batch(table, chunk_rows=1000, progress=reported.append)
    assert caught.value.row == 7654
    assert {a.row for a in reported} >= set(range(0, 7000, 1000))
    assert 7000 not in {a.row for a in reported}
    with pytest.raises(InvalidMessageError, match="time zone"):
        client.schedule_batch(pa.table({"topic": ["t"], "body": ["b"], "due": pa.array([0], pa.timestamp("ms"))}))
    with pytest.raises(InvalidArgumentError, match="allowed: an Arrow table"):
        client.schedule_batch([1, 2])


# -- consuming -------------------------------------------------------------------------------------------------------


def test_two_consumers_share_and_two_groups_do_not(client: Client) -> None:
    client.schedule_many({"topic": "t", "body": b"%d" % i} for i in range(200))
    got: dict[str, list[bytes]] = {"a": [], "b": [], "other": []}

    def consume(name: str, group: str) -> None:
        with client.consume("t", group=group, prefetch=10, timeout=1) as consumer:
            for message in consumer:
                got[name].append(message.body)
                message.ack()

    groups = {"a": "g", "b": "g", "other": "h"}
    threads = [threading.Thread(target=consume, args=item) for item in groups.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = sorted(b"%d" % i for i in range(200))
    assert sorted(got["a"] + got["b"]) == everything
    assert sorted(got["other"]) == everything


def test_flush_waits_until_acks_are_durable(client: Client) -> None:
    client.schedule_many({"topic": "t", "body": b""} for _ in range(5000))
    with client.consume("t", group="g", timeout=30) as consumer:
        take(consumer, 5000)
        consumer.flush()
        assert client.pending()[0].ready == 0


def test_nack_and_extend(client: Client) -> None:
    client.schedule("t", b"again")
    with client.consume("t", group="g", lease="1h", timeout=30) as consumer:
        messages = iter(consumer)
        first = next(messages)
        first.extend("2h")
        first.nack(delay=0)
        first.ack()  # settled already: does nothing
        second = next(messages)
        assert (second.attempt, second.seq) == (2, first.seq)
        second.ack()
        second.ack()
        consumer.flush()
        for wrong in (datetime.now(UTC), -1, "soon"):
            with pytest.raises(InvalidArgumentError):
                second.nack(delay=wrong)
        with pytest.raises(InvalidArgumentError):
            second.extend(0)
    assert client.receive("t", group="g") == []


def test_auto_ack(client: Client) -> None:
    client.schedule_many({"topic": "t", "body": b"%d" % i} for i in range(3))
    with client.consume("t", group="g", auto_ack=True) as consumer:
        for number, _ in enumerate(consumer):
            if number == 2:
                break  # the last is not done: nobody asked for the next
    [left] = client.receive("t", group="g", max_messages=3, wait=30)
    assert (left.body, left.attempt) == (b"2", 2)


def test_batches(client: Client) -> None:
    client.schedule_many({"topic": "t", "body": b"%d" % i} for i in range(100))
    rows = 0
    with client.consume("t", group="g", timeout=30) as consumer:
        for batch in consumer.batches():
            rows += len(batch)
            assert batch.data.column("topic").unique().to_pylist() == ["t"]
            next(iter(batch)).ack()
            batch.ack()
            if rows == 100:
                break
        consumer.flush()
    assert client.pending()[0].ready == 0


def test_receive(client: Client) -> None:
    assert client.receive("t", group="g") == []
    client.schedule("t", b"x", delay=0.05)
    [message] = client.receive("t", group="g", max_messages=10, wait=30)
    message.extend("1h")
    message.ack()
    client.flush()
    assert client.pending()[0].ready == 0
    for wrong in ({"max_messages": 0}, {"max_messages": 1.5}, {"wait": -1}, {"wait": float("nan")}, {"lease": 0}):
        with pytest.raises(InvalidArgumentError):
            client.receive("t", group="g", **wrong)
    for lease in (-1, "-1s", timedelta(seconds=-1), 0):
        with pytest.raises(InvalidArgumentError, match=r"^(lease|not a duration)") as refused:
            client.receive("t", group="g", lease=lease)
        assert str(refused.value).count("allowed: ") == 1


def test_a_receive_of_a_broker_that_stands_still_ends_near_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "ANSWER_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it is connected to, and says nothing
        port = silent.getsockname()[1]
        with Client(f"127.0.0.1:{port}", timeout=1e6) as client, pytest.raises(UnavailableError):
            client.receive("t", group="g", wait=0.1)


@pytest.mark.parametrize("close", [Consumer.close, lambda consumer: consumer.fail(ValueError("no"))])
def test_closing_waits_for_what_other_threads_work_on(close: Callable[[Consumer], None], client: Client) -> None:
    client.schedule("t", b"x")
    consumer = client.consume("t", group="g")
    at_work, closing = threading.Event(), threading.Event()

    def work() -> None:
        for message in consumer:
            with message:
                at_work.set()
                closing.wait(30)

    worker = threading.Thread(target=work)
    worker.start()
    assert at_work.wait(30)
    closer = threading.Thread(target=lambda: close(consumer))
    closer.start()
    wait_until(lambda: consumer._holding._ended)  # noqa: SLF001 - that it has begun to close
    closing.set()
    closer.join(30)
    worker.join(30)
    info = client.group_info("t", "g")
    assert (info.lag, info.leased, info.waiting) == (0, 0, 0), "acknowledged, and not to come again"


def test_closing_waits_for_what_other_tasks_work_on(served: Any, client: Client) -> None:
    client.schedule("t", b"x")

    async def main() -> None:
        at_work, closing = asyncio.Event(), asyncio.Event()
        async with AsyncClient(served.address) as c:
            consumer = c.consume("t", group="g")

            async def work() -> None:
                async for message in consumer:
                    async with message:
                        at_work.set()
                        await closing.wait()

            worker = asyncio.create_task(work())
            await at_work.wait()
            closer = asyncio.create_task(consumer.close())
            while not consumer._holding._ended:  # noqa: SLF001 - that it has begun to close
                await asyncio.sleep(0)
            closing.set()
            await closer
            await worker

    asyncio.run(main())
    assert client.group_info("t", "g").lag == 0


def test_an_ack_after_the_lease_is_an_error_of_flush(client: Client) -> None:
    client.schedule("t", b"slow")
    [message] = client.receive("t", group="g", wait=30, lease="1ms")
    [again] = client.receive("t", group="g", wait=30)
    assert again.seq == message.seq
    message.ack()
    with pytest.raises(StaleLeaseError):
        client.flush()


@pytest.mark.parametrize("wrong", [{"topic": "t t"}, {"group": ""}, {"group": "g" * 300}])
def test_what_the_broker_refuses_ends_the_iteration(wrong: dict[str, str], client: Client) -> None:
    where = {"topic": "t", "group": "g", **wrong}
    with client.consume(where["topic"], group=where["group"]) as consumer, pytest.raises(InvalidArgumentError):
        next(iter(consumer))


def test_a_forgotten_consumer_gives_back_what_it_holds(client: Client) -> None:
    client.schedule("t", b"x")
    for message in client.consume("t", group="g", lease="1h"):
        assert message.attempt == 1
        break
    [again] = client.receive("t", group="g", wait=30)
    assert again.attempt == 2


def test_a_consumer_closed_by_another_thread_ends(client: Client) -> None:
    consumer = client.consume("t", group="g")
    iterating = threading.Thread(target=lambda: list(consumer))
    iterating.start()
    consumer.close()
    iterating.join(30)
    assert not iterating.is_alive()
    assert list(consumer) == []


# -- when things break -----------------------------------------------------------------------------------------------


def test_nobody_there() -> None:
    with Client("127.0.0.1:9") as client:
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:9"):
            client.ping()
        with pytest.raises(UnavailableError, match="nothing was sent"):
            client.schedule("t", b"")
        with pytest.raises(UnavailableError):
            client.schedule_batch(pa.table({"topic": ["t"], "body": ["b"], "delay_ms": [0]}))
        with client.consume("t", group="g", timeout=0.2) as consumer:
            for _ in range(2):
                with pytest.raises(
                    UnavailableError, match=r"consuming t as g: the broker at 127\.0\.0\.1:9 could not be"
                ):
                    list(consumer)
            with pytest.raises(UnavailableError, match="no answer from the broker"):
                list(consumer.batches())


def test_a_timeout_ends_a_loop_in_silence_only_where_the_broker_was_there(client: Client, served: Any) -> None:
    with client.consume("t", group="g", timeout=0.3, auto_ack=True) as consumer:
        assert list(consumer) == []
        served.stop()
        with pytest.raises(UnavailableError, match=r"the broker at \S+ could not be reached for \d+\.\d s: no answer"):
            while True:
                assert list(consumer) == []  # at first it was there for a part of the time
        served.start()
        client.schedule("t", b"1")
        got: list[Delivery] = []
        while not got:
            with suppress(UnavailableError):  # while it is not reached yet
                got = list(consumer)
        assert [message.body for message in got] == [b"1"]


def test_a_broker_that_stands_still_is_not_one_without_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = BrokerProcess(tmp_path / "data", tmp_path / "log", {"pipeline": "off"})
    broker.start()
    try:
        options = {"group": "g", "timeout": 0.5, "auto_ack": True}
        with Client(broker.address) as client, client.consume("t", **options) as consumer:
            client.schedule("t", b"0")
            assert comes(consumer) == b"0"
            client.schedule("t", b"1", delay="1s")
            assert broker.pid is not None
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                with monkeypatch.context() as patch:
                    patch.setattr(feed, "ANSWER_S", 0.3)
                    with pytest.raises(UnavailableError, match=r"not be reached for \d+\.\d s: no answer within 0.3 s"):
                        list(consumer)
                    with pytest.raises(UnavailableError, match=r"no answer within 0.3 s"):
                        list(consumer.batches())
            finally:
                os.kill(broker.pid, signal.SIGCONT)
            assert comes(consumer) == b"1"
    finally:
        broker.stop()


def comes(consumer: Consumer) -> bytes:
    """The next message."""
    while True:
        for message in consumer:
            return message.body


def test_who_waits_in_vain_hears_that_the_filter_is_paused(client: Client) -> None:
    slow = "sql: " + " OR ".join([f"p CONTAINS '{'a' * 700}b'"] * 20)
    client.set_group("t", "g", filter=slow)
    client.schedule_many({"topic": "t", "body": b"x", "properties": {"p": "a" * 60_000}} for _ in range(30))
    with client.consume("t", group="g", timeout=0.3, auto_ack=True) as consumer:
        with pytest.raises(FilterPausedError, match="CPU time"):
            while True:  # at first it is looked at
                assert list(consumer) == []
        with pytest.raises(FilterPausedError, match="CPU time"):
            list(consumer.batches())
        client.set_group("t", "g", filter="*")
        got: list[Delivery] = []
        while len(got) < 30:
            with suppress(FilterPausedError):  # while it is not asked again yet
                got += consumer
    assert {message.body for message in got} == {b"x"}


def test_a_timeout_of_zero_would_give_nothing(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match="timeout is 0"):
        client.consume("t", group="g", timeout=0)


def test_a_timeout_of_asyncio_does_so_too(served: Any) -> None:
    async def main() -> None:
        async with AsyncClient(served.address) as client, client.consume("t", group="g", timeout=0.3) as consumer:
            assert [m async for m in consumer] == []
            served.stop()
            for begin in (consumer.__aiter__, consumer.batches):
                with pytest.raises(UnavailableError, match="could not be reached for"):
                    while True:
                        assert [each async for each in begin()] == []

    asyncio.run(main())


def test_a_restart_of_the_broker(client: Client, served: Any) -> None:
    client.schedule_many({"topic": "t", "body": b"%d" % i} for i in range(3))
    with client.consume("t", group="g", timeout=60) as consumer:
        messages = iter(consumer)
        first = next(messages)
        first.ack()
        consumer.flush()
        served.stop()
        with pytest.raises(UnavailableError):
            client.schedule("t", b"lost")
        served.start()
        second, third = next(messages), next(messages)
        assert {second.body, third.body} == {b"1", b"2"}
        client.schedule("t", b"3")
        second.ack()
        third.ack()
        assert next(messages).body == b"3"


def test_no_answer_is_unavailable_and_not_sent_again(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The broker accepts, and its answer does not come.
    kept: list[Any] = []

    def swallow(data: pa.RecordBatch, done: Any, *, lead: bool = False) -> None:
        submit(data, lambda answer: kept.append(lambda: done(answer)))

    submit = served.broker.submit
    monkeypatch.setattr(served.broker, "submit", swallow)
    with Client(served.address, timeout=0.5) as client:
        with pytest.raises(UnavailableError, match="may or may not"):
            client.schedule("t", b"once", delay="1h")
        assert client.pending()[0].pending == 1
        # Nor does the connection stay. What comes back is the truth: unknown.
        answers: list[Any] = []
        with Forwarder("127.0.0.1") as way:
            way.forward_to(served.address)
            patient = Client(way.address, timeout=600)
            calling = threading.Thread(target=lambda: answers.append(outcome(patient)))
            calling.start()
            wait_until(lambda: len(kept) == 2)
        calling.join(60)  # it is cut off by the end of the block
        patient.close()
        assert "may or may not" in str(answers[0])
        for answer in kept:
            answer()
        assert client.pending()[0].pending == 2


def outcome(client: Client) -> Any:
    try:
        return client.schedule("t", b"once", delay="1h")
    except UnavailableError as error:
        return error


def test_closed(served: Any) -> None:
    client = Client(served.address)
    client.schedule("t", b"")
    client.close()
    client.close()
    for call in (
        client.ping,
        client.pending,
        lambda: client.schedule("t", b""),
        lambda: client.consume("t", group="g"),
    ):
        with pytest.raises(ClosedError):
            call()


KILLED = """
import sys
from tarry.client import Client
for message in Client(sys.argv[1]).consume("t", group="g", lease="1h"):
    print(message.body.decode(), flush=True)
"""


def test_a_killed_consumers_messages_come_again_at_once(served: Any, client: Client) -> None:
    client.schedule_many({"topic": "t", "body": b"%d" % i} for i in range(3))
    killed = subprocess.Popen([sys.executable, "-c", KILLED, served.address], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    seen = [killed.stdout.readline().strip() for _ in range(3)]
    assert sorted(seen) == ["0", "1", "2"]
    assert client.receive("t", group="g") == []
    killed.kill()
    killed.wait()
    # The lease is an hour; what comes, comes because the connection broke.
    with client.consume("t", group="g", timeout=30) as consumer:
        got = []
        for message in consumer:
            got.append(message)
            if len(got) == 3:
                break
    assert sorted(m.body.decode() for m in got) == seen
    assert {m.attempt for m in got} == {2}


UNCLOSED = """
import sys
from tarry.client import Client
client = Client(sys.argv[1])
client.schedule("t", b"x")
consumer = client.consume("t", group="g")
next(iter(consumer)).ack()
"""


def test_a_program_that_closes_nothing_ends_and_its_acks_arrive(served: Any, client: Client) -> None:
    ended = subprocess.run([sys.executable, "-c", UNCLOSED, served.address], timeout=60, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert client.pending()[0].ready == 0


# -- asyncio ---------------------------------------------------------------------------------------------------------


def test_async_thousand_concurrent(served: Any) -> None:
    async def main() -> None:
        async with AsyncClient(served.address) as client:
            calls = [client.schedule("t", b"%d" % i, delay=0, id=f"i{i}") for i in range(1000)]
            receipts = await asyncio.gather(*calls)
            assert sorted(r.seq for r in receipts) == list(range(1000))
            assert [r.id for r in receipts] == [f"i{i}" for i in range(1000)]
            by_id = {}
            async with client.consume("t", group="g", timeout=30) as consumer:
                async for message in consumer:
                    by_id[message.id] = message.seq
                    message.ack()
                    if len(by_id) == 1000:
                        break
                await consumer.flush()
            # Each caller got the receipt of its own message.
            assert by_id == {r.id: r.seq for r in receipts}
            assert (await client.pending())[0].ready == 0

    asyncio.run(main())


def test_async_everything_else(served: Any) -> None:
    async def main() -> None:
        async with AsyncClient(served.address) as client:
            assert (await client.ping())["version"]
            assert (await client.status())["state"] == "serving"
            await client.schedule_many([{"topic": "t", "body": "1"}])
            await client.schedule_batch(pa.table({"topic": ["t"], "body": ["2"], "delay_ms": [0]}))
            got = []
            while len(got) < 2:
                for message in await client.receive("t", group="g", max_messages=2, wait=30):
                    got.append(message.body)
                    message.ack()
            await client.flush()
            assert sorted(got) == [b"1", b"2"]
            assert [m async for m in client.consume("t", group="g", timeout=0.1)] == []
            await client.schedule("t", b"3")
            batches = client.consume("t", group="g", timeout=30).batches()
            assert [m.body for m in await anext(batches)] == [b"3"]
            for wrong in ({"topic": "t t", "body": b""}, {"topic": "t", "body": b"", "delay": "50000d"}):
                with pytest.raises(InvalidMessageError):
                    await client.schedule(**wrong)
            with pytest.raises(InvalidArgumentError):
                async for _ in client.consume("t", group=""):
                    pass
            cancelled = asyncio.ensure_future(client.schedule("t", b"4"))
            await asyncio.sleep(0)
            cancelled.cancel()
            await client.schedule("t", b"5")
        with pytest.raises(ClosedError):
            await client.schedule("t", b"")

    asyncio.run(main())
