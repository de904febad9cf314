"""What mqadmin asks, and messages looked up by what they are called."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tarry.api.operations import GetGroup, HasTopic, ListGroups, SetTopic
from tarry.fronts.rocketmq.classic import queue_lag
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode, ToClient
from tarry.fronts.rocketmq.classic.frames import RemotingCommand, encode
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, messages_of, queue_count, send_fields
from tests.waiting import wait_until

QUEUE = re.compile(rb'\{"brokerName": "tarry", "queueId": (\d), "topic": "orders"\}')
GROUP = {"topic": "orders", "consumerGroup": "g"}


def table(answer: RemotingCommand) -> Any:
    """The entry of the topic's first queue, in a table whose keys are objects."""
    entries = json.loads(QUEUE.sub(rb'"\1"', answer.body))["offsetTable"]
    assert list(entries) == ["0", "1", "2", "3"]
    return entries["0"]


def fill(client: Remoting, count: int) -> list[dict[str, Any]]:
    for number in range(count):
        client.send("orders", str(number).encode(), KEYS=f"k{number} all", UNIQ_KEY=f"id-{number}")
    return client.pull_until(count, "orders", "g")


def test_the_cluster_is_one_broker(client: Remoting) -> None:
    cluster = json.loads(client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    [broker] = cluster["brokerAddrTable"].values()
    assert broker["brokerAddrs"] == {"0": client.socket.getpeername()[0] + f":{client.socket.getpeername()[1]}"}
    status = json.loads(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert status["brokerVersionDesc"].startswith("tarry ")
    route = json.loads(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}).body)
    assert route["brokerDatas"] == [broker]
    assert [(q["readQueueNums"], q["perm"]) for q in route["queueDatas"]] == [(4, 6)]


def test_cluster_and_broker_are_called_as_the_settings_say(serve: Callable[..., Place]) -> None:
    plain = json.loads(serve().client().ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert plain["clusterAddrTable"] == {"DefaultCluster": ["tarry"]}, "every script says -c DefaultCluster"
    client = serve(rocketmq_cluster="shop", rocketmq_broker="broker-a").client()
    cluster = json.loads(client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert cluster["clusterAddrTable"] == {"shop": ["broker-a"]}
    assert list(cluster["brokerAddrTable"]) == ["broker-a"]
    route = json.loads(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}).body)
    assert (route["brokerDatas"][0]["cluster"], route["queueDatas"][0]["brokerName"]) == ("shop", "broker-a")
    handle = client.send("orders", DELAY="18").fields["recallHandle"]
    assert base64.urlsafe_b64decode(handle).split(b" ")[2] == b"broker-a", "the broker that clients recall it at"
    stats = client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"}).body
    assert b'"brokerName": "broker-a"' in stats
    lines = client.ask(RequestCode.GET_BROKER_CONFIG).body.decode().splitlines()
    assert {"brokerName=broker-a", "brokerClusterName=shop"} <= set(lines)


def test_topics_are_listed_and_made(place: Place, client: Remoting) -> None:
    place.broker.call(SetTopic.of("declared", declared=True))
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "made"}).code == ResponseCode.SUCCESS
    client.send("later", DELAY="18")
    fill(client, 2)
    listed = json.loads(client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)["topicList"]
    assert {"declared", "made", "later", "orders"} <= set(listed)
    stats = table(client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"}))
    assert (stats["minOffset"], stats["maxOffset"]) == (0, 2)


def test_tools_make_topics_where_others_are_not_made_by_being_named(serve: Callable[..., Place]) -> None:
    place = serve(rocketmq_create_topics="off")
    client = place.client()

    def route(topic: str) -> int:
        return client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code

    cluster = json.loads(client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    [name] = cluster["clusterAddrTable"]
    assert route(name) == ResponseCode.SUCCESS, "tools ask where the cluster's own topic is"
    assert not place.broker.call(HasTopic(name)), "nothing is made by that"
    assert route("orders") == ResponseCode.TOPIC_NOT_EXIST
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "orders"}).code == ResponseCode.SUCCESS
    assert route("orders") == ResponseCode.SUCCESS
    assert client.send("orders").code == ResponseCode.SUCCESS
    assert client.send("others").code == ResponseCode.TOPIC_NOT_EXIST


