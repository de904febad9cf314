"""Several workers of the classic front: a group's consumers share its queues, whichever worker each reaches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.fronts.rocketmq.classic import locks
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode, ToClient
from tarry.fronts.rocketmq.classic.lost_answers import LostAnswers
from tarry.fronts.rocketmq.classic.transactions import COMMIT
from tests import rocketmq_place
from tests.gateway.worker_places import ClassicPlace
from tests.rocketmq_classic import test_transactions as transactions
from tests.rocketmq_classic.remoting import Remoting
from tests.rocketmq_classic.test_lost_answers import MESSAGE, begin, lose, pending
from tests.waiting import wait_until

LIST = {"consumerGroup": "g"}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ClassicPlace]]:
    with rocketmq_place.serving(ClassicPlace, tmp_path) as start:
        yield start


@pytest.fixture
def place(serve: Callable[..., ClassicPlace]) -> ClassicPlace:
    return serve()


def there(place: ClassicPlace) -> Remoting:
    """A client of the second worker."""
    client = Remoting(place.workers.fronts[1].port)
    place.clients.append(client)
    return client


def consumers(client: Remoting) -> set[str]:
    answer = client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, LIST)
    return set(json.loads(answer.body)["consumerIdList"]) if answer.code == ResponseCode.SUCCESS else set()


def lock(client: Remoting, id: str) -> list[dict[str, object]]:
    queue = {"topic": "orders", "brokerName": "tarry", "queueId": 0}
    body = {"consumerGroup": "g", "clientId": id, "mqSet": [queue]}
    answer = client.ask(RequestCode.LOCK_BATCH_MQ, body=json.dumps(body).encode())
    locked: list[dict[str, object]] = json.loads(answer.body)["lockOKMQSet"]
    return locked


def test_consumers_of_two_workers_share_a_group(place: ClassicPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "HELD_S", 1.0)  # a lost client's lock ends by its time alone, as in RocketMQ
    here, other = place.client(), there(place)
    here.heartbeat("A", "g", "orders")
    other.heartbeat("B", "g", "orders")
    assert consumers(here) == consumers(other) == {"A", "B"}
    assert here.next_question().code == ToClient.NOTIFY_CONSUMER_IDS_CHANGED
    assert len(lock(here, "A")) == 1
    assert lock(other, "B") == [], "it is another's"
    here.close()
    wait_until(lambda: consumers(other) == {"B"})
    wait_until(lambda: len(lock(other, "B")) == 1)


def test_what_one_worker_accepts_is_pulled_through_the_other(place: ClassicPlace) -> None:
    here, other = place.client(), there(place)
    other.heartbeat("B", "g", "orders")
    bodies = [b"%d" % number for number in range(5)]
    for body in bodies:
        assert here.send("orders", body).code == ResponseCode.SUCCESS
    assert sorted(m["body"] for m in other.pull_until(5, "orders", "g")) == bodies


def test_a_pull_waits_while_sends_of_its_connection_are_answered(place: ClassicPlace) -> None:
    client = place.client()
    client.heartbeat("A", "g", "orders")
    assert client.send("orders").code == ResponseCode.SUCCESS
    end = len(client.pull_until(1, "orders", "g"))
    pull = client.begin_pull("orders", "g", end, wait_s=20)
    assert client.send("other").code == ResponseCode.SUCCESS, "the worker answers beside the home"
    assert there(place).send("orders", b"y").code == ResponseCode.SUCCESS
    assert client.finish(pull).code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND)


def test_a_position_that_is_told_right_before_the_end_is_kept(place: ClassicPlace) -> None:
    here, other = place.client(), there(place)
    here.heartbeat("A", "g", "orders")
    here.send("orders")
    here.pull_until(1, "orders", "g")
    position = {"consumerGroup": "g", "topic": "orders", "queueId": 0}
    here.begin(RequestCode.UPDATE_CONSUMER_OFFSET, {**position, "commitOffset": 1}, flag=2)
    here.close()
    asked = RequestCode.QUERY_CONSUMER_OFFSET
    wait_until(lambda: other.ask(asked, position).fields.get("offset") == "1")


def test_a_producers_retry_through_another_worker_makes_no_second_message(
    place: ClassicPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, keep, kept = there(place), vars(LostAnswers)["_keep"], set()

    def keeping(self: LostAnswers, *given: Any) -> None:
        keep(self, *given)
        kept.add(self)

    with pytest.MonkeyPatch.context() as patch:  # the other is undone by lose()
        patch.setattr(LostAnswers, "_keep", keeping)
        lose(place, monkeypatch)
        # One that comes before the workers and their home have told each other is a second message.
        wait_until(lambda: len(kept) == len(place.workers.fronts) + 1)
    first = other.finish(begin(other, **MESSAGE))
    assert first.code == ResponseCode.SUCCESS
    assert pending(place) == 1, "it was the retry"


def test_a_large_answer_is_not_cut_by_answers_of_the_worker(place: ClassicPlace) -> None:
    client = place.client()
    client.heartbeat("A", "g", "orders")
    for _ in range(20):
        assert client.send("orders", b"x" * 60_000).code == ResponseCode.SUCCESS
    # The others have nothing, which is an answer of the worker's own.
    numbers = [client.begin_pull("orders", "g", 0, 5 if queue == 0 else 0.2, queueId=queue) for queue in range(4)]
    sent = [begin(client, b"y", UNIQ_KEY=f"id-{number}") for number in range(20)]
    for number in (*numbers, *sent):
        assert client.finish(number).code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND)


def test_a_producer_is_asked_through_its_own_worker(serve: Callable[..., ClassicPlace]) -> None:
    place = serve(rocketmq_check_first_ms=300, rocketmq_check_ms=1000)
    producer, sender = there(place), place.client()
    body = {"clientID": "P", "producerDataSet": [{"groupName": "producers"}], "consumerDataSet": []}
    producer.ask(RequestCode.HEART_BEAT, body=json.dumps(body).encode())
    transaction = transactions.begin(sender, "ID")
    assert producer.next_question().code == ToClient.CHECK_TRANSACTION_STATE
    assert transactions.end(producer, transaction, COMMIT) == ResponseCode.SUCCESS
    assert [m["body"] for m in sender.pull_until(1, "orders", "g")] == [b"ID"]
