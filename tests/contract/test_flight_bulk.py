"""Bulk jobs over Flight: loaded, listed and cancelled by a client that has nothing but the wire."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.contract.conftest import Served

from tarry.api.jobs import JobState
from tarry.base.errors import from_wire
from tarry.client import Client
from tarry.message.admission import admit
from tarry.message.bulk import first_seq
from tarry.message.schema import SCHEMA, UNNUMBERED
from tarry.store import stage


@pytest.fixture
def act(served: Served) -> Any:
    """``act(action, field=value, …)`` gives the answer."""
    with flight.FlightClient(f"grpc://{served.address}") as wire:

        def call(action: str, **fields: Any) -> Any:
            try:
                [result] = wire.do_action(flight.Action(action, json.dumps(fields).encode()))
            except flight.FlightError as error:
                raise from_wire(**json.loads(error.extra_info)) from error
            return json.loads(result.body.to_pybytes())

        yield call


NOW_MS = 1_795_264_000_000


def rows(count: int, due_ms: int, topic: str = "orders") -> pa.RecordBatch:
    bodies = [b"%d" % i for i in range(count)]
    given = {"topic": [topic] * count, "due_ms": pa.array([due_ms] * count, pa.int64()), "body": bodies}
    return admit(pa.record_batch(given), max(0, due_ms - 1))


def send(served: Served, number: int, batches: list[pa.RecordBatch], schema: pa.Schema = UNNUMBERED) -> Any:
    with flight.FlightClient(f"grpc://{served.address}") as wire:
        command = flight.FlightDescriptor.for_command(json.dumps({"op": "bulk-stage", "number": number}).encode())
        writer, reader = wire.do_put(command, schema)
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        answer = reader.read()
        writer.close()
        return json.loads(answer.to_pybytes())


def received(client: Client, topic: str, count: int) -> list[bytes]:
    with client.consume(topic, group="g", timeout=30) as consumer:
        got: list[bytes] = []
        for message in consumer:
            got.append(message.body)
            message.ack()
            if len(got) == count:
                break
    return sorted(got)


def test_staged_by_the_broker(served: Served, client: Client, act: Callable[..., Any]) -> None:
    begun = act("bulk-begin", job="nightly")
    assert (begun["state"], begun["shard"]) == ("open", 0)
    assert begun["limits"]["body_bytes_max"] == 4 << 20
    soon = int(time.time() * 1000) + 300
    staged = send(served, begun["number"], [rows(300, soon), rows(200, soon)])
    assert staged["topics"] == {"orders": 500}
    assert client.pending() == [], "nothing is there before the commit"
    done = act("bulk-commit", number=begun["number"], keys=0, **staged)
    assert (done["state"], done["rows"], done["topics"]) == ("committed", 500, {"orders": 500})
    again = act("bulk-commit", number=begun["number"], keys=0, **staged)
    # The store's version at that moment: the broker's own commit of what was sent singly may have come in between.
    assert again.pop("version") >= done.pop("version")
    assert again == done
    assert act("bulk-begin", job="nightly")["state"] == "committed"
    assert received(client, "orders", 500) == sorted([b"%d" % i for i in range(300)] + [b"%d" % i for i in range(200)])


def test_staged_by_a_task(client: Client, act: Callable[..., Any]) -> None:
    begun = act("bulk-begin", job="nightly")
    start = act("bulk-reserve", number=begun["number"], rows=5)["first_seq"]
    assert start == first_seq(begun["number"])
    far = rows(5, begun["now_ms"] + 86_400_000)
    table = pa.Table.from_batches([far]).add_column(0, SCHEMA.field("seq"), pa.array(range(start, start + 5)))
    files = stage(table, begun["store_uri"], "bulk-0", begun["now_ms"], shard=begun["shard"])
    act("bulk-commit", number=begun["number"], files=[asdict(file) for file in files], topics={"orders": 5})
    [pending] = client.pending()
    assert (pending.topic, pending.pending) == ("orders", 5)
    cancelled = client.cancel_job("nightly")
    assert (cancelled.outcome, cancelled.cancelled, cancelled.rows) == ("done", 5, 5)
    assert client.pending()[0].pending == 0
    assert client.cancel_job("nightly").outcome == "cancelled"
    assert client.cancel_job("other").outcome == "unknown"
    [job] = client.jobs("nightly")
    assert (job.state, job.rows, job.cancelled) == (JobState.CANCELLED, 5, 5)
    act("bulk-begin", job="another")
    assert [j.job for j in client.jobs()] == ["another", "nightly"]
    assert [j.job for j in client.jobs(limit=1)] == ["another"]


def test_refusals(served: Served, act: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match="a text of 1 to 200 bytes"):
        act("bulk-begin", job="")
    with pytest.raises(Exception, match="there is no attempt 7"):
        act("bulk-reserve", number=7, rows=1)
    number = act("bulk-begin", job="a")["number"]
    with pytest.raises(Exception, match="allowed: 1 or more"):
        act("bulk-reserve", number=number, rows=0)
    act("bulk-abort", number=number)
    with pytest.raises(Exception, match="is aborted; allowed: an open one"):
        act("bulk-commit", number=number, files=[], topics={})
    with pytest.raises(flight.FlightError, match="is aborted"):
        send(served, number, [rows(1, NOW_MS)])
    number = act("bulk-begin", job="a")["number"]
    bad = rows(3, NOW_MS).set_column(0, UNNUMBERED.field("topic"), pa.array(["a", "b c", "d"]))
    with pytest.raises(flight.FlightError, match=r"row 1.*'b c'.*is not a topic name"):
        send(served, number, [bad])
    with pytest.raises(flight.FlightError, match="allowed: "):
        send(served, number, [], pa.schema([("x", pa.int64())]))
    with pytest.raises(flight.FlightError, match="allowed: UTF-8"):
        send(served, number, [], pa.schema([pa.field(b"caf\xe9", pa.int64())]))
    assert send(served, number, []) == {"files": [], "topics": {}}
    assert act("bulk-commit", number=number, files=[], topics={})["rows"] == 0
