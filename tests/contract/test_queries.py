"""Queries over the wire: pages, peeks, forecasts and figures, good and bad; and by both clients."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.contract.conftest import Served

from tarry.api.row_schemas import PEEKED
from tarry.api.views import Forecast, History, Page
from tarry.api.wire import decode_error
from tarry.base.config import Config
from tarry.base.errors import ForgedHandleError, InvalidArgumentError, NotFoundError, TarryError
from tarry.base.histogram import Histogram
from tarry.broker import Broker
from tarry.client import AsyncClient, Client
from tarry.fronts.flight.front import FlightFront
from tarry.message import handle
from tarry.message.schema import SCHEMA
from tarry.store import Store, stage


def pages(client: Client, **asked: Any) -> Iterator[Page]:
    cursor = None
    while True:
        page = client.list_pending(cursor=cursor, **asked)
        yield page
        cursor = page.cursor
        if cursor is None:
            return


def commit(broker: Broker) -> None:
    """What the schedule query does, without Spark."""
    state = broker.intake_state()
    store = Store.open(state["store_uri"])
    start, end = store.snapshot().committed_seq, state["durable_seq"]
    table = pa.Table.from_batches(list(broker.read_intake(start, end)), SCHEMA)
    fired = (table["due_ms"].to_numpy() < state["fired_until_ms"]) & (table["seq"].to_numpy() < state["fired_seq"])
    rest = table.filter(pa.array(~fired))
    files = stage(rest, store.root, f"test-{uuid.uuid4().hex}", state["now_ms"]) if rest.num_rows else []
    store.commit(files, start, end)
    broker.store_committed()


def test_pages(client: Client) -> None:
    for n in range(7):
        client.schedule("a", b"%d" % n, delay=3600 + n, key=f"k{n}", tag="even" if n % 2 == 0 else None, id=f"i{n}")
    found = list(pages(client, limit=3))
    assert [p.rows.num_rows for p in found] == [3, 3, 1]
    assert found[0].rows.schema.equals(SCHEMA, check_metadata=True)
    assert [b for p in found for b in p.rows["body"].to_pylist()] == [b"%d" % n for n in range(7)]
    assert client.list_pending(tag="even", bodies=False).rows["body"].to_pylist() == [b""] * 4
    assert client.list_pending(key="k3").rows["id"].to_pylist() == ["i3"]
    assert client.list_pending(id="i5", topic="a").rows["key"].to_pylist() == ["k5"]
    due = found[1].rows["due_ms"].to_pylist()
    assert client.list_pending(after_ms=due[0], until_ms=due[2]).rows["due_ms"].to_pylist() == due[:2]
    empty = client.list_pending(topic="nothing")
    assert (empty.rows.num_rows, empty.rows.schema, empty.cursor) == (0, SCHEMA, None)


def test_peeks_and_forecasts(client: Client) -> None:
    assert client.peek("a").schema == PEEKED
    client.schedule("a", b"now")
    client.schedule("a", b"later", delay="10m")
    [first] = client.receive("a", group="g", wait=10)
    assert client.peek("a", group="g")["body"].to_pylist() == [b"now"]
    first.ack()
    client.flush()
    assert client.peek("a", group="g").num_rows == 0
    with pytest.raises(NotFoundError, match="its groups are: g"):
        client.peek("a", group="other")
    found = client.forecast(unit="minute")
    assert isinstance(found, Forecast)
    assert (found.rows, len(found.loads), found.herd) == (1, 60, None)
    assert found.loads[10].rows + found.loads[11].rows == 1
    assert client.forecast(topic="b").rows == 0
    past = client.rates(topic="b", points_max=10)
    assert past.topic == "b" and past.step_ms == 10 * 60_000 and past.points == []


def test_histories(client: Client) -> None:
    receipt = client.schedule("a", b"x", delay=3600, key="k", id="m")
    found = client.history(receipt.handle)
    assert isinstance(found, History)
    assert [(e.event, e.seq) for e in found.events] == [("accepted", receipt.seq), ("pending", receipt.seq)]
    assert found.events[0].details["key"] == "k"
    assert client.history("m", topic="a").events == found.events
    assert client.cancel(receipt.handle) == "done"
    assert [e.event for e in client.history(receipt.handle).events] == ["accepted", "cancelled"]
    assert client.history("never").events == []
    forged = handle.encode(receipt.seq, receipt.due_ms, receipt.seq, 1, b"12345678")
    with pytest.raises(ForgedHandleError):
        client.history(forged)


def test_all_figures_at_once(client: Client) -> None:
    with client.consume("a", group="g", timeout=10) as consumer:
        messages = iter(consumer)
        for _ in range(3):
            client.schedule("a", b"x", delay=0.05)
            next(messages).ack()
        consumer.flush()
        client.schedule("b", b"x", delay=3600)
        found = client.overview(next_due=True)
    topics = {t["topic"]: t for t in found["topics"]["listed"]}
    assert {n: topics["a"][n] for n in ("accepted", "fired", "pending", "ready")} == {
        "accepted": 3, "fired": 3, "pending": 0, "ready": 0,
    }  # fmt: skip
    assert topics["b"]["pending"] == 1
    assert topics["b"]["next_due_ms"] > found["now_ms"]
    assert found["topics"]["sums"] == {"accepted": 4, "cancelled": 0, "fired": 3, "pending": 1, "ready": 0}
    assert (found["groups"]["count"], found["groups"]["lag"]) == (1, 0)
    assert found["groups"]["listed"][0]["group"] == "g"
    assert Histogram.from_json(found["lateness"]["queued"]).count == 3
    # The first may have been due before the consumer was there; then it waited.
    assert Histogram.from_json(found["lateness"]["delivered"]).count in (2, 3)
    assert Histogram.from_json(found["lateness"]["topics"]["a"]).min >= 0
    assert found["disk"]["free_bytes"] > 0
    assert found["intake"]["waiting_rows"] >= 1
    assert found["state"] == "serving"
    assert client.overview(most=1)["topics"]["listed"][0]["topic"] == "a"


def test_asyncio(served: Any) -> None:
    async def main() -> None:
        async with AsyncClient(served.address) as client:
            await client.schedule("a", b"x", delay=60, key="k")
            page = await client.list_pending(key="k")
            assert page.rows["body"].to_pylist() == [b"x"]
            assert (await client.peek("a")).num_rows == 0
            assert (await client.forecast(unit="minute")).rows == 1
            assert (await client.overview())["topics"]["count"] == 1
            assert len((await client.history("m")).events) == 0
            assert (await client.pending())[0].pending == 1
            assert (await client.status())["state"] == "serving"
            assert "version" in await client.ping()

    asyncio.run(main())


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One broker for all that is refused."""
    found = Served(tmp_path_factory.mktemp("common") / "data")
    yield found
    found.stop()


