"""Pulling, offsets, groups of consumers, locks, and what could not be handled."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode, ToClient
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, dead_letters, messages_of, send_back, send_fields

CONSUMER = {"topic": "orders", "consumerGroup": "g", "queueId": 0}


def position(client: Remoting) -> str:
    return client.ask(RequestCode.QUERY_CONSUMER_OFFSET, CONSUMER).fields["offset"]


def test_a_waiting_pull_is_answered_when_a_message_comes(place: Place, client: Remoting) -> None:
    waiting = client.begin_pull("orders", "g", 0, wait_s=15)
    place.client().send("orders", b"now")
    answer = client.finish(waiting)
    assert [m["body"] for m in messages_of(answer.body)] == [b"now"]
    assert (answer.fields["nextBeginOffset"], answer.fields["maxOffset"]) == ("1", "1")


def test_a_pull_has_no_more_than_it_asks_for(client: Remoting) -> None:
    for number in range(5):
        client.send("orders", str(number).encode())
    client.pull_until(5, "orders", "g")
    answer = client.pull("orders", "g", 1, maxMsgNums=2)
    assert [m["offset"] for m in messages_of(answer.body)] == [1, 2]
    assert answer.fields["nextBeginOffset"] == "3"


def test_filters_by_tag_and_by_sql(client: Remoting) -> None:
    for number in range(4):
        client.send("orders", str(number).encode(), TAGS="even" if number % 2 == 0 else "odd", n=str(number))
    client.pull_until(4, "orders", "g")
    answer = client.pull("orders", "tags", 0, subscription="odd || none")
    assert [m["body"] for m in messages_of(answer.body)] == [b"1", b"3"]
    answer = client.pull("orders", "sql", 0, subscription="n >= 2", expressionType="SQL92")
    assert [m["body"] for m in messages_of(answer.body)] == [b"2", b"3"]
    answer = client.pull("orders", "nothing", 0, wait_s=0, subscription="other")
    assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "4")
    answer = client.pull("orders", "bad", 0, subscription="n >", expressionType="SQL92")
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_a_tag_that_looks_like_two_is_one_as_in_rocketmq(client: Remoting) -> None:
    for tag in ("A", "B", "A & B"):
        client.send("orders", tag.encode(), TAGS=tag)
    client.pull_until(3, "orders", "g")
    for _ in range(2):
        answer = client.pull("orders", "tags", 0, subscription="A & B || C")
        assert [m["body"] for m in messages_of(answer.body)] == [b"A & B"]


def test_the_filter_is_that_of_the_heartbeat_also_after_a_restart(place: Place) -> None:
    client = place.client()
    client.send("orders", b"1", TAGS="a")
    client.send("orders", b"2", TAGS="b")
    client.pull_until(2, "orders", "all")
    assert client.pull("orders", "g", 0, sysFlag=0).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    client.heartbeat("c1", "g", "orders", expression="b")
    assert [m["body"] for m in messages_of(client.pull("orders", "g", 0, sysFlag=0).body)] == [b"2"]
    place.restart()
    assert [m["body"] for m in messages_of(place.client().pull("orders", "g", 0, sysFlag=0).body)] == [b"2"]


def test_an_offset_that_is_none_is_put_right(client: Remoting) -> None:
    client.send("orders")
    client.pull_until(1, "orders", "g")
    for offset, right in ((-5, "0"), (9, "1")):
        answer = client.pull("orders", "g", offset)
        assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, right)
    assert client.pull("orders", "g", 0, queueId=4).code == ResponseCode.INVALID_PARAMETER


def test_offsets_are_kept_and_never_go_back(place: Place) -> None:
    client = place.client()
    for _ in range(3):
        client.send("orders")
    client.pull_until(3, "orders", "g")
    assert position(client) == "0"
    update = CONSUMER | {"commitOffset": 2}
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, update).code == ResponseCode.SUCCESS
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, update | {"commitOffset": 1})
    assert position(client) == "2"
    too_far = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, update | {"commitOffset": 9})
    assert too_far.code == ResponseCode.INVALID_PARAMETER
    place.restart()
    client = place.client()
    assert position(client) == "2"
    client.pull("orders", "g", 3, wait_s=0, sysFlag=1 | 4, commitOffset=3)
    end = time.monotonic() + 15
    while position(client) != "3":
        assert time.monotonic() < end


def test_where_a_queue_begins_and_ends(client: Remoting) -> None:
    client.send("orders")
    [message] = client.pull_until(1, "orders", "g")
    queue = {"topic": "orders", "queueId": 0}
    assert client.ask(RequestCode.GET_MIN_OFFSET, queue).fields["offset"] == "0"
    assert client.ask(RequestCode.GET_MAX_OFFSET, queue).fields["offset"] == "1"
    for at_ms, offset in ((message["stored_ms"], "0"), (message["stored_ms"] + 1, "1"), (0, "0")):
        found = client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue | {"timestamp": at_ms})
        assert found.fields["offset"] == offset
    earliest = client.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, queue)
    assert int(earliest.fields["timestamp"]) == message["stored_ms"]


def test_a_message_that_was_due_before_it_was_sent_is_found_by_its_time(client: Remoting) -> None:
    client.send("orders", TIMER_DELIVER_MS="1700000000000")
    [message] = client.pull_until(1, "orders", "g")
    fields = {"topic": "orders", "queueId": 0, "timestamp": message["stored_ms"]}
    assert client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields).fields["offset"] == "0"


def test_consumers_are_told_when_one_comes_or_goes(place: Place) -> None:
    first, second = place.client(), place.client()
    first.heartbeat("c1", "g", "orders")
    assert first.next_question().code == ToClient.NOTIFY_CONSUMER_IDS_CHANGED
    second.heartbeat("c2", "g", "orders")
    question = first.next_question()
    assert (question.code, question.fields) == (ToClient.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
    listed = first.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    assert json.loads(listed.body) == {"consumerIdList": ["c1", "c2"]}
    second.close()
    assert first.next_question().code == ToClient.NOTIFY_CONSUMER_IDS_CHANGED
    first.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "g"})
    assert first.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}).code == ResponseCode.SYSTEM_ERROR


def test_a_connection_is_in_so_many_groups_only(client: Remoting) -> None:
    groups = [{"groupName": f"g{number}"} for number in range(1_001)]
    body = {"clientID": "c", "producerDataSet": groups}
    assert client.ask(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == ResponseCode.INVALID_PARAMETER


def test_a_queue_is_locked_by_one(place: Place) -> None:
    client = place.client()
    queue = {"topic": "orders", "brokerName": "tarry", "queueId": 0}

    def ask(code: int, client_id: str) -> Any:
        body = {"consumerGroup": "g", "clientId": client_id, "mqSet": [queue]}
        return client.ask(code, body=json.dumps(body).encode())

    def locked(client_id: str) -> bool:
        return bool(json.loads(ask(RequestCode.LOCK_BATCH_MQ, client_id).body)["lockOKMQSet"])

    assert (locked("a"), locked("b"), locked("a")) == (True, False, True)
    ask(RequestCode.UNLOCK_BATCH_MQ, "b")
    assert not locked("b")
    ask(RequestCode.UNLOCK_BATCH_MQ, "a")
    assert locked("b")


def test_what_could_not_be_handled_comes_again_and_is_dead_in_the_end(client: Remoting) -> None:
    client.send("orders", b"x", UNIQ_KEY="ID", TAGS="t", p="v")
    [message] = client.pull_until(1, "orders", "g")
    assert send_back(client, message, 1, retries=1) == ResponseCode.SUCCESS
    # Asked again, it is the same copy.
    assert send_back(client, message, 1, retries=1) == ResponseCode.SUCCESS
    [again] = client.pull_until(1, "%RETRY%g", "g")
    assert (again["body"], again["times"], again["topic"]) == (b"x", 1, "%RETRY%g")
    first = message["properties"]["__SEQ"]
    assert again["properties"].pop("__SEQ").partition(":")[2] == f"{first}:{message['stored_ms']}"
    assert again["properties"] == {
        "UNIQ_KEY": "ID", "TAGS": "t", "p": "v", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "ID",
        "DELAY": "1", "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0",
    }  # fmt: skip
    assert again["stored_ms"] >= message["stored_ms"] + 1000
    assert client.pull("%RETRY%g", "g", 1, wait_s=0).code == ResponseCode.PULL_NOT_FOUND
    assert send_back(client, again, 1, retries=1) == ResponseCode.SUCCESS
    [dead] = dead_letters(client, "g")
    assert (dead["body"], dead["times"], dead["properties"]["RETRY_TOPIC"]) == (b"x", 2, "orders")


def test_a_message_that_is_not_there_cannot_be_sent_back(client: Remoting) -> None:
    assert send_back(client, {"physical": 12345}, 1) == ResponseCode.SYSTEM_ERROR


def test_a_group_has_its_retries_where_topics_are_not_made(serve: Callable[..., Place]) -> None:
    """Consumers in order send there themselves what they cannot handle, and would else try it for ever."""
    place = serve(rocketmq_create_topics="off")
    client = place.client()
    route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%g"})
    assert route.code == ResponseCode.SUCCESS, "what a consumer asks for before it listens"
    fields = send_fields("%RETRY%g", UNIQ_KEY="A", RETRY_TOPIC="orders") | {"j": 3, "l": 16}
    assert client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x").code == ResponseCode.SUCCESS
    [message] = client.pull_until(1, "%RETRY%g", "g")
    assert message["times"] == 3


def test_a_client_may_send_the_retry_itself(client: Remoting) -> None:
    for times, topic in ((3, "%RETRY%g"), (17, "%DLQ%g")):
        fields = send_fields("%RETRY%g", UNIQ_KEY="A", RETRY_TOPIC="orders") | {"j": times, "l": 16}
        assert client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x").code == ResponseCode.SUCCESS
        [message] = client.pull_until(1, topic, "readers")
        assert message["times"] == times


def test_a_pull_brings_no_more_than_the_originals_unless_a_setting_says_so(serve: Callable[..., Place]) -> None:
    cases: list[tuple[dict[str, int], int]] = [({}, 32), ({"remoting_pull_max": 40}, 40)]
    for settings, most in cases:
        client = serve(remoting_queues=1, **settings).client()
        for _ in range(50):
            client.send("orders")
        client.pull_until(50, "orders", "g")
        assert len(messages_of(client.pull("orders", "g", 0, maxMsgNums=50).body)) == most
