"""Dead letters are in one place, whoever gave them up and whoever looks; and what is sent back twice is one copy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tarry.api.operations import GetPending, ListDeadLetters, Purge, Respawn, SetGroup, SetTopic
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, dead_letters, messages_of, queue_count, send_back, send_fields
from tests.waiting import wait_until

DEAD = "%DLQ%g"


def listed(place: Place, topic: str = "orders") -> list[dict[str, Any]]:
    """What ``tarry dead`` lists, all that was accepted."""
    wait_until(lambda: not any(p.pending for p in place.broker.call(GetPending(next_due=False))))
    rows: list[dict[str, Any]] = place.broker.call(ListDeadLetters(topic, "g")).to_pylist()
    return rows


def fail(client: Remoting, topic: str = "orders", body: bytes = b"x") -> dict[str, Any]:
    """A message that its consumer gives up at once."""
    client.send(topic, body, UNIQ_KEY="ID", TAGS="t", p="v")
    [message] = client.pull_until(1, topic, "g")
    assert send_back(client, message, -1, originTopic=topic) == ResponseCode.SUCCESS
    return message


def test_what_pulling_consumers_give_up_is_listed_and_pulled(place: Place, client: Remoting) -> None:
    assert queue_count(client, DEAD) == 1
    message = fail(client)
    [row] = listed(place)
    properties = dict(row["properties"])
    assert (row["body"], row["tag"], row["attempt"], properties["tarry.dead.cause"]) == (b"x", "t", 1, "tries")
    assert properties["tarry.dead.due_ms"] == str(message["stored_ms"])
    assert queue_count(client, DEAD) == 2
    [dead] = dead_letters(client, "g")
    assert (dead["topic"], dead["queue"], dead["body"], dead["times"]) == (DEAD, 1, b"x", 1)
    assert dead["properties"].items() >= {("UNIQ_KEY", "ID"), ("TAGS", "t"), ("p", "v"), ("RETRY_TOPIC", "orders")}
    # Reading it does not take it off the list.
    assert len(listed(place)) == 1


def behind(client: Remoting, group: str, offset: int, queue: int) -> list[dict[str, Any]]:
    return messages_of(client.pull("orders", group, offset, 0, queueId=queue).body)


def test_what_is_respawned_begins_with_its_first_try_and_can_fail_again(place: Place, client: Remoting) -> None:
    first = fail(client)
    assert len(listed(place)) == 1
    assert place.broker.call(Respawn("orders", "g")) == 1
    assert listed(place) == []  # and what comes of them is ready
    begin = first["offset"] + 1
    # In the queue of its number.
    again = next(m for queue in range(4) for m in behind(client, "g", begin, queue))
    assert (again["body"], again["times"]) == (b"x", 0)
    assert not any(behind(client, "others", begin, queue) for queue in range(4))
    assert send_back(client, again, -1) == ResponseCode.SUCCESS
    assert [row["attempt"] for row in listed(place)] == [1]
    assert place.broker.call(Purge("orders", "g")) == 1
    assert listed(place) == []


def test_what_popping_consumers_fail_is_pulled_from_the_same_place(place: Place, client: Remoting) -> None:
    client.heartbeat("c1", "g", "orders")
    place.broker.call(SetGroup.of("orders", "g", tries=1))
    client.send("orders", b"popped")
    fields = {
        "consumerGroup": "g", "topic": "orders", "queueId": -1, "maxMsgNums": 1, "invisibleTime": 60_000,
        "pollTime": 10_000, "bornTime": 0, "initMode": 0, "exp": "*", "expType": "TAG",
    }  # fmt: skip
    [popped] = messages_of(client.ask(RequestCode.POP_MESSAGE, fields).body)
    fields = {
        "topic": "orders", "consumerGroup": "g", "extraInfo": popped["properties"]["POP_CK"], "invisibleTime": 1,
        "offset": popped["offset"], "queueId": 0,
    }  # fmt: skip
    assert client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields).code == ResponseCode.SUCCESS
    wait_until(lambda: listed(place))
    assert [(m["body"], m["times"], m["topic"]) for m in dead_letters(client, "g")] == [(b"popped", 1, DEAD)]


def test_each_topic_has_its_queue_and_keeps_it(place: Place) -> None:
    client = place.client()
    for topic in ("orders", "bills"):
        fail(client, topic, topic.encode())
        assert queue_count(client, DEAD) == (2 if topic == "orders" else 3)
    client.send(DEAD, b"from a producer")
    assert [m["body"] for m in dead_letters(client, "g")] == [b"from a producer", b"orders", b"bills"]
    commit = {"consumerGroup": "undertakers", "topic": DEAD, "queueId": 2}
    client.heartbeat("c1", "undertakers", DEAD)
    answer = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": 1})
    assert answer.code == ResponseCode.SUCCESS
    place.restart()
    client = place.client()
    # Before the route is asked for: clients that have waited for the broker go on with the numbers that they know.
    [dead] = messages_of(client.pull(DEAD, "undertakers", 0, queueId=2).body)
    assert (dead["body"], dead["queue"]) == (b"bills", 2)
    for queue, offset in ((1, "0"), (2, "1")):
        fields = commit | {"queueId": queue}
        assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields).fields["offset"] == offset
    assert client.ask(RequestCode.GET_MAX_OFFSET, {"topic": DEAD, "queueId": 3}).code == ResponseCode.INVALID_PARAMETER


@pytest.mark.rest
def test_a_reader_of_dead_letters_may_fail_too(place: Place, client: Remoting) -> None:
    fail(client)
    [dead] = dead_letters(client, "g", "undertakers")
    assert send_back(client, dead, 1, group="undertakers", originTopic=DEAD) == ResponseCode.SUCCESS
    [again] = client.pull_until(1, "%RETRY%undertakers", "undertakers")
    assert (again["body"], again["times"]) == (b"x", 1)
    assert send_back(client, again, -1, group="undertakers", originTopic=DEAD) == ResponseCode.SUCCESS
    assert [(m["body"], m["times"]) for m in dead_letters(client, "undertakers", "last")] == [(b"x", 2)]


def retry_fields(message: dict[str, Any], times: int = 1, retries: int = 16, level: int = 1) -> dict[str, Any]:
    """What Java's client sends when it could not send a message back."""
    properties = message["properties"] | {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "ID", "DELAY": str(level)}
    return send_fields("%RETRY%g", **properties) | {"j": times, "l": retries}