def refused(address: str, ticket: Any = None, action: str | None = None, body: Any = None) -> TarryError:
    flight = fl.FlightClient(f"grpc://{address}")
    with pytest.raises(fl.FlightServerError) as caught:
        if action is None:
            flight.do_get(fl.Ticket(json.dumps(ticket).encode())).read_all()
        else:
            list(flight.do_action(fl.Action(action, json.dumps(body).encode())))
    flight.close()
    return decode_error(caught.value.extra_info)


@pytest.mark.parametrize(
    ("ticket", "text"),
    [
        ({"op": "list"}, "op of a ticket is 'list'; allowed: receive, dead-letters, list-pending, peek, "),
        ({"op": "list-pending", "limit": 0}, "limit is 0; allowed: 1 to 1000"),
        ({"op": "list-pending", "limit": -1}, "limit is -1"),
        ({"op": "list-pending", "limit": "7"}, "limit is '7'"),
        ({"op": "list-pending", "cursor": "AAAA"}, "not a cursor"),
        ({"op": "list-pending", "cursor": "é"}, "not a cursor"),
        ({"op": "list-pending", "after_ms": 1 << 63}, "after_ms is"),
        ({"op": "list-pending", "topic": "a b"}, "topic 'a b' is not a topic name"),
        ({"op": "list-pending", "colour": "red"}, "colour is not a field"),
        ({"op": "peek"}, "topic is missing"),
        ({"op": "peek", "topic": "a", "limit": 5000}, "limit is 5000; allowed: 1 to 1000"),
    ],
)
def test_bad_tickets_are_refused(common: Served, ticket: Any, text: str) -> None:
    error = refused(common.address, ticket)
    assert isinstance(error, InvalidArgumentError)
    assert text in str(error)
    with Client(common.address) as client:
        assert client.ping()