def test_how_far_a_group_is_and_its_consumers(client: Remoting) -> None:
    assert client.ask(RequestCode.GET_CONSUME_STATS, GROUP).code == ResponseCode.CONSUMER_NOT_ONLINE
    fill(client, 3)
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, GROUP | {"queueId": 0, "commitOffset": 2})
    stats = table(client.ask(RequestCode.GET_CONSUME_STATS, GROUP))
    assert (stats["brokerOffset"], stats["consumerOffset"]) == (3, 2)
    listed = client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"})
    assert json.loads(listed.body) == {"groupList": ["g"]}
    assert client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, GROUP).code == ResponseCode.CONSUMER_NOT_ONLINE
    client.heartbeat("c1", "g", "orders", expression="a")
    there = json.loads(client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, GROUP).body)
    assert [c["clientId"] for c in there["connectionSet"]] == ["c1"]
    assert there["subscriptionTable"]["orders"]["subString"] == "a"


def lags(answer: RemotingCommand) -> list[int]:
    """The lag of each queue of the topic."""
    entries = json.loads(QUEUE.sub(rb'"\1"', answer.body))["offsetTable"]
    return [entries[queue]["brokerOffset"] - entries[queue]["consumerOffset"] for queue in sorted(entries)]


def test_lag_is_of_the_messages_of_each_queue_alone(client: Remoting) -> None:
    for number in range(100):
        fields = send_fields("orders") | {"e": number % 4 if number < 40 else 3}
        client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x")
    client.pull_until(10, "orders", "g")
    assert lags(client.ask(RequestCode.GET_CONSUME_STATS, GROUP)) == [10, 10, 10, 70]
    for queue, offset in ((0, 100), (1, 100), (3, 60)):
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, GROUP | {"queueId": queue, "commitOffset": offset})
    stats = client.ask(RequestCode.GET_CONSUME_STATS, GROUP)
    assert lags(stats) == [0, 0, 10, 40]
    everything = json.loads(QUEUE.sub(rb'"\1"', client.ask(RequestCode.GET_BROKER_CONSUME_STATS).body))
    assert everything["totalDiff"] == 50
    [groups] = everything["consumeStatsList"]
    assert [list(stats["offsetTable"]) for stats in groups["g"]] == [["0", "1", "2", "3"]]


def test_what_is_far_behind_is_shared_out_among_the_queues(client: Remoting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_lag, "ROWS_MAX", 8)
    for _ in range(50):
        client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders") | {"e": 1}, b"x")
    client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders") | {"e": 0}, b"x")
    client.pull_until(1, "orders", "g")
    found = lags(client.ask(RequestCode.GET_CONSUME_STATS, GROUP))
    assert (sum(found), found[1]) == (51, 8 + 11), "the sum is exact"


def test_a_topic_has_as_many_queues_as_are_asked_for(place: Place, client: Remoting) -> None:
    made = {"topic": "wide", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, made).code == ResponseCode.SUCCESS
    several = [{"topicName": "six", "readQueueNums": 6, "writeQueueNums": 6}, {"topicName": "plain"}]
    body = json.dumps({"topicConfigList": several}).encode()
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body).code == ResponseCode.SUCCESS
    assert [queue_count(client, topic) for topic in ("wide", "six", "plain")] == [8, 6, 4]
    for queue in range(8):
        answer = client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("wide") | {"e": queue}, str(queue).encode())
        assert (answer.code, answer.fields["queueId"]) == (ResponseCode.SUCCESS, str(queue))
    for queue in range(8):
        # After a second of looking at what others have, a pull is answered with how far it came, and nothing else.
        [message] = client.pull_until(1, "wide", "g", queueId=queue)
        assert (message["queue"], message["body"]) == (queue, str(queue).encode())
    # Another number divides anew what is there.
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, made | {"readQueueNums": 2, "writeQueueNums": 2}).code == 0
    found = [m["body"] for queue in (0, 1) for m in client.pull_until(4, "wide", "g", queueId=queue)]
    assert found == [b"0", b"2", b"4", b"6", b"1", b"3", b"5", b"7"]
    assert client.pull("wide", "g", 0, queueId=2).code == ResponseCode.INVALID_PARAMETER
    place.restart()
    again = place.client()
    assert [queue_count(again, topic) for topic in ("wide", "six")] == [2, 6]
    refused = again.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "wide", "readQueueNums": 1025})
    assert (refused.code, "1025" in refused.remark) == (ResponseCode.INVALID_PARAMETER, True)