def resend(client: Remoting, message: dict[str, Any], **more: int) -> None:
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, retry_fields(message, **more), b"x")
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def pending_retries(place: Place) -> int:
    [retries] = [p.pending for p in place.broker.call(GetPending(next_due=False)) if p.topic == "%RETRY%g"]
    return retries


def restart(place: Place) -> None:
    place.restart()


def stay(_: Place) -> None:
    pass


@pytest.mark.parametrize("meanwhile", [stay, restart])
@pytest.mark.parametrize("ways", [(True, True), (True, False), (False, True), (False, False)])
def test_what_is_sent_back_twice_is_one_copy(
    place: Place, meanwhile: Callable[[Place], None], ways: tuple[bool, bool]
) -> None:
    client = place.client()
    client.send("orders", b"x", UNIQ_KEY="ID")
    # The same id and content, and yet another message.
    client.send("orders", b"x", UNIQ_KEY="ID")
    for message in client.pull_until(2, "orders", "g"):
        for is_own_request in ways:
            if is_own_request:
                assert send_back(client, message, 18) == ResponseCode.SUCCESS
            else:
                resend(client, message, level=18)
            meanwhile(place)
            client = place.client()
    assert pending_retries(place) == 2


@pytest.mark.rest
def test_a_retry_that_a_client_sends_itself_is_a_dead_letter_in_the_end(place: Place, client: Remoting) -> None:
    client.send("orders", b"x", UNIQ_KEY="ID")
    [message] = client.pull_until(1, "orders", "g")
    resend(client, message)
    [again] = client.pull_until(1, "%RETRY%g", "g")
    assert again["times"] == 1
    for _ in range(2):
        resend(client, again, times=2, retries=1)
    assert send_back(client, again, 1, retries=1) == ResponseCode.SUCCESS
    [row] = listed(place)
    assert (row["body"], row["attempt"]) == (b"x", 2)
    assert [m["times"] for m in dead_letters(client, "g")] == [2]