@pytest.mark.parametrize(
    ("action", "body", "text"),
    [
        ("rates", {"since_ms": 9, "until_ms": 9}, "since_ms is 9; allowed: before until_ms, 9"),
        ("rates", {"points_max": 1501}, "points_max is 1501; allowed: a whole number, 1 to 1500"),
        ("rates", {"topic": "no topic"}, "topic 'no topic' is not a topic name"),
        ("forecast", {"unit": "fortnight"}, "unit is 'fortnight'; allowed: minute, hour, day"),
        ("forecast", {"until_ms": 5}, "until_ms is 5; allowed: after"),
        ("forecast", {"until_ms": "tomorrow"}, "until_ms is 'tomorrow'"),
        ("forecast", [], "a command is list"),
        ("history", {}, "what is missing"),
        ("history", {"what": ""}, "what is ''; allowed: a handle, or an id"),
        ("history", {"what": "x", "topic": "a b"}, "topic 'a b' is not a topic name"),
        ("overview", {"most": -1}, "most is -1"),
        ("overview", {"most": 1, "least": 1}, "least is not a field"),
    ],
)
def test_bad_actions_are_refused(common: Served, action: str, body: Any, text: str) -> None:
    error = refused(common.address, action=action, body=body)
    assert isinstance(error, InvalidArgumentError)
    assert text in str(error)
    with Client(common.address) as client:
        assert client.ping()


@pytest.mark.rest
def test_pages_while_messages_move_under_real_threads(tmp_path: Path) -> None:
    """Scheduled, cancelled, delivered, committed to the store and deleted from the intake: what stays pending is on
    exactly one page. It goes on until segments were deleted while they were listed.
    """
    small: dict[str, Any] = {"segment_bytes_max": 64 << 10, "horizon_ms": 1000, "checkpoint_interval_ms": 50}
    config = Config(data=tmp_path, pipeline="off", disk_free_bytes_min=0, **small)
    with Broker.open(config) as broker, FlightFront.start(broker, "127.0.0.1:0") as front:
        churn = _Churn(broker, front.address)
        with Client(front.address) as client:
            made = client.schedule_many({"topic": "a", "body": b"x", "delay": 3600} for _ in range(1000))
            stay = {receipt.seq for receipt in made}
            with churn:
                deadline, rounds = time.monotonic() + 120, 0
                while rounds < 5 or broker.intake_state()["first_seq"] <= 1000:
                    assert time.monotonic() < deadline, "no segment was deleted"
                    rounds += 1
                    keys = [
                        key
                        for page in pages(client, limit=250, bodies=False)
                        for key in zip(page.rows["due_ms"].to_pylist(), page.rows["seq"].to_pylist(), strict=True)
                    ]
                    assert keys == sorted(set(keys))
                    assert stay <= {seq for _, seq in keys}
                    [topic] = client.pending()
                    assert topic.next_due_ms is not None
                    assert client.forecast().rows >= len(stay)
                    assert client.overview()["state"] == "serving"
                    client.peek("a", limit=50)


class _Churn:
    """Traffic of all kinds, while the context lasts."""

    def __init__(self, broker: Broker, address: str) -> None:
        self._broker = broker
        self._address = address
        self._stop = threading.Event()
        self._failures: list[Exception] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._failures, self._failures

    def _run(self) -> None:
        rng = random.Random(7)
        try:
            with Client(self._address) as client:
                while not self._stop.is_set():
                    delays = [rng.choice([0.01, 0.5, 3600]) for _ in range(50)]
                    made = client.schedule_many({"topic": "a", "body": b"y" * 500, "delay": d} for d in delays)
                    client.cancel_many([r.handle for r in made[::3]])
                    client.receive("a", group="g", max_messages=500)
                    commit(self._broker)
        except Exception as error:  # noqa: BLE001  the test fails with it
            self._failures.append(error)


def test_many_who_look_at_once_are_all_answered(served: Any, client: Client) -> None:
    client.schedule_many({"topic": "a", "body": b"x", "delay": 3600} for _ in range(500))
    found: list[int] = []

    def look() -> None:
        with Client(served.address) as other:
            # A page ends early where reading it takes long: there may be more than one.
            listed = sum(page.rows.num_rows for page in pages(other, limit=1000))
            found.append(listed + other.forecast().rows)

    threads = [threading.Thread(target=look) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [1000] * 20
