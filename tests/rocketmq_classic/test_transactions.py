"""Transactions: decided by the producer, or asked about."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tarry.base.clock import SystemClock
from tarry.base.waiting import answer_of
from tarry.fronts.kit.receiving import ReceiveQueue
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode, ToClient
from tarry.fronts.rocketmq.classic.transactions import CHECKS_GROUP, COMMIT, ROLLBACK, UNKNOWN
from tarry.fronts.rocketmq.common import transaction_checks
from tarry.fronts.rocketmq.common.names import HALF_MESSAGES
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, messages_of
from tests.waiting import wait_until


def begin(client: Remoting, id: str) -> dict[str, str]:
    """Send a half message; what ends its transaction."""
    sent = client.send("orders", id.encode(), TRAN_MSG="true", PGROUP="producers", UNIQ_KEY=id)
    assert sent.code == ResponseCode.SUCCESS
    return {
        "topic": "orders", "producerGroup": "producers", "tranStateTableOffset": "0", "commitLogOffset": "0",
        "msgId": id, "transactionId": sent.fields["transactionId"],
    }  # fmt: skip


def end(client: Remoting, transaction: dict[str, str], word: int) -> int:
    return client.ask(RequestCode.END_TRANSACTION, transaction | {"commitOrRollback": str(word)}).code


def test_only_what_is_committed_is_delivered(client: Remoting) -> None:
    kept, dropped = begin(client, "kept"), begin(client, "dropped")
    assert end(client, kept, UNKNOWN) == ResponseCode.SUCCESS
    assert client.pull("orders", "g", 0, wait_s=0).code == ResponseCode.PULL_NOT_FOUND
    assert end(client, dropped, ROLLBACK) == ResponseCode.SUCCESS
    assert end(client, kept, COMMIT) == ResponseCode.SUCCESS
    [message] = client.pull_until(1, "orders", "g")
    assert (message["body"], message["system"], message["properties"]["UNIQ_KEY"]) == (b"kept", 8, "kept")
    assert end(client, kept, COMMIT) == ResponseCode.ILLEGAL_OPERATION
    assert end(client, kept, 5) == ResponseCode.INVALID_PARAMETER


def test_a_producer_of_the_group_is_asked_and_its_word_counts(serve: Callable[..., Place]) -> None:
    place = serve(rocketmq_check_first_ms=1, rocketmq_check_ms=1000)
    client, other = place.client(), place.client()
    heartbeat = {"clientID": "p1", "producerDataSet": [{"groupName": "producers"}], "consumerDataSet": []}
    other.ask(RequestCode.HEART_BEAT, body=json.dumps(heartbeat).encode())
    transaction = begin(client, "ID")
    question = other.next_question()
    assert question.code == ToClient.CHECK_TRANSACTION_STATE
    assert (question.fields["msgId"], question.fields["transactionId"]) == ("ID", transaction["transactionId"])
    [asked] = messages_of(question.body)
    assert (asked["topic"], asked["body"]) == ("orders", b"ID")
    assert asked["properties"]["PGROUP"] == "producers"
    assert asked["properties"]["__transactionId__"] == transaction["transactionId"]
    assert end(other, transaction, COMMIT) == ResponseCode.SUCCESS
    assert [m["body"] for m in client.pull_until(1, "orders", "g")] == [b"ID"]


def test_a_broken_half_message_keeps_no_other_from_being_asked_about(
    serve: Callable[..., Place], caplog: pytest.LogCaptureFixture
) -> None:
    place = serve(rocketmq_check_first_ms=1, rocketmq_check_ms=1000)
    client, other = place.client(), place.client()
    heartbeat = {"clientID": "p1", "producerDataSet": [{"groupName": "producers"}], "consumerDataSet": []}
    other.ask(RequestCode.HEART_BEAT, body=json.dumps(heartbeat).encode())
    columns: dict[str, Any] = {"topic": [HALF_MESSAGES], "due_ms": [SystemClock().now_ms()], "body": [b"broken"]}
    properties = pa.array([[("PGROUP", "producers")]], pa.map_(pa.string(), pa.string()))
    broken = pa.table({**columns, "properties": properties})
    answer_of(lambda on_result: place.broker.submit(broken, on_result, internal=True))
    wait_until(lambda: place.broker.dead_letters(HALF_MESSAGES, CHECKS_GROUP).num_rows == 1)
    assert "is broken" in caplog.text
    begin(client, "ID")
    assert other.next_question().fields["msgId"] == "ID"


def test_asking_goes_on_after_a_fault(
    serve: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    receive, faults = ReceiveQueue.receive, [RuntimeError("a bug")]

    def failing(queue: ReceiveQueue, *args: Any) -> Any:
        if faults and queue.group.name == CHECKS_GROUP:
            raise faults.pop()
        return receive(queue, *args)

    monkeypatch.setattr(transaction_checks, "RETRY_S", 0.01)
    monkeypatch.setattr(ReceiveQueue, "receive", failing)
    client = serve(rocketmq_check_first_ms=1).client()
    heartbeat = {"clientID": "p1", "producerDataSet": [{"groupName": "producers"}], "consumerDataSet": []}
    client.ask(RequestCode.HEART_BEAT, body=json.dumps(heartbeat).encode())
    begin(client, "ID")
    assert client.next_question().fields["msgId"] == "ID"
    assert "asking about transactions failed" in caplog.text
