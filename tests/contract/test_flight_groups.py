"""Groups, topics and dead letters over the wire, of a real broker; and what a consumer does that cannot be helped."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.waiting import wait_until

from tarry.api.credential_uses import CredentialUses
from tarry.api.groups import GroupSettings
from tarry.api.wire import decode_error
from tarry.base.clock import SystemClock
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError, NotFoundError, TarryError, UnavailableError
from tarry.client import AsyncClient, Client, Delivery
from tarry.client.holding import START_ROWS
from tarry.fronts.flight.front import FlightFront

OLD_MS = 946_684_800_000
"""2000 begins: long ago, and allowed."""


class Holder:
    """A consumer of which the broker says, when it polls, what is wrong."""

    silent = False
    held = 0
    account = held_back = None

    def __init__(self, error: TarryError, lease_ms: int) -> None:
        self.error, self.lease_ms = error, lease_ms
        self.closed = threading.Event()
        self.windows: list[int] = []

    def resize(self, window: int) -> None:
        self.windows.append(window)

    def poll(self, rows_max: int) -> tuple[pa.RecordBatch | None, float | None]:
        raise self.error

    def withdraw(self) -> None:
        pass

    def close(self) -> None:
        self.closed.set()


class Registrar:
    """Keeps what it is told; is its one group."""

    config = Config()
    identities = ()
    credential_uses = CredentialUses()
    epoch = None
    clock = SystemClock()
    settings = GroupSettings()
    ordered = waits_for_acks = deleted = closed = gathers = False
    may_send = True

    def __init__(self) -> None:
        self.holders: list[Holder] = []
        self.errors: Iterator[TarryError] = iter(())
        self.asked: list[tuple[str, str, str | None, str | None]] = []

    def listen_to_identities(self, on_change: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def group(self, topic: str, name: str, *, start: str | None, broadcast: str | None) -> Registrar:
        self.asked.append((topic, name, start, broadcast))
        self.topic_name, self.name = topic, f"{name}@{broadcast}"
        return self

    def listen(self, on_news: Callable[[], None]) -> Callable[[], None]:
        return on_news

    def subscribe(self, *, prefetch: int, lease_ms: int, account: object) -> Holder:
        self.holders.append(Holder(next(self.errors), lease_ms))
        return self.holders[-1]


def test_a_consumer_that_cannot_be_helped_ends_and_one_that_can_connects_again() -> None:
    registrar = Registrar()
    registrar.errors = iter([UnavailableError("not now"), InvalidArgumentError("the filter takes too long")])
    with (
        FlightFront.start(registrar, "127.0.0.1:0") as front,  # type: ignore[arg-type]
        Client(front.address) as client,
        client.consume("t", group="g", start="latest", broadcast="me", lease="1s") as consumer,
        pytest.raises(InvalidArgumentError, match="takes too long"),
    ):
        next(iter(consumer))
    assert [(holder.lease_ms, holder.windows) for holder in registrar.holders] == [(1000, [START_ROWS])] * 2
    assert all(holder.closed.wait(10) for holder in registrar.holders)
    assert registrar.asked == [("t", "g", "latest", "me")] * 2


# -- a real broker ---------------------------------------------------------------------------------------------------


def take(client: Client, count: int, group: str = "g", **options: Any) -> list[Delivery]:
    got: list[Delivery] = []
    while len(got) < count:
        more = client.receive("t", group=group, max_messages=count - len(got), wait=30, **options)
        assert more
        got += more
    return got


def fail(client: Client, count: int) -> None:
    """Let group g of topic t fail on ``count`` messages, one try each."""
    client.set_group("t", "g", tries=1)
    client.schedule_many({"topic": "t", "body": b"%d" % i} for i in range(count))
    for message in take(client, count):
        message.nack()
    client.flush()
    # They are copied to the dead letters after the answer.
    while client.group_info("t", "g").dead < count:
        pass


def test_settings(client: Client) -> None:
    made = client.set_group("t", "g")
    assert (made.topic, made.group, made.tries, made.filter, made.ordered, made.paused) == (
        "t",
        "g",
        16,
        "*",
        False,
        False,
    )
    assert (made.start, made.retry, made.lag, made.oldest_due_ms) == ("earliest", "fixed 1s", 0, None)
    options: dict[str, Any] = {
        "retry": "exponential 1s max 1m", "tries": 3, "inflight_max": 5, "filter": "a || b", "ordered": True,
        "paused": True, "lease_ms": 5000,
    }  # fmt: skip
    changed = client.set_group("t", "g", **options)
    assert {name: getattr(changed, name) for name in options} == options
    assert client.set_group("t", "g", tries=4).retry == changed.retry
    assert client.group_info("t", "g").tries == 4
    assert client.set_group("t", "g", retry="", filter="", tries=0, lease_ms=0).filter == "*"
    client.set_group("u", "late", start="latest")
    client.set_group("t", "h")
    assert [(i.topic, i.group) for i in client.groups()] == [("t", "g"), ("t", "h"), ("u", "late")]
    assert [i.group for i in client.groups("t")] == ["g", "h"]
    assert client.groups("none") == []
    client.delete_group("t", "h")
    assert [i.group for i in client.groups("t")] == ["g"]
    assert client.topic_info("t").late == "drop"
    assert client.set_topic("t", late="dead", lateness_ms_max=1000) == client.topic_info("t")
    assert (client.topic_info("t").late, client.topic_info("t").lateness_ms_max) == ("dead", 1000)
    assert client.set_topic("t", lateness_ms_max=-1).late == "dead"


@pytest.mark.parametrize("call", ["group_info", "delete_group", "pause", "resume", "seek", "respawn"])
def test_a_group_that_is_not_there(call: str, client: Client) -> None:
    arguments = ("t", "none", "latest") if call == "seek" else ("t", "none")
    with pytest.raises(NotFoundError, match="'none'"):
        getattr(client, call)(*arguments)
    assert client.groups() == []


@pytest.mark.parametrize(
    ("call", "arguments", "problem"),
    [
        ("set_group", {"retry": "soon"}, "soon"),
        ("set_group", {"tries": -1}, "tries is -1"),
        ("set_group", {"tries": "3"}, "tries is '3'"),
        ("set_group", {"tries": 1 << 40}, "tries is"),
        ("set_group", {"filter": "sql: price >"}, "price"),
        ("set_group", {"ordered": 1}, "ordered is 1"),
        ("set_group", {"start": "middle"}, "start is 'middle'"),
        ("set_group", {"lease_ms": 1.5}, "lease_ms is 1.5"),
        ("set_group", {"tries": {1}}, "cannot be sent"),
        ("set_group", {"topic": "t t"}, "'t t' is not a topic name"),
        ("set_group", {"group": ""}, "not a group name"),
        ("set_group", {"group": "tarry.dead"}, "not a group name"),
        ("set_group", {"group": "\ud800"}, "not JSON"),
        ("seek", {"to": "middle"}, "seek to 'middle'; allowed: UTC milliseconds, earliest or latest"),
        ("seek", {"to": 1.5}, "to is 1.5"),
        ("seek", {"to": datetime(2030, 1, 1)}, "naive"),
        ("seek", {"to": 1 << 63}, "to is"),
        ("respawn", {"limit": 0}, "limit is 0"),
        ("respawn", {"per_second": 0}, "per_second is 0"),
        ("respawn", {"per_second": float("nan")}, "cannot be sent"),
        ("respawn", {"offsets": ["1"]}, "allowed: whole numbers"),
        ("respawn", {"offsets": 7}, "allowed: whole numbers"),
        ("respawn", {"offsets": [1 << 63]}, "allowed: a whole number of 64 bits"),
        ("purge", {"offsets": range(70_000)}, "at most 65536"),
        ("dead_letters", {"limit": 0}, "limit is 0"),
        ("dead_letters", {"limit": 10_001}, "limit is 10001"),
        ("dead_letters", {"after": "1"}, "after is '1'"),
    ],
)
def test_what_is_not_allowed(call: str, arguments: dict[str, Any], problem: str, common_client: Client) -> None:
    common_client.set_group("t", "g")
    with pytest.raises(InvalidArgumentError) as refused:
        getattr(common_client, call)(**{"topic": "t", "group": "g", **arguments})
    assert problem in str(refused.value)
    assert common_client.group_info("t", "g").tries == 16


@pytest.mark.parametrize(
    ("name", "body", "problem"),
    [
        ("set-group", {"topic": "t"}, "group is missing"),
        (
            "set-group",
            {"topic": "t", "group": "g", "retires": 1},
            "retires is not a field; allowed: topic, group, retry",
        ),
        ("group-info", [], "allowed: a JSON object"),
        ("groups", {"topic": 7}, "topic is 7"),
        ("delete-group", {"topic": "t", "group": None}, "group is None"),
        ("pause", {}, "topic is missing"),
        ("seek", {"topic": "t", "group": "g"}, "to is missing"),
        ("seek", {"topic": "t", "group": "g", "to": None}, "to is None"),
        ("set-topic", {"topic": "t", "late": "never"}, "late is 'never'"),
        ("set-topic", {"topic": "t", "lateness_ms_max": True}, "lateness_ms_max is True"),
        ("set-topic", {"topic": "%DLQ%t/g", "late": "drop"}, "dead letters"),
        ("topic-info", {"topic": ""}, "not a topic name"),
        ("purge", {"topic": "t", "group": "g", "offsets": "all"}, "offsets is 'all'"),
        ("respawn", {"topic": "t", "group": "g", "per_second": "1"}, "per_second is '1'"),
    ],
)
def test_bad_commands(name: str, body: Any, problem: str, common: Any) -> None:
    flight = fl.FlightClient(f"grpc://{common.address}")
    with pytest.raises(fl.FlightServerError) as caught:
        list(flight.do_action(fl.Action(name, json.dumps(body).encode())))
    error = decode_error(caught.value.extra_info)
    assert isinstance(error, InvalidArgumentError)
    assert problem in str(error)
    assert len(list(flight.do_action("ping"))) == 1


def test_pause_and_resume(client: Client) -> None:
    client.schedule("t", b"x")
    client.set_group("t", "g")
    client.pause("t", "g")
    wait_until(lambda: client.group_info("t", "g").lag == 1)
    assert client.receive("t", group="g") == []
    client.resume("t", "g")
    [message] = take(client, 1)
    message.ack()
    client.flush()
    assert client.group_info("t", "g").lag == 0


def test_a_policy_is_the_default_of_a_nack(client: Client) -> None:
    client.set_group("t", "g", retry="list 50ms 1h")
    client.schedule("t", b"x")
    [first] = take(client, 1)
    first.nack()
    [second] = take(client, 1)
    assert (first.attempt, second.attempt) == (1, 2)
    second.nack()
    client.flush()
    assert client.group_info("t", "g").waiting == 1
    assert client.receive("t", group="g") == []


def test_dead_letters(client: Client) -> None:
    fail(client, 5)
    dead_letters = client.dead_letters("t", "g")
    assert sorted(dead_letters.column("body").to_pylist()) == [b"%d" % i for i in range(5)]
    assert dead_letters.column("attempt").to_pylist() == [1] * 5
    assert dict(dead_letters.column("properties")[0].as_py())["tarry.dead.cause"] == "tries"
    offsets = dead_letters.column("offset").to_numpy()
    page = client.dead_letters("t", "g", limit=2, after=int(offsets[1]))
    assert page.column("offset").to_pylist() == offsets[2:4].tolist()
    assert client.purge("t", "g", offsets=offsets[:1]) == 1
    assert client.respawn("t", "g", offsets=[int(offsets[1])]) == 1
    client.set_group("t", "g", tries=0)
    [again] = take(client, 1)
    assert (again.body, again.attempt) == (dead_letters.column("body")[1].as_py(), 1)
    again.ack()
    assert client.respawn("t", "g", limit=1) == 1
    assert client.respawn("t", "g", per_second=1000.0) == 2
    assert {m.body for m in take(client, 3)} == set(dead_letters.column("body").to_pylist()[2:])
    assert client.dead_letters("t", "g").num_rows == 0
    assert client.dead_letters("t", "none").schema == dead_letters.schema
    assert (client.purge("t", "g"), client.respawn("t", "g")) == (0, 0)


def test_seek(client: Client) -> None:
    receipts = client.schedule_many({"topic": "t", "body": b"%d" % i, "due": OLD_MS + i} for i in range(10))
    for message in take(client, 10):
        message.ack()
    client.flush()
    assert client.group_info("t", "g").lag == 0
    assert client.seek("t", "g", receipts[6].due) == 4
    again = take(client, 4)
    assert sorted(m.body for m in again) == [b"6", b"7", b"8", b"9"]
    assert client.seek("t", "g", "earliest") == 10
    assert client.seek("t", "g", OLD_MS + 8) == 2
    assert client.seek("t", "g", datetime(2030, 1, 1, tzinfo=UTC)) == 0
    assert client.seek("t", "g", "latest") == 0
    assert client.receive("t", group="g") == []


def test_a_new_group_begins_where_its_consumer_says(client: Client) -> None:
    client.schedule("t", b"before")
    take(client, 1, "first")
    with client.consume("t", group="late", start="latest", timeout=30) as consumer:
        assert client.receive("t", group="later", start="latest") == []
        assert client.receive("t", group="early", start="earliest")[0].body == b"before"
        while len(client.groups("t")) < 4:
            pass  # the stream's group is made in its own time
        client.schedule("t", b"after")
        assert next(iter(consumer)).body == b"after"
    assert take(client, 1, "later", start="earliest")[0].body == b"after"  # of a group that is there, it says nothing
    with pytest.raises(InvalidArgumentError, match="start is 'middle'"):
        client.receive("t", group="x", start="middle")


def test_a_broadcast_reaches_every_consumer(client: Client) -> None:
    client.schedule("t", b"before")
    take(client, 1, "first")
    names = ["a", "b"]
    with client.consume("t", group="all", broadcast="stream", timeout=30) as consumer:
        for name in names:
            assert client.receive("t", group="all", broadcast=name) == []
        while "all@stream" not in [info.group for info in client.groups("t")]:
            pass
        client.schedule("t", b"after")
        for name in names:
            [message] = take(client, 1, "all", broadcast=name)
            assert message.body == b"after"
            message.ack()
            client.flush()
            assert client.group_info("t", f"all@{name}").lag == 0
        assert next(iter(consumer)).body == b"after"
    for wrong in ("", "a@b", 7, "x" * 300):
        with pytest.raises(InvalidArgumentError):
            client.receive("t", group="all", broadcast=wrong)  # type: ignore[arg-type]


def test_a_consumer_of_a_group_that_is_deleted_ends(client: Client) -> None:
    client.schedule("t", b"x")
    with client.consume("t", group="g", timeout=60) as consumer:
        messages = iter(consumer)
        next(messages)
        client.delete_group("t", "g")
        with pytest.raises(NotFoundError, match="the group was deleted"):
            next(messages)
    assert client.groups() == []


def test_an_ordered_group_gets_one_message_of_a_key_at_a_time(client: Client) -> None:
    client.set_group("t", "g", ordered=True)
    rows = ({"topic": "t", "body": b"%d" % i, "due": OLD_MS + i, "order_key": "ab"[i % 2]} for i in range(6))
    client.schedule_many(rows)
    for expected in ((b"0", b"1"), (b"2", b"3"), (b"4", b"5")):
        messages = take(client, 2)
        assert tuple(m.body for m in messages) == expected
        assert [m.order_key for m in messages] == ["a", "b"]
        assert client.receive("t", group="g", max_messages=9) == []
        for message in messages:
            message.ack()
        client.flush()
    assert client.schedule("t", b"plain")
    assert take(client, 1)[0].order_key is None


def test_a_filter(client: Client) -> None:
    client.set_group("t", "g", filter="sql: n > 1")
    client.set_group("t", "h", filter="b")
    client.schedule_many(
        {"topic": "t", "body": b"%d" % i, "tag": "ab"[i % 2], "properties": {"n": str(i)}} for i in range(4)
    )
    assert {m.body for m in take(client, 2)} == {b"2", b"3"}
    assert {m.body for m in take(client, 2, "h")} == {b"1", b"3"}


def test_async(served: Any) -> None:
    async def main() -> None:
        async with AsyncClient(served.address) as client:
            assert (await client.set_group("t", "g", tries=1)).tries == 1
            await client.pause("t", "g")
            assert (await client.group_info("t", "g")).paused
            await client.resume("t", "g")
            await client.schedule("t", b"x")
            [message] = await client.receive("t", group="g", wait=30, start="earliest")
            message.nack()
            await client.flush()
            while not (await client.groups("t"))[0].dead:
                pass
            assert (await client.dead_letters("t", "g", limit=1)).num_rows == 1
            assert await client.respawn("t", "g", limit=1, per_second=10) == 1
            assert await client.purge("t", "g", offsets=np.array([0])) == 0
            assert await client.seek("t", "g", "earliest") >= 1
            assert (await client.set_topic("t", late="deliver")).late == "deliver"
            assert (await client.topic_info("t")).late == "deliver"
            consumer = client.consume("t", group="g", broadcast="me", timeout=0.1)
            assert [m async for m in consumer] == []
            await client.delete_group("t", "g")
            with pytest.raises(NotFoundError):
                await client.group_info("t", "g")

    asyncio.run(main())
