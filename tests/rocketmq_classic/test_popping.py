"""Popping: messages that are leased, what settles them, and which consumers pop."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from tarry.api.operations import GetGroup
from tarry.fronts.rocketmq.classic import receiving as popping
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode
from tarry.fronts.rocketmq.classic.frames import BINARY, RemotingCommand
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, messages_of
from tests.waiting import wait_until

GROUP = {"topic": "orders", "consumerGroup": "g"}
POP = GROUP | {
    "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000, "pollTime": 10_000, "bornTime": 0, "initMode": 0,
    "exp": "*", "expType": "TAG",
}  # fmt: skip


def pop(client: Remoting, **more: Any) -> list[dict[str, Any]]:
    answer = client.ask(RequestCode.POP_MESSAGE, POP | more)
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT), answer.remark
    # Clients read these of any answer.
    assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= answer.fields.keys()
    return messages_of(answer.body)


def pop_all(client: Remoting, count: int, **more: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    while len(messages) < count:
        messages += pop(client, **more)
    return messages


def settle(client: Remoting, code: int, message: dict[str, Any], **more: Any) -> RemotingCommand:
    """With the fields that Java's client takes from a message."""
    handle = message["properties"]["POP_CK"]
    words = handle.split(" ")
    assert int(words[7]) == message["offset"]
    return client.ask(code, GROUP | {"queueId": words[6], "offset": words[7], "extraInfo": handle} | more)


def ack(client: Remoting, message: dict[str, Any]) -> int:
    return settle(client, RequestCode.ACK_MESSAGE, message).code


def unsettled(place: Place) -> int:
    return place.broker.call(GetGroup("orders", "g")).lag


def fill(client: Remoting, count: int) -> None:
    for number in range(count):
        client.send("orders", str(number).encode())


def test_what_is_popped_is_nobody_elses_until_its_time_is_up(place: Place) -> None:
    client, other = place.client(), place.client()
    fill(client, 3)
    messages = pop_all(client, 3)
    assert sorted(m["body"] for m in messages) == [b"0", b"1", b"2"]
    assert {m["queue"] for m in messages} == {0}
    assert pop(other, pollTime=0) == []
    assert [ack(client, m) for m in messages] == [ResponseCode.SUCCESS] * 3
    assert unsettled(place) == 0
    # What is settled is settled, also when it is said once more, and by nobody else.
    assert ack(client, messages[0]) == ResponseCode.NO_MESSAGE


def test_what_is_not_acknowledged_comes_again_as_another_try(client: Remoting) -> None:
    fill(client, 1)
    [first] = pop(client, invisibleTime=50)
    [again] = pop(client)
    assert (first["times"], again["times"], again["offset"]) == (0, 1, first["offset"])
    assert (ack(client, first), ack(client, again)) == (ResponseCode.NO_MESSAGE, ResponseCode.SUCCESS)


def test_a_pop_waits_for_a_message_and_ends_without_one(place: Place, client: Remoting) -> None:
    waiting = client.begin(RequestCode.POP_MESSAGE, POP)
    place.client().send("orders", b"late")
    assert [m["body"] for m in messages_of(client.finish(waiting).body)] == [b"late"]
    assert client.ask(RequestCode.POP_MESSAGE, POP | {"pollTime": 1}).code == ResponseCode.POLLING_TIMEOUT


def test_a_client_that_leaves_while_it_waits_takes_nothing_along(place: Place, client: Remoting) -> None:
    assert pop(client, pollTime=0) == []
    leaving = place.client()
    leaving.begin(RequestCode.POP_MESSAGE, POP)
    # Answered after the pop has begun to wait.
    leaving.heartbeat("c1", "leaving", "orders")
    leaving.close()
    listed = {"consumerGroup": "leaving"}
    wait_until(lambda: client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, listed).code == ResponseCode.SYSTEM_ERROR)
    fill(client, 1)
    assert [m["times"] for m in pop(client)] == [0]


def test_a_push_consumers_change_is_a_try_that_failed_also_after_a_restart(place: Place) -> None:
    client = place.client()
    client.heartbeat("c1", "g", "orders")
    fill(client, 1)
    [message] = pop(client)
    changed = settle(client, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, message, invisibleTime=1)
    assert (changed.code, changed.fields["invisibleTime"]) == (ResponseCode.SUCCESS, "1")
    [again] = pop(client)
    assert again["times"] == 1
    assert settle(client, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, again, invisibleTime=3_600_000).code == 0
    place.restart()
    assert place.broker.call(GetGroup("orders", "g")).waiting == 1


