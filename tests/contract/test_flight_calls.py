"""DoGet and DoAction, spoken with bare pyarrow; and starting and stopping the front."""

from __future__ import annotations

import json
import re
import socket
import threading
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.link.raw_client import RawClient

from tarry.api.row_schemas import DELIVERY
from tarry.api.wire import decode_error
from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.client import Client
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.kit.exposure import ExposureSettings
from tarry.link.frames import FrameKind, SettleOp
from tarry.message.schema import SCHEMA


class Calls:
    def __init__(self, address: str) -> None:
        self.flight = fl.FlightClient(f"grpc://{address}")

    def action(self, name: str, body: Any = None) -> Any:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        [result] = self.flight.do_action(fl.Action(name, raw))
        return json.loads(result.body.to_pybytes())

    def get(self, ticket: Any) -> pa.Table:
        raw = ticket if isinstance(ticket, bytes) else json.dumps(ticket).encode()
        return self.flight.do_get(fl.Ticket(raw)).read_all()


@pytest.fixture
def calls(served: Any) -> Calls:
    return Calls(served.address)


@pytest.fixture
def common_calls(common: Any) -> Calls:
    return Calls(common.address)


def refused(call: Any, *args: Any) -> Any:
    with pytest.raises(fl.FlightServerError) as caught:
        call(*args)
    return decode_error(caught.value.extra_info)


RECEIVE = {"op": "receive", "topic": "t", "group": "g"}


def test_receive_and_settle(calls: Calls, client: Client) -> None:
    client.schedule_many({"topic": "t", "body": b"%d" % i} for i in range(3))
    table = calls.get({**RECEIVE, "max_messages": 3, "wait_ms": 10_000})
    assert table.schema == DELIVERY
    while table.num_rows < 3:
        table = pa.concat_tables([table, calls.get({**RECEIVE, "max_messages": 3, "wait_ms": 10_000})])
    leases, offsets = table["lease"].to_pylist(), table["offset"].to_pylist()
    where = {"topic": "t", "group": "g"}
    assert calls.action("extend", {**where, "leases": leases, "offsets": offsets, "lease_ms": 60_000}) == {"settled": 3}
    assert calls.action("ack", {**where, "leases": leases[:1], "offsets": offsets[:1]}) == {"settled": 1}
    again = {**where, "leases": leases[1:], "offsets": offsets[1:], "delay_ms": 0}
    assert calls.action("nack", again) == {"settled": 2}
    error = refused(calls.action, "ack", {**where, "leases": leases, "offsets": offsets})
    assert error.code == "stale_lease"
    second = calls.get({**RECEIVE, "max_messages": 3, "wait_ms": 10_000})
    assert second["attempt"].to_pylist() == [2] * second.num_rows


def test_an_empty_receive_has_the_schema(calls: Calls) -> None:
    table = calls.get(RECEIVE)
    assert (table.num_rows, table.schema) == (0, DELIVERY)


def test_a_long_poll_ends_with_the_message(calls: Calls, client: Client) -> None:
    found: list[pa.Table] = []
    poll = threading.Thread(target=lambda: found.append(calls.get({**RECEIVE, "wait_ms": 60_000})))
    poll.start()
    client.schedule("t", b"now")
    poll.join(30)
    assert found[0]["body"].to_pylist() == [b"now"]


def test_a_long_poll_whose_client_left_keeps_nothing(served: Any, client: Client) -> None:
    leaving = Calls(served.address)
    ticket = fl.Ticket(json.dumps({**RECEIVE, "wait_ms": 60_000, "lease_ms": 3_600_000}).encode())
    with pytest.raises(fl.FlightTimedOutError):
        leaving.flight.do_get(ticket, fl.FlightCallOptions(timeout=0.2)).read_all()
    client.schedule("t", b"for who stayed")
    [message] = client.receive("t", group="g", wait=30)
    assert message.body == b"for who stayed"


def test_intake(calls: Calls, client: Client) -> None:
    client.schedule_many({"topic": "t", "body": b"%d" % i, "delay": "1h"} for i in range(10))
    table = calls.get({"op": "intake", "start": 2, "end": 7})
    assert table.schema == SCHEMA
    assert table["seq"].to_pylist() == [2, 3, 4, 5, 6]
    assert table["body"].to_pylist() == [b"2", b"3", b"4", b"5", b"6"]


@pytest.mark.parametrize(
    ("ticket", "problem"),
    [
        (b"garbage", "not JSON"),
        (b"", "not JSON"),
        ({"op": "drop"}, "op of a ticket is 'drop'"),
        ({"op": "receive", "topic": "t"}, "group is missing"),
        ({**RECEIVE, "max_messages": 0}, "max_messages is 0"),
        ({**RECEIVE, "wait_ms": -1}, "wait_ms is -1"),
        ({**RECEIVE, "topic": "t t"}, "'t t'"),
        ({**RECEIVE, "wait": 1}, "wait is not a field"),
        ({"op": "intake", "start": 0}, "end is missing"),
        ({"op": "intake", "start": 7, "end": 2}, "start is 7, end 2"),
    ],
)
def test_bad_tickets(ticket: Any, problem: str, common_calls: Calls) -> None:
    assert problem in str(refused(common_calls.get, ticket))
    assert common_calls.action("ping")["version"]