def test_several_topics_and_groups_are_made_all_or_none(place: Place, client: Remoting) -> None:
    fill(client, 1)
    bad = {"topicConfigList": [{"topicName": "made"}, {"topicName": "no name"}]}
    answer = client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=json.dumps(bad).encode())
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert not place.broker.call(HasTopic("made"))
    groups = [{"groupName": "g", "retryMaxTimes": 2}, {"groupName": "h", "retryMaxTimes": -1}]
    for number, code in ((2, ResponseCode.INVALID_PARAMETER), (1, ResponseCode.SUCCESS)):
        body = json.dumps({"groupConfigList": groups[:number]}).encode()
        assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body).code == code
        assert place.broker.call(GetGroup("orders", "g")).tries == (17 if number == 2 else 3)


def test_how_often_a_group_tries(place: Place, client: Remoting) -> None:
    fill(client, 1)
    body = json.dumps({"groupName": "g", "retryMaxTimes": 4}).encode()
    assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == ResponseCode.SUCCESS
    assert place.broker.call(GetGroup("orders", "g")).tries == 5
    config = json.loads(client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"}).body)
    assert config["retryMaxTimes"] == 4


def test_a_group_that_is_made_before_it_is_used_is_there(place: Place, client: Remoting) -> None:
    fill(client, 1)
    for name in ("new", "newer"):
        body = json.dumps({"groupName": name, "retryMaxTimes": 4}).encode()
        assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == ResponseCode.SUCCESS
    place.restart()
    client = place.client()
    listed = json.loads(client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)["subscriptionGroupTable"]
    assert {name: config["retryMaxTimes"] for name, config in listed.items()} == {"g": 16, "new": 4, "newer": 4}
    config = json.loads(client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "new"}).body)
    assert config["retryMaxTimes"] == 4
    assert len(client.pull_until(1, "orders", "new")) == 1
    assert place.broker.call(GetGroup("orders", "new")).tries == 5, "it holds for topics that it comes to read"
    assert place.broker.call(GetGroup("orders", "g")).tries == 17
    assert client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "newer"}).code == ResponseCode.SUCCESS
    listed = json.loads(client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)["subscriptionGroupTable"]
    assert listed.keys() == {"g", "new"}


def test_a_reset_tells_consumers_and_holds_against_what_they_commit_meanwhile(place: Place, client: Remoting) -> None:
    messages = fill(client, 3)
    commit = GROUP | {"queueId": 0}
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": 3})
    consumer = place.client()
    consumer.heartbeat("c1", "g", "orders")
    assert consumer.next_question().code == ToClient.NOTIFY_CONSUMER_IDS_CHANGED
    reset = {"topic": "orders", "group": "g", "timestamp": messages[0]["stored_ms"] - 1, "isForce": "true"}
    answer = client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    question = consumer.next_question()
    assert (question.code, question.fields["group"]) == (ToClient.RESET_CONSUMER_CLIENT_OFFSET, "g")
    assert table(answer) == table(question) == 0

    def stands_after(offset: int) -> str:
        consumer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": offset})
        return consumer.ask(RequestCode.QUERY_CONSUMER_OFFSET, commit).fields["offset"]

    # What it had read before; where it begins anew; and on from there.
    assert [stands_after(offset) for offset in (3, 0, 2)] == ["0", "0", "2"]


def test_without_force_a_reset_goes_only_back(client: Remoting) -> None:
    fill(client, 2)
    reset = {"topic": "orders", "group": "g", "timestamp": -1, "isForce": "false"}
    assert table(client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)) == 0
    assert table(client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset | {"isForce": "true"})) == 2


def listed_topics(client: Remoting) -> set[str]:
    return set(json.loads(client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)["topicList"])