def test_others_change_for_how_long_they_hold(place: Place, client: Remoting) -> None:
    fill(client, 1)
    [message] = pop(client)
    changed = settle(client, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, message, invisibleTime=30_000)
    assert ack(client, message) == ResponseCode.NO_MESSAGE
    # As Java's client makes the new handle of the answer.
    words = message["properties"]["POP_CK"].split(" ")
    fields = changed.fields
    words[:4] = words[7], fields["popTime"], fields["invisibleTime"], fields["reviveQid"]
    message["properties"]["POP_CK"] = " ".join(words)
    assert ack(client, message) == ResponseCode.SUCCESS
    assert unsettled(place) == 0


def test_many_are_acknowledged_at_once(place: Place, client: Remoting) -> None:
    fill(client, 20)
    messages = pop_all(client, 20)
    batches = {}
    for message in messages:
        start, popped, invisible, revive, retry, _, queue, offset = message["properties"]["POP_CK"].split(" ")
        key = start, popped, invisible, revive, retry, queue
        batches.setdefault(key, []).append(int(offset) - int(start))
    acks = []
    for (start, popped, invisible, revive, retry, queue), bits in batches.items():
        mask = np.zeros(max(bits) + 1, np.uint8)
        mask[bits] = 1
        text = base64.b64encode(np.packbits(mask, bitorder="little").tobytes()).decode()
        ack_body = {"c": "g", "t": "orders", "r": retry, "so": int(start), "q": int(queue), "rq": int(revive)}
        acks.append(ack_body | {"pt": int(popped), "it": int(invisible), "b": text})
    body = json.dumps({"brokerName": "tarry", "acks": acks}).encode()
    assert client.ask(RequestCode.BATCH_ACK_MESSAGE, body=body).code == ResponseCode.SUCCESS
    assert unsettled(place) == 0
    assert client.ask(RequestCode.BATCH_ACK_MESSAGE, body=body).code == ResponseCode.NO_MESSAGE
    assert client.ask(RequestCode.BATCH_ACK_MESSAGE, body=b"{}").code == ResponseCode.NO_MESSAGE


def test_an_answer_has_no_more_than_clients_take(place: Place, client: Remoting, monkeypatch: Any) -> None:
    monkeypatch.setattr(popping, "ANSWER_BYTES_MAX", 3_000)
    for _ in range(6):
        client.send("orders", b"x" * 1_000)
    sizes = []
    while sum(sizes) < 6:
        messages = pop(client)
        sizes.append(len(messages))
        assert {ack(client, m) for m in messages} == {ResponseCode.SUCCESS}
    assert max(sizes) == 2
    assert unsettled(place) == 0


def test_filters_and_headers_of_the_other_form(place: Place) -> None:
    client = place.client(form=BINARY)
    for tag in ("a", "b"):
        client.send("orders", tag.encode(), TAGS=tag)
    [message] = pop(client, exp="b")
    assert (message["body"], ack(client, message)) == (b"b", ResponseCode.SUCCESS)
    assert client.ask(RequestCode.POP_MESSAGE, POP | {"exp": "n >", "expType": "SQL92"}).code == (
        ResponseCode.SUBSCRIPTION_PARSE_FAILED
    )


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"invisibleTime": 0}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": 1 << 40}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"order": "true"}, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        ({"exp": ""}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
    ],
)
def test_pops_that_are_refused(client: Remoting, more: dict[str, Any], code: int) -> None:
    assert client.ask(RequestCode.POP_MESSAGE, POP | more).code == code


def test_handles_that_are_none(client: Remoting) -> None:
    fill(client, 1)
    [message] = pop(client)
    handle = message["properties"]["POP_CK"]
    words = handle.split(" ")
    fields = GROUP | {"queueId": 0, "offset": 0}
    for bad in ("", "x", handle + " 1", " ".join([*words[:3], "-1", *words[4:]]), "1 2 3 4 0 b 5 ²"):
        answer = client.ask(RequestCode.ACK_MESSAGE, fields | {"extraInfo": bad})
        assert answer.code == ResponseCode.INVALID_PARAMETER, bad
    for wrong in ([*words[:3], "7", *words[4:]], [*words[:7], "9"]):
        answer = client.ask(RequestCode.ACK_MESSAGE, fields | {"extraInfo": " ".join(wrong)})
        assert answer.code == ResponseCode.NO_MESSAGE
    other = fields | {"extraInfo": handle, "consumerGroup": "nobody"}
    assert client.ask(RequestCode.ACK_MESSAGE, other).code == ResponseCode.NO_MESSAGE
    assert ack(client, message) == ResponseCode.SUCCESS


def test_a_new_group_begins_at_the_end_only_where_something_was_deleted(client: Remoting) -> None:
    fill(client, 1)
    assert len(pop(client, initMode=1)) == 1


