"""Topics of Tarry's own: fronts keep in them what their clients may neither read nor forge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.contract.conftest import Served

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