def test_topics_and_groups_are_deleted(place: Place, client: Remoting) -> None:
    fill(client, 2)
    client.pull("%RETRY%g", "g", 0, wait_s=0)
    client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "empty"})
    assert {"orders", "empty", "%RETRY%g"} <= listed_topics(client)
    for topic in ("empty", "orders", "nobody"):
        for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_TOPIC_IN_NAMESRV):
            assert client.ask(code, {"topic": topic}).code == ResponseCode.SUCCESS
    assert client.ask(RequestCode.DELETE_KV_CONFIG, {"namespace": "n", "key": "orders"}).code == ResponseCode.SUCCESS
    assert client.ask(RequestCode.GET_KV_CONFIG, {"namespace": "n", "key": "k"}).code == ResponseCode.QUERY_NOT_FOUND
    # What has messages is there while it has them; its groups are gone.
    assert listed_topics(client) & {"orders", "empty", "nobody"} == {"orders"}
    assert client.ask(RequestCode.GET_CONSUME_STATS, GROUP).code == ResponseCode.CONSUMER_NOT_ONLINE
    assert client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}).code == ResponseCode.SUCCESS
    assert "%RETRY%g" not in listed_topics(client)
    # A group that is made anew begins anew.
    assert len(client.pull_until(2, "orders", "g")) == 2


def test_all_topics_and_groups_at_once(client: Remoting) -> None:
    fill(client, 1)
    topics = json.loads(client.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
    assert topics["orders"]["readQueueNums"] == 4
    groups = json.loads(client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)["subscriptionGroupTable"]
    assert groups["g"]["retryMaxTimes"] == 16
    read = json.loads(client.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "g"}).body)
    assert read == {"topicList": ["orders"]}
    system = json.loads(client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body)["topicList"]
    assert "TBW102" in system
    assert json.loads(client.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}).body)[
        "topicList"
    ] == ["orders"]


def test_who_produces_and_what_a_group_wants(client: Remoting) -> None:
    asked = {"producerGroup": "producers"}
    assert client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, asked).code == ResponseCode.SYSTEM_ERROR
    body = {"clientID": "p1", "producerDataSet": [{"groupName": "producers"}], "consumerDataSet": []}
    client.ask(RequestCode.HEART_BEAT, body=json.dumps(body).encode())
    client.heartbeat("c1", "g", "orders", expression="a")
    [producer] = json.loads(client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, asked).body)["connectionSet"]
    assert producer["clientId"] == "p1"
    assert list(json.loads(client.ask(RequestCode.GET_ALL_PRODUCER_INFO).body)["data"]) == ["producers"]
    wanted = client.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "g", "topic": "orders"})
    assert json.loads(wanted.body)["subscriptionData"]["subString"] == "a"


def test_a_consumer_is_asked_through_the_broker(place: Place, client: Remoting) -> None:
    sent = client.send("orders", b"x").fields["msgId"]
    client.pull_until(1, "orders", "g")
    consumer = place.client()
    consumer.heartbeat("c1", "g", "orders")
    consumer.next_question()
    asked = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true", "msgId": sent, "topic": "orders"}
    for code in (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY):
        number = client.begin(code, asked)
        question = consumer.next_question()
        assert (question.code, question.fields["consumerGroup"], question.is_oneway) == (code, "g", False)
        assert [m["body"] for m in messages_of(question.body)] == ([b"x"] if question.body else [])
        assert bool(question.body) == (code == RequestCode.CONSUME_MESSAGE_DIRECTLY)
        consumer.socket.sendall(encode(question.answer(ResponseCode.SUCCESS, body=b"{}")))
        assert client.finish(number).body == b"{}"
    nobody = client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, asked | {"clientId": "c2"})
    assert nobody.code == ResponseCode.SYSTEM_ERROR
    bad = client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, asked | {"msgId": "x"})
    assert bad.code == ResponseCode.INVALID_PARAMETER
    number = client.begin(RequestCode.GET_CONSUMER_RUNNING_INFO, asked)
    consumer.next_question()
    consumer.close()
    assert client.finish(number).code == ResponseCode.CONSUME_MSG_TIMEOUT


