"""Topics of Tarry's own: fronts keep in them what their clients may neither read nor forge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.contract.conftest import Served
from tests.waiting import wait_until

from tarry.api.operation import Operation
from tarry.api.operations import (
    AdvanceGroup,
    CancelKeys,
    DeleteGroup,
    FollowQueue,
    GetTopic,
    ReadQueue,
    Receive,
    Reschedule,
    Seek,
    SetGroup,
    SetPushSubscription,
    SetTopic,
)
from tarry.base.errors import InvalidArgumentError, InvalidMessageError
from tarry.base.waiting import answer_of
from tarry.client import Client
from tarry.repeat import Repeat, to_json

HALVES = "tarry.halves"
REFUSED: list[Callable[[], Operation[Any]]] = [
    lambda: Receive(HALVES, "spy"),
    lambda: SetGroup.of(HALVES, "checks", filter="no"),
    lambda: SetTopic.of(HALVES, ordered=True),
    lambda: DeleteGroup(HALVES, "checks"),
    lambda: CancelKeys(HALVES, ["transaction"]),
    lambda: Reschedule(topic=HALVES, key="transaction", delay_ms=0),
    lambda: Seek(HALVES, "checks", "latest"),
    lambda: ReadQueue(HALVES, 0, 1),
    lambda: FollowQueue(HALVES, "checks"),
    lambda: AdvanceGroup(HALVES, "checks", 1),
    lambda: SetPushSubscription("spy", topic=HALVES, url="https://example.org/"),
]


@pytest.mark.parametrize("make", REFUSED)
def test_clients_only_look(make: Callable[[], Operation[Any]], client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match=r"tarry\.halves.*Tarry's own"):
        client.call(make())


@pytest.mark.parametrize("column", [["orders", HALVES], [HALVES]])
def test_nobody_produces(column: list[str], served: Served, client: Client) -> None:
    rows = pa.table({"topic": column, "body": [b"x"] * len(column), "delay_ms": [0] * len(column)})
    with pytest.raises(InvalidMessageError, match="Tarry's own"):
        client.schedule_batch(rows)
    assert served.broker.pending() == []


def test_a_front_s_own_rows_pass(served: Served, client: Client) -> None:
    rows = pa.table({"topic": [HALVES], "body": [b"x"], "delay_ms": [3_600_000]})
    answer_of(lambda on_result: served.broker.submit(rows, on_result, internal=True))
    assert [topic.topic for topic in client.pending()] == [HALVES]
    assert client.call(GetTopic(HALVES)).topic == HALVES


NOW_MS, LATER_MS = 0, 3_600_000


def put(served: Served, delay_ms: int, repeat: Repeat | None = None) -> tuple[int, int]:
    """Put a message that says something into two topics; the number and due time of the one in Tarry's own."""
    columns: dict[str, Any] = {"key": ["k"], "tag": ["t"], "properties": [{"p": "v"}], "body": [b"secret"]}
    if repeat is not None:
        columns["repeat"] = [to_json(repeat)]
    for topic in ("orders", HALVES):
        rows = pa.table({"topic": [topic], "delay_ms": [delay_ms], **columns})
        accepted = answer_of(lambda on_result, rows=rows: served.broker.submit(rows, on_result, internal=True))
    return accepted.first_seq, int(accepted.due_ms[0])


def said(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["key"], row["tag"], dict(row["properties"] or ()), row["body"]


@pytest.mark.parametrize("bodies", [True, False])
@pytest.mark.parametrize("repeating", [True, False])
def test_lists_show_nothing_that_its_messages_say(
    bodies: bool, repeating: bool, served: Served, client: Client
) -> None:
    put(served, LATER_MS, Repeat(every_ms=LATER_MS) if repeating else None)
    page = client.list_pending(bodies=bodies, repeating=repeating).rows.to_pylist()
    shown = {row["topic"]: said(row) for row in page}
    assert shown == {HALVES: (None, None, {}, b""), "orders": ("k", "t", {"p": "v"}, b"secret" * bodies)}
    [row] = client.list_pending(topic=HALVES, repeating=repeating, limit=1).rows.to_pylist()
    assert said(row) == (None, None, {}, b"")
    assert row["due_ms"] > 0


def test_looking_at_one_shows_nothing_that_it_says(served: Served, client: Client) -> None:
    seq, due_ms = put(served, LATER_MS)
    for found in (client.get_message(seq, due_ms), client.find_message(HALVES, "g", seq, due_ms)):
        assert [(row["topic"], said(row)) for row in found.to_pylist()] == [(HALVES, (None, None, {}, b""))]


def test_peeking_shows_nothing_that_its_messages_say(served: Served, client: Client) -> None:
    seq, due_ms = put(served, NOW_MS)
    wait_until(lambda: client.peek(HALVES).num_rows and client.peek("orders").num_rows)
    assert said(client.peek("orders").to_pylist()[0]) == ("k", "t", {"p": "v"}, b"secret")
    for found in (
        client.peek(HALVES),
        client.get_message(seq, due_ms),
        client.find_message(HALVES, "g", seq, due_ms),
    ):
        assert [(row["topic"], said(row)) for row in found.to_pylist()] == [(HALVES, (None, None, {}, b""))]


def test_a_front_gets_its_messages_whole(served: Served) -> None:
    put(served, NOW_MS)
    [row] = served.broker.receive(HALVES, "checks", wait_ms=10_000).to_pylist()
    assert said(row) == ("k", "t", {"p": "v"}, b"secret")
