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
from tarry.message.dead_topics import dead_topic
from tarry.message.receipt import id_of
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
def test_clients_only_look(make: Callable[[], Operation[Any]], common_client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match=r"tarry\.halves.*Tarry's own"):
        common_client.call(make())


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


@pytest.mark.parametrize("asked", [{"key": "k"}, {"tag": "t"}, {"key": "k", "topic": HALVES}])
def test_looking_for_what_its_messages_say_finds_none(asked: dict[str, str], served: Served, client: Client) -> None:
    """Else whoever guesses a key or a tag learns that there is such a message."""
    put(served, LATER_MS)
    found = client.list_pending(**asked).rows  # type: ignore[arg-type]
    assert found.column("topic").to_pylist() == ["orders"] * ("topic" not in asked)


def test_a_history_shows_nothing_that_its_messages_say(served: Served, client: Client) -> None:
    seq, _ = put(served, LATER_MS)
    accepted = client.history(id_of(seq)).events[0].details
    assert (accepted["topic"], accepted.get("key"), accepted.get("tag")) == (HALVES, None, None)


DEAD = dead_topic(HALVES, "checks")


@pytest.fixture
def dead(served: Served) -> int:
    """A dead letter of each of the two topics; the offset of the one of Tarry's own."""
    put(served, NOW_MS)
    for topic in ("orders", HALVES):
        served.broker.set_group(topic, "checks", tries=1)
        [row] = served.broker.receive(topic, "checks", wait_ms=10_000).to_pylist()
        served.broker.nack(topic, "checks", [row["lease"]], [row["offset"]])
        wait_until(lambda topic=topic: served.broker.dead_letters(topic, "checks").num_rows)
    return int(served.broker.dead_letters(HALVES, "checks").column("offset")[0].as_py())


def test_its_dead_letters_show_nothing_that_they_say(dead: int, served: Served, client: Client) -> None:
    assert said(client.dead_letters("orders", "checks").to_pylist()[0])[-1] == b"secret"
    seq = client.dead_letters(HALVES, "checks").column("seq")[0].as_py()
    due_ms = client.dead_letters(HALVES, "checks").column("due_ms")[0].as_py()
    for found in (
        client.dead_letters(HALVES, "checks"),
        served.broker.dead_letters(HALVES, "checks"),
        client.peek(DEAD),
        client.get_message(seq, due_ms),
    ):
        assert [(row["topic"], said(row)) for row in found.to_pylist()] == [(DEAD, (None, None, {}, b""))]
    for request in (Receive(DEAD, "spy"), ReadQueue(DEAD, 0, 1), FollowQueue(DEAD, "spy")):
        with pytest.raises(InvalidArgumentError, match="Tarry's own"):
            client.call(request)
    with pytest.raises(InvalidMessageError, match="Tarry's own"):
        client.schedule(DEAD, b"x")


def test_its_dead_letters_can_be_respawned_and_purged(dead: int, served: Served, client: Client) -> None:
    assert client.respawn(HALVES, "checks", offsets=[dead]) == 1
    [row] = served.broker.receive(HALVES, "checks", wait_ms=10_000).to_pylist()
    assert row["body"] == b"secret"
    assert client.purge("orders", "checks") == 1


def test_a_front_gets_its_messages_whole(served: Served) -> None:
    put(served, NOW_MS)
    [row] = served.broker.receive(HALVES, "checks", wait_ms=10_000).to_pylist()
    assert said(row) == ("k", "t", {"p": "v"}, b"secret")
