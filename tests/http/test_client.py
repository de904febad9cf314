"""The Python client by HTTP, on a real broker; what it says is compared with what the same calls say in its process."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tarry import Client, DelayLevel, Repeat
from tarry.api.operations import AdvanceClock, BeginBackup, CancelJob, Ping
from tarry.base import errors
from tarry.client.consume_options import CheckedConsumeOptions
from tarry.client.http.address import HttpAddress, http_addresses
from tarry.client.http.consumer import HttpConsumer
from tarry.client.http.exchange import Exchange
from tarry.client.http.received import HttpBatch
from tarry.client.http.rows import fields_of
from tarry.client.http.settling import HttpSettler
from tarry.client.way import LONG_S, patience_s
from tarry.message.options import OPTIONS
from tarry.message.rows import make_row
from tests.http.rest import Rest
from tests.ports import free_port
from tests.sources import PYTHON_PATH, ROOT
from tests.waiting import wait_until

NATIVE_ONLY = ("pyarrow", "numpy", "pydantic", "uvloop", "deltalake", "httptools", "starlette", "rocksdict", "httpx")
SAID: dict[str, Any] = {
    "id": "an-id",
    "key": "a key/ü",
    "on_key": "keep",
    "if_seq": 7,
    "tag": "vip",
    "properties": {"shop": "42", "Größe": "XL"},
    "ttl": "3000d",
    "late": "dead",
    "tries": 3,
    "repeat": Repeat.cron("0 9 * * MON-FRI", "Europe/Berlin"),
    "order_key": "customer-7",
    "spread": "1h",
}
"""A value of each option."""


@pytest.fixture
def client(rest: Rest) -> Iterator[Client]:
    with Client(f"http://{rest.front.address}") as made:
        yield made


def test_a_message_from_its_receipt_to_its_acknowledgement(client: Client) -> None:
    receipt = client.schedule("orders", b"unpaid?", delay="30d", key="order-7")
    assert client.find_key("orders", "order-7") == receipt
    moved = client.reschedule(receipt.handle, delay="31d")
    assert moved.outcome == "done" and moved.receipt is not None and moved.receipt.due_ms > receipt.due_ms
    assert client.cancel(receipt) == "cancelled"
    assert client.cancel(moved.receipt) == "done"
    assert client.find_key("orders", "order-7") is None
    assert client.cancel_key("orders", "order-7") == "cancelled"

    client.schedule("orders", b"\x00\xff", properties={"a": "ü"})
    [message] = client.receive("orders", group="billing", wait=20)
    assert (message.body, message.properties, message.attempt, message.key) == (b"\x00\xff", {"a": "ü"}, 1, None)
    message.nack(delay=0.001, reason="not yet")
    client.flush()
    [again] = client.receive("orders", group="billing", wait=20)
    assert (again.id, again.attempt) == (message.id, 2)
    again.ack()
    client.flush()
    info = client.group_info("orders", "billing")
    assert (info.lag, info.leased) == (0, 0)


def test_every_option_arrives_as_it_was_said(rest: Rest, client: Client) -> None:
    assert SAID.keys() == {option.name for option in OPTIONS}
    said = {name: value for name, value in SAID.items() if name not in ("on_key", "if_seq", "spread")}
    by_http = client.schedule("by-http", "text", due=datetime(2031, 1, 1, tzinfo=UTC), **said)
    beside = rest.broker.schedule("beside", "text", due=datetime(2031, 1, 1, tzinfo=UTC), **said)
    assert (by_http.id, by_http.due_ms, by_http.outcome) == (beside.id, beside.due_ms, beside.outcome)
    one, other = (
        rest.broker.list_pending(topic=topic).rows.drop_columns(["topic", "seq", "born_ms", "expire_ms"]).to_pylist()
        for topic in ("by-http", "beside")
    )
    assert one == other and one[0]["tries"] == 3
    spread = [each.schedule("spread", "x", delay=60, spread="1h", id="7") for each in (client, rest.broker)]
    assert [each.outcome for each in spread] == ["scheduled", "duplicate"] and spread[0].due_ms == spread[1].due_ms
    assert client.schedule("by-http", "x", key=said["key"], on_key="keep").outcome == "kept"
    absent = client.schedule("by-http", "x", key="absent", on_key="if_pending")
    assert (absent.outcome, absent.seq, absent.handle) == ("not_pending", -1, "")


@pytest.mark.parametrize("option", SAID)
def test_an_option_is_a_field_of_its_name(option: str) -> None:
    said = {option: SAID[option]} | ({"key": "k"} if option in ("on_key", "if_seq") else {})
    fields = fields_of(make_row("orders", b"x", **said))  # type: ignore[arg-type]
    assert option in fields and fields.keys() <= {"topic", "body_base64", "delay_ms", *SAID}


def test_a_level_goes_without_the_delay_that_a_table_of_its_own_gives_it() -> None:
    fields = fields_of(make_row("orders", b"x", delay=DelayLevel(3)))
    assert fields == {"topic": "orders", "body_base64": "eA==", "delay_level": 3}


def test_operations_give_what_they_give_in_the_process(rest: Rest, client: Client) -> None:
    client.schedule("orders", b"later", delay="2h", id="an-id")
    assert client.set_group("orders", "vips", filter="vip || new", tries=5) == rest.broker.group_info("orders", "vips")
    assert client.groups() == rest.broker.groups()
    client.pause("orders", "vips")
    assert rest.broker.group_info("orders", "vips").paused
    client.resume("orders", "vips")
    assert client.seek("orders", "vips", "latest") == 0
    assert client.set_topic("orders", late="dead") == rest.broker.topic_info("orders")
    assert client.has_topic("orders") and not client.has_topic("none")
    assert client.pending() == rest.broker.pending()
    assert client.history("an-id") == rest.broker.history("an-id")
    assert client.forecast(unit="day").rows == 1
    assert client.status()["state"] == "serving"
    assert client.overview(always=["orders"])["topics"]
    page = client.list_pending(topic="orders", limit=1)
    assert page.rows.equals(rest.broker.list_pending(topic="orders", limit=1).rows) and page.cursor is None
    assert client.dead_letters("orders", "vips").num_rows == 0
    assert client.purge("orders", "vips", offsets=[1, 2]) == 0
    client.delete_group("orders", "vips")
    assert not client.has_topic("none")


def test_pages_go_on_by_their_cursor(client: Client) -> None:
    client.schedule_many({"topic": "orders", "body": str(number), "delay_ms": 3_600_000} for number in range(5))
    page = client.list_pending(topic="orders", limit=3)
    assert page.cursor is not None
    rest = client.list_pending(topic="orders", limit=3, cursor=page.cursor)
    assert (page.rows.num_rows, rest.rows.num_rows, rest.cursor) == (3, 2, None)


def test_many_messages_have_their_receipts_in_order(client: Client) -> None:
    receipts = client.schedule_many({"topic": "many", "body": str(number), "delay": "1h"} for number in range(5000))
    assert [receipt.seq for receipt in receipts] == sorted(receipt.seq for receipt in receipts)
    assert set(client.cancel_many([receipt.handle for receipt in receipts])) == {"done"}


def test_a_refused_message_of_many_is_named_by_its_row(client: Client) -> None:
    messages = [{"topic": "many", "body": "x"}, {"topic": "many", "body": "x", "delay": "100000d"}]
    with pytest.raises(errors.DelayTooLongError) as refused:
        client.schedule_many(messages)
    assert refused.value.row == 1
    with pytest.raises(errors.InvalidMessageError, match="row 1: topic ''"):
        client.schedule_many([{"topic": "many", "body": "x"}, {"topic": "", "body": "x"}])


def test_a_consumer_gets_all_of_it_in_several_threads_once(client: Client) -> None:
    client.schedule_many({"topic": "many", "body": str(number)} for number in range(600))
    consumer = client.consume("many", group="g", timeout=3)
    got: list[bytes] = []

    def consume() -> None:
        for message in consumer:
            with message:
                got.append(message.body)

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    consumer.flush()
    assert sorted(got, key=int) == [str(number).encode() for number in range(600)]
    assert client.group_info("many", "g").lag == 0


def test_a_consumer_keeps_the_lease_of_what_it_works_on(client: Client) -> None:
    client.schedule("orders", b"slow")
    for message in client.consume("orders", group="g", lease="1s", timeout=20):
        with message:
            assert client.receive("orders", group="g", wait=2.5) == []
        break
    client.flush()
    assert client.group_info("orders", "g").lag == 0


def test_what_a_loop_goes_on_from_without_a_word_comes_again(client: Client) -> None:
    """Its lease was extended for as long as the consumer was there."""
    client.schedule("orders", b"forgotten")
    for message in client.consume("orders", group="g", lease="1s", timeout=4):
        if message.attempt == 2:
            message.ack()
    client.flush()
    assert client.group_info("orders", "g").lag == 0


def test_what_is_extended_by_hand_stays_so_while_the_loop_goes_on(client: Client) -> None:
    client.schedule_many([{"topic": "orders", "body": b"x"}] * 2)
    wait_until(lambda: any(each.ready == 2 for each in client.pending()))
    messages = iter(client.consume("orders", group="g", lease="1s", timeout=20))
    first = next(messages)
    first.extend("1h")
    with next(messages):
        assert client.receive("orders", group="g", wait=2.5) == []
    assert not first.lost
    with first:
        assert client.receive("orders", group="g", wait=1.5) == []
    client.flush()
    assert client.group_info("orders", "g").lag == 0


def test_what_a_loop_leaves_is_ready_again_and_what_fails_has_its_reason(client: Client) -> None:
    client.set_group("orders", "g", tries=1)
    client.schedule_many({"topic": "orders", "body": str(number)} for number in range(2))
    with pytest.raises(ZeroDivisionError), client.consume("orders", group="g", timeout=20) as consumer:
        for message in consumer:
            with message:
                raise ZeroDivisionError("of the first")
    dead = client.dead_letters("orders", "g").to_pylist()
    reasons = [dict(each["properties"]).get("tarry.dead.reason") for each in dead]
    assert "ZeroDivisionError: of the first" in reasons


def test_each_refusal_has_its_code(client: Client) -> None:
    calls: list[tuple[str, Any]] = [
        ("invalid_message", lambda: client.schedule("", b"x")),
        ("delay_too_long", lambda: client.schedule("orders", b"x", delay="100000d")),
        ("invalid_argument", lambda: client.cancel("no-handle")),
        ("not_found", lambda: client.group_info("orders", "nobody")),
        ("invalid_argument", lambda: client.receive("orders", group="g", max_messages=0)),
        ("invalid_argument", lambda: client.consume("orders", group="g", timeout=0)),
        ("native_only", lambda: client.schedule_batch([])),
        ("native_only", lambda: next(iter(client.consume("orders", group="g").batches()))),
        ("native_only", lambda: client.queue_state()),
        ("unavailable", lambda: Client(f"http://127.0.0.1:{free_port()}").ping()),
    ]
    for code, call in calls:
        with pytest.raises(errors.TarryError) as refused:
            call()
        assert refused.value.code == code, refused.value
    client.schedule("orders", b"x", key="k", delay="1h")
    with pytest.raises(errors.KeyExistsError):
        client.schedule("orders", b"x", key="k", on_key="refuse")
    client.schedule("orders", b"x")
    [message] = client.receive("orders", group="g", wait=20)
    with pytest.raises(errors.InvalidArgumentError):
        message.reject()


def test_what_a_lease_that_is_over_settles_is_told_by_flush(client: Client) -> None:
    client.schedule("orders", b"x")
    [message] = client.receive("orders", group="g", wait=20, lease=0.001)
    [again] = client.receive("orders", group="g", wait=20)
    message.ack()
    with pytest.raises(errors.StaleLeaseError):
        client.flush()
    again.ack()
    client.flush()


def test_an_address_that_answers_is_found_among_several(rest: Rest) -> None:
    with Client(f"http://127.0.0.1:{free_port()},http://{rest.front.address}") as client:
        assert client.ping()["version"]
        assert client.schedule("orders", b"x").outcome == "scheduled"


@pytest.mark.parametrize("address", ["http://", "http://host", "http://a:1,b:2", "https://a:1/path", "http://a:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="http://HOST:PORT"):
        http_addresses(address)


def test_a_closed_client_asks_nothing(client: Client) -> None:
    client.close()
    for call in (client.ping, lambda: client.schedule("orders", b"x"), lambda: client.consume("orders", group="g")):
        with pytest.raises(errors.ClosedError):
            call()


def test_its_readme_runs_without_what_the_native_link_needs(rest: Rest, tmp_path: Path) -> None:
    text = (ROOT / "packages/client/README.md").read_text()
    [program] = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    hidden = f"import sys\nfor name in {NATIVE_ONLY}:\n    sys.modules[name] = None\n"
    tail = (
        "import tarry\n"
        "try:\n    Client('localhost:7611')\nexcept tarry.TarryError as error:\n    print(error.code)\n"
        "try:\n    client.dead_letters('orders', 'billing')\nexcept tarry.TarryError as error:\n    print(error.code)\n"
    )
    program = program.replace("localhost:7777", rest.front.address).replace("timeout=5", "timeout=3")
    done = subprocess.run(
        [sys.executable, "-c", hidden + program + tail],
        cwd=tmp_path, env={"PYTHONPATH": PYTHON_PATH, "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("b'now'\nnative_only\nnative_only\n", 0), done.stderr


def test_what_may_take_minutes_is_waited_for_on_both_ways() -> None:
    """Of HTTP, the beginning of a backup was not."""
    assert [patience_s(each, 2.0) for each in (BeginBackup(), AdvanceClock(by="30d"), CancelJob("j"), Ping())] == [
        *(LONG_S, LONG_S, LONG_S),
        2.0,
    ]


def test_an_answer_that_is_as_old_as_a_lease_is_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stood still while it was on its way: the broker has handed the message out again since."""
    now_s = 1000.0
    monkeypatch.setattr("tarry.client.http.consumer.time", SimpleNamespace(monotonic=lambda: now_s, sleep=None))
    exchange = Exchange((HttpAddress("127.0.0.1", 1, is_tls=False),), 1.0, None, "a token")
    settler = HttpSettler(exchange)
    monkeypatch.setattr(settler, "tend", lambda _: None)
    answers = iter([("first", 0.0), ("old", 40.0), ("fresh", 5.0)])
    waits: list[float] = []

    def fetch(_: int, wait_s: float) -> HttpBatch:
        nonlocal now_s
        waits.append(wait_s)
        body, took_s = next(answers)
        now_s += took_s
        message = {"body": body.encode(), "delivery": body, "due_ms": 0, "id": body, "attempt": 1}
        return HttpBatch([message], settler, ("t", "g"))

    options = CheckedConsumeOptions(auto_ack=False)
    consumer = HttpConsumer(fetch, lambda: 30_000, settler, options, "an address", "consuming t as g")
    messages = iter(consumer)
    assert [next(messages).body for _ in range(2)] == [b"first", b"fresh"]
    assert waits == [20, 15, 15], "no longer than half a lease, once it is known"