def test_after_a_reset_a_message_can_be_sent_back_once_more(place: Place, client: Remoting) -> None:
    client.send("orders", b"x")
    client.heartbeat("c1", "g", "orders")
    [message] = client.pull_until(1, "orders", "g")
    assert send_back(client, message, 18) == ResponseCode.SUCCESS
    reset = {"topic": "orders", "group": "g", "timestamp": 0, "isForce": "true"}
    assert client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset).code == ResponseCode.SUCCESS
    for _ in range(2):
        assert send_back(client, message, 18) == ResponseCode.SUCCESS
    assert pending_retries(place) == 2


def test_tools_see_the_queues_of_dead_letters(place: Place, client: Remoting) -> None:
    fail(client)
    client.heartbeat("c1", "undertakers", DEAD)
    assert len(dead_letters(client, "g")) == 1
    assert [o["maxOffset"] for o in table(client, RequestCode.GET_TOPIC_STATS_INFO, {"topic": DEAD})] == [0, 1]
    progress = {"consumerGroup": "undertakers", "topic": DEAD}
    assert [p["brokerOffset"] for p in table(client, RequestCode.GET_CONSUME_STATS, progress)] == [0, 1]
    readers = json.loads(client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": DEAD}).body)["groupList"]
    assert readers == ["undertakers"]
    topics = json.loads(client.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "undertakers"}).body)["topicList"]
    assert topics == [DEAD]
    asked = {"topic": DEAD, "key": "ID", "_UNIQUE_KEY_QUERY": "true", "maxNum": 32}
    assert [m["body"] for m in messages_of(client.ask(RequestCode.QUERY_MESSAGE, asked).body)] == [b"x"]
    [dead] = dead_letters(client, "g")
    seen = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"topic": DEAD, "offset": dead["physical"]})
    assert [m["body"] for m in messages_of(seen.body)] == [b"x"]
    commit = {"consumerGroup": "undertakers", "topic": DEAD, "queueId": 1}
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": 1}).code == ResponseCode.SUCCESS
    assert [p["consumerOffset"] for p in table(client, RequestCode.GET_CONSUME_STATS, progress)] == [0, 1]
    reset = {"topic": DEAD, "group": "undertakers", "timestamp": 0, "isForce": "true"}
    assert table(client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset) == [0, 0]
    assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, commit).fields["offset"] == "0"


def table(client: Remoting, code: int, fields: dict[str, Any]) -> list[Any]:
    """A body's table by queue, whose keys are objects, in the order of the queues."""
    body = client.ask(code, fields).body.decode()
    return [json.loads(value) for value in re.findall(r"}:({[^}]*}|[0-9]+)", body)]


def test_a_reader_that_waits_has_the_first_dead_letter_at_once(serve: Callable[..., Place]) -> None:
    place = serve(rocketmq_create_topics="off")
    place.broker.call(SetTopic.of("orders", declared=True))
    client, reader = place.client(), place.client()
    reader.heartbeat("c1", "undertakers", DEAD)
    client.heartbeat("c2", "g", "orders")
    assert client.pull("orders", "g", 0, wait_s=0).code == ResponseCode.PULL_NOT_FOUND
    assert queue_count(reader, DEAD) == 2
    waiting = reader.begin_pull(DEAD, "undertakers", 0, wait_s=15, queueId=1)
    fail(client)
    assert [m["body"] for m in messages_of(reader.finish(waiting).body)] == [b"x"]