@pytest.mark.parametrize(
    ("name", "body", "code"),
    [
        ("unknown", {}, "not_found"),
        ("ack", {}, "invalid_argument"),
        ("ack", b"\xff", "invalid_argument"),
        ("ack", {"topic": "t", "group": "g", "leases": [1], "offsets": []}, "invalid_argument"),
        ("ack", {"topic": "t", "group": "g", "leases": [1 << 70], "offsets": [1]}, "invalid_argument"),
        ("ack", {"topic": "t", "group": "g", "leases": [1], "offsets": [1]}, "not_found"),
        ("nack", {"topic": "t", "group": "g", "leases": [], "offsets": [], "delay_ms": -1}, "invalid_argument"),
        ("extend", {"topic": "t", "group": "g", "leases": [], "offsets": []}, "invalid_argument"),
        ("extend", {"topic": "t", "group": "g", "leases": [], "offsets": [], "lease_ms": 0}, "invalid_argument"),
        ("pipeline-status", [1], "invalid_argument"),
    ],
)
def test_bad_actions(name: str, body: Any, code: str, common_calls: Calls) -> None:
    assert refused(common_calls.action, name, body).code == code
    assert common_calls.action("ping")["version"]


def test_queries(calls: Calls, client: Client) -> None:
    receipt = client.schedule("t", b"later", delay="1h")
    assert calls.action("pending") == [{"topic": "t", "pending": 1, "next_due_ms": receipt.due_ms, "ready": 0}]
    state = calls.action("intake-state")
    assert (state["durable_seq"], state["shard"]) == (1, 0)
    assert calls.action("store-committed") == {}
    assert calls.action("pipeline-status", {"state": "running"}) == {}
    assert calls.action("status")["pipeline"]["state"] == "running"
    assert {a.type for a in calls.flight.list_actions()} >= {"ack", "nack", "extend", "ping", "status", "pending"}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (b'{"note": "' + b"x" * 70_000 + b'"}', "bytes of JSON"),
        (json.dumps({f"n{n}": n for n in range(70)}).encode(), "70 names|71 names|72 names"),
        (b'{"a": NaN}', "cannot be shown"),
        (b'{"ui": "javascript:alert(1)"}', "ui is 'javascript:"),
        (b'{"ui": ["http://x"]}', "ui is"),
    ],
)
def test_what_the_pipeline_says_is_bounded(calls: Calls, status: bytes, why: str) -> None:
    assert calls.action("pipeline-status", {"state": "running", "ui": "http://127.0.0.1:4040"}) == {}
    error = refused(calls.action, "pipeline-status", status)
    assert error.code == "invalid_argument"
    assert re.search(why, str(error))
    assert calls.action("status")["pipeline"] == {"state": "running", "ui": "http://127.0.0.1:4040"}


def test_a_port_in_use_is_a_clear_error(served: Any) -> None:
    with pytest.raises(UnavailableError, match=f"cannot listen on {served.address}: Address already in use"):
        FlightFront.start(served.broker, served.address)


def test_addresses_that_cannot_be_listened_on(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="insecure_open=flight"):
        FlightFront.start(served.broker, "203.0.113.1:7611")
    monkeypatch.setattr(ExposureSettings, "of", lambda _: ExposureSettings(insecure_open="flight"))
    with pytest.raises(UnavailableError, match="cannot listen on"):
        FlightFront.start(served.broker, "203.0.113.1:7611")
    with pytest.raises(InvalidArgumentError, match="HOST:PORT"):
        FlightFront.start(served.broker, "7611")


def test_stop_frees_the_port_and_may_be_called_twice(served: Any) -> None:
    port = served.front.port
    served.front.stop()
    served.front.stop()
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_long_poll_does_not_hold_up_the_stop(served: Any, calls: Calls) -> None:
    ended = threading.Event()

    def poll() -> None:
        try:
            calls.get({**RECEIVE, "wait_ms": 600_000})
        except (fl.FlightUnavailableError, fl.FlightServerError):
            pass
        ended.set()

    threading.Thread(target=poll, daemon=True).start()
    calls.action("ping")
    served.front.stop(grace_s=30)
    assert ended.wait(30)


def holding(address: str) -> tuple[RawClient, int, pa.RecordBatch]:
    """A client of the link that has a message, its group and the message."""
    client = RawClient(address)
    group = client.group("t", "g")
    client.schedule(topic=["t"], body=[b"x"], delay_ms=[0])
    client.poll(1, group)
    return client, group, client.batch(1)


def test_a_stopping_front_lets_clients_of_the_link_settle(served: Any) -> None:
    client, group, batch = holding(served.address)
    stopping = threading.Thread(target=served.front.stop, args=(60,))
    stopping.start()
    assert json.loads(client.read(FrameKind.REFUSED, 0))["code"] == "unavailable"
    assert client.settle(SettleOp.ACK, group, batch) == b""
    assert client.ended() is None
    client.close()
    stopping.join(60)
    assert not stopping.is_alive()


def test_stopping_cuts_a_client_of_the_link_that_does_not_react(served: Any) -> None:
    client, _, _ = holding(served.address)
    served.front.stop(grace_s=0.1)
    assert json.loads(client.read(FrameKind.REFUSED, 0))["code"] == "unavailable"
    assert client.ended() is None
    client.close()