def test_a_notification_says_that_there_is_something_and_takes_nothing(place: Place, client: Remoting) -> None:
    ask = GROUP | {"queueId": -1, "pollTime": 0, "bornTime": 0}
    assert client.ask(RequestCode.NOTIFICATION, ask).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert pop(client, pollTime=0) == []
    assert client.ask(RequestCode.NOTIFICATION, ask).fields["hasMsg"] == "false"
    waiting = client.begin(RequestCode.NOTIFICATION, ask | {"pollTime": 10_000})
    place.client().send("orders", b"x")
    assert client.finish(waiting).fields["hasMsg"] == "true"
    assert len(pop(client)) == 1


def assignments(client: Remoting, member: str, **more: Any) -> list[tuple[int, str]] | None:
    body = {
        "topic": "orders", "consumerGroup": "g", "clientId": member, "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    } | more  # fmt: skip
    answer = json.loads(client.ask(RequestCode.QUERY_ASSIGNMENT, body=json.dumps(body).encode()).body)
    if "messageQueueAssignments" not in answer:
        return None
    return [(a["messageQueue"]["queueId"], a["mode"]) for a in answer["messageQueueAssignments"]]


def set_mode(client: Remoting, mode: str, topic: str = "orders") -> int:
    body = {"topic": topic, "consumerGroup": "g", "mode": mode, "popShareQueueNum": 0}
    return client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(body).encode()).code


def test_the_broker_shares_queues_out_and_knows_who_pops(place: Place) -> None:
    client, other = place.client(), place.client()
    assert assignments(client, "c1") is None
    client.heartbeat("c1", "g", "orders")
    other.heartbeat("c2", "g", "orders")
    assert assignments(client, "c1") == [(0, "PULL"), (1, "PULL")]
    assert assignments(client, "c2", strategyName="AVG_BY_CIRCLE") == [(1, "PULL"), (3, "PULL")]
    assert assignments(client, "c3") == []
    assert assignments(client, "c1", strategyName="MACHINE_ROOM") is None
    assert assignments(client, "c1", messageModel="BROADCASTING") == [(n, "PULL") for n in range(4)]
    assert set_mode(client, "POP") == ResponseCode.SUCCESS
    assert assignments(client, "c1") == [(-1, "POP")]
    assert assignments(client, "c1", topic="%RETRY%g") == [(0, "PULL")]
    assert set_mode(client, "POP", "%RETRY%g") == ResponseCode.NO_PERMISSION
    assert set_mode(client, "PEEK") == ResponseCode.INVALID_PARAMETER
    place.restart()
    client = place.client()
    assert assignments(client, "c1") == [(-1, "POP")]
    assert set_mode(client, "PULL") == ResponseCode.SUCCESS
    client.heartbeat("c1", "g", "orders")
    assert assignments(client, "c1") == [(n, "PULL") for n in range(4)]


def test_a_group_that_popped_and_pulls_then_goes_on(client: Remoting) -> None:
    fill(client, 4)
    client.pull_until(2, "orders", "g")
    position = GROUP | {"queueId": 1}
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, position | {"commitOffset": 1})
    assert set_mode(client, "POP") == ResponseCode.SUCCESS
    assert {ack(client, m) for m in pop_all(client, 4)} == {ResponseCode.SUCCESS}
    assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, position).fields["offset"] == "4"


def test_while_an_address_has_much_unread_pops_and_pulls_wait(place: Place, client: Remoting) -> None:
    fill(client, 2)
    unread = place.front._unread  # noqa: SLF001 - as other connections of that address would have
    unread.add("127.0.0.1", 200 << 20)
    popping_now = client.begin(RequestCode.POP_MESSAGE, POP)
    pulling = client.begin_pull("orders", "reader", 0, 60)
    assert client.send("orders", b"sent meanwhile").code == ResponseCode.SUCCESS
    assert client.pull("orders", "reader", 0, 0.1).code == ResponseCode.PULL_NOT_FOUND
    unread.add("127.0.0.1", -(200 << 20))
    assert messages_of(client.finish(popping_now).body)
    assert messages_of(client.finish(pulling).body)
    wait_until(lambda: unread.held == 0)


def test_a_topics_rate_is_obeyed(place: Place) -> None:
    """One a second: the first pop is given one of five, however slow the machine is."""
    place.broker.set_topic("orders", max_per_second=1)
    client = place.client()
    fill(client, 5)
    wait_until(lambda: sum(topic.ready for topic in place.broker.pending()) == 5)
    assert len(pop(client, pollTime=0)) == 1
    assert len(pop(client)) >= 1, "who waits is given the next one"