def test_messages_by_key_and_by_id(client: Remoting) -> None:
    messages = fill(client, 5)
    query = {"topic": "orders", "maxNum": 3, "beginTimestamp": 0, "endTimestamp": 1 << 60}

    def bodies(**fields: str) -> list[bytes]:
        return sorted(m["body"] for m in messages_of(client.ask(RequestCode.QUERY_MESSAGE, query | fields).body))

    assert bodies(key="k3") == [b"3"]
    assert len(bodies(key="all")) == 3
    assert bodies(key="id-2", _UNIQUE_KEY_QUERY="true") == [b"2"]
    nothing = client.ask(RequestCode.QUERY_MESSAGE, query | {"key": "k"})
    assert nothing.code == ResponseCode.QUERY_NOT_FOUND
    for fields in ({"topic": "orders"}, {}):
        viewed = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, fields | {"offset": str(messages[4]["physical"])})
        assert [m["body"] for m in messages_of(viewed.body)] == [b"4"]


def test_the_place_that_a_producer_was_told_finds_its_message(client: Remoting) -> None:
    sent = client.send("orders", b"x")
    client.pull_until(1, "orders", "g")
    place = int.from_bytes(bytes.fromhex(sent.fields["msgId"])[8:], "big", signed=True)
    viewed = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "orders", "offset": place})
    assert [m["body"] for m in messages_of(viewed.body)] == [b"x"]
    assert client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place + 1}).code == ResponseCode.SYSTEM_ERROR


def test_the_settings_of_the_broker_have_the_names_of_the_original(serve: Callable[..., Place]) -> None:
    client = serve(delay_levels="1s 2s", remoting_queues=2, rocketmq_create_topics="off").client()
    lines = client.ask(RequestCode.GET_BROKER_CONFIG).body.decode().splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    assert (settings["messageDelayLevel"], settings["defaultTopicQueueNums"]) == ("1s 2s", "2")
    assert (settings["brokerName"], settings["autoCreateTopicEnable"]) == ("tarry", "false")
    assert settings["listenPort"].isdecimal()


def test_the_status_has_what_exporters_read(client: Remoting) -> None:
    table = json.loads(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert all(isinstance(value, str) for value in table.values())
    for name in ("bootTimestamp", "queryThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "commitLogMaxOffset"):
        assert table[name].isdecimal(), name
    assert all(len(table[f"scheduleMessageOffset_{level}"].split(",")) == 2 for level in range(1, 19))
    assert all(part.split(":")[1].isdecimal() for part in table["putMessageDistributeTime"].split(" "))
    # Read by places, as BrokerRuntimeStats.loadCommitLogDirCapacity does.
    words = table["commitLogDirCapacity"].split(" ")
    assert (float(words[2]) >= float(words[6]) or words[3] != words[7]) and words[7].endswith("B.")
    assert table["remainHowManyDataToFlush"].split(" ")[0] == "0"


def test_the_originals_topics_of_delayed_messages_can_be_looked_at_only(client: Remoting) -> None:
    client.send("orders", DELAY="18")
    for topic, count, pending in (("SCHEDULE_TOPIC_XXXX", 18, 0), ("rmq_sys_wheel_timer", 1, 1)):
        assert queue_count(client, topic) == count
        stats = client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        assert stats.code == ResponseCode.SUCCESS
        assert stats.body.count(b'"maxOffset": %d' % pending) == count
        config = json.loads(client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic}).body)
        assert config["readQueueNums"] == count
        assert client.pull(topic, "g", 0, 0).code == ResponseCode.PULL_NOT_FOUND
        assert client.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0}).fields["offset"] == "0"
        refused = client.send(topic)
        assert (refused.code, "looked at only" in refused.remark) == (ResponseCode.INVALID_PARAMETER, True)


def test_a_tool_that_has_looked_leaves_no_group_behind(place: Place, client: Remoting) -> None:
    fill(client, 2)
    first, second = place.client(), place.client()
    for tool in (first, second):
        assert len(messages_of(tool.pull("orders", "TOOLS_CONSUMER", 0).body)) == 2
    listed = client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"})
    assert json.loads(listed.body) == {"groupList": ["g"]}
    first.close()
    assert len(messages_of(second.pull("orders", "TOOLS_CONSUMER", 0).body)) == 2
    second.close()
    wait_until(lambda: [info.group for info in place.broker.call(ListGroups("orders"))] == ["g"])
