"""Classic clients as identities: each request goes by the rights of whoever signed it, by its code."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.identity.conftest import add_access_keys
from tests.rocketmq_classic.remoting import Remoting, dead_letters, messages_of, send_back, send_fields
from tests.rocketmq_place import Place, serving
from tests.waiting import wait_until

from tarry.api.audit import AskedBy
from tarry.api.operations import GetQueues
from tarry.fronts.rocketmq.classic import locks
from tarry.fronts.rocketmq.classic.authentication import signature_of
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode
from tarry.fronts.rocketmq.classic.components import Components
from tarry.fronts.rocketmq.classic.frames import RemotingCommand, encode
from tarry.fronts.rocketmq.classic.front import RemotingFront
from tarry.fronts.rocketmq.classic.needs import NEEDS, nothing
from tarry.identity.refusals import Refusals

OK, FORBIDDEN = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION
GRANTS = {
    "shop": ["produce orders.*", "consume orders.* group:billing"],
    "other": ["produce stock.*", "consume stock.* group:keepers"],
    "reader": ["browse orders.*"],
    "manager": ["manage orders.*"],
    "nothing": [],
}
SECRETS = {name: f"s3cret-{name}" for name in (*GRANTS, "root")}
LATE_S = 10.0


class Signing(Remoting):
    """A client that signs; without a key it does not."""

    def __init__(self, port: int, key: str | None = None, secret: str = "", **more: Any) -> None:
        super().__init__(port, **more)
        self.key, self.secret = key, secret

    def begin(self, code: int, fields: Mapping[str, Any] | None = None, body: bytes = b"", flag: int = 0) -> int:
        texts = {name: str(value) for name, value in (fields or {}).items()}
        if self.key is not None:
            texts["AccessKey"] = self.key
            texts["Signature"] = signature_of(RemotingCommand(code, texts, body), self.secret.encode())
        return super().begin(code, texts, body, flag)


class Shop(Place[RemotingFront, Signing]):
    """Its identities have access keys of their own names."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(RemotingFront, Signing, directory, **settings)

    def make_identities(self) -> None:
        self.ids = add_access_keys(self.broker, GRANTS, SECRETS)

    def as_(self, name: str) -> Signing:
        return self.client(name, SECRETS[name])


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with serving(Shop, tmp_path) as start:
        place = start(remoting_queues=1)
        place.make_identities()
        yield place


def codes_of(front: RemotingFront) -> frozenset[int]:
    """The requests that the front answers."""
    requests: frozenset[int] = front._components.requests  # noqa: SLF001  what only the front itself knows
    return requests


def test_each_request_has_a_right(shop: Shop) -> None:
    """Made from the front's own table: a request that is added without a right makes this fail."""
    assert isinstance(shop.front._components, Components)  # noqa: SLF001  what only the front itself knows
    codes = codes_of(shop.front)
    assert RequestCode.PULL_MESSAGE in codes
    assert codes - NEEDS.keys() == set()
    assert {code & 0xFFFF for code in RequestCode} - NEEDS.keys() == set()


FIELDS = {
    "topic": "orders.new", "b": "orders.new", "consumerGroup": "billing", "group": "billing", "groupName": "billing",
    "producerGroup": "p", "queueId": 0, "e": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 0, "offset": 0,
    "commitOffset": 0, "timestamp": 0, "key": "k", "originTopic": "orders.new", "clientId": "c", "invisibleTime": 1000,
    "extraInfo": "0 0 0 0 0 b 0 0", "recallHandle": "x", "transactionId": "x", "commitOrRollback": 8, "namespace": "n",
    "msgId": "7F00000100002A9F0000000000000000", "pollTime": 0, "delayLevel": 0, "defaultTopic": "x", "a": "p",
}  # fmt: skip
BODY = {
    "topic": "orders.new", "consumerGroup": "billing", "groupName": "billing", "clientId": "c", "clientID": "c",
    "mqSet": [{"topic": "orders.new", "queueId": 0}], "acks": [{"t": "orders.new", "c": "billing", "b": "AQ=="}],
    "topicConfigList": [{"topicName": "orders.new"}], "groupConfigList": [{"groupName": "billing"}], "mode": "POP",
    "consumerDataSet": [{"groupName": "billing", "subscriptionDataSet": [{"topic": "orders.new"}]}],
}  # fmt: skip
LISTS = {
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: "topicList",
    RequestCode.GET_TOPICS_BY_CLUSTER: "topicList",
    RequestCode.GET_ALL_TOPIC_CONFIG: "topicConfigTable",
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: "groupList",
    RequestCode.QUERY_TOPICS_BY_CONSUMER: "topicList",
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "subscriptionGroupTable",
    RequestCode.LOCK_BATCH_MQ: "lockOKMQSet",
}
"""Answered to everybody who is known, with what it may see."""
SILENT = {
    RequestCode.UNLOCK_BATCH_MQ: OK,  # the queues of others stay locked
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: OK,  # as for a group that does not exist
    RequestCode.GET_CONSUME_STATS: ResponseCode.CONSUMER_NOT_ONLINE,  # likewise
    RequestCode.GET_BROKER_CONSUME_STATS: OK,
    RequestCode.VIEW_MESSAGE_BY_ID: FORBIDDEN,
    RequestCode.END_TRANSACTION: ResponseCode.ILLEGAL_OPERATION,  # there is none of that id
    RequestCode.DELETE_SUBSCRIPTIONGROUP: FORBIDDEN,
}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """One with a message, for all that is refused: nothing changes it."""
    with serving(Shop, tmp_path_factory.mktemp("closed")) as start:
        place = start(remoting_queues=1)
        place.make_identities()
        root = place.as_("root")
        assert root.send("orders.new", b"secret body").code == OK
        wait_until(lambda: messages_of(root.pull("orders.new", "billing", 0, 0).body) != [])
        yield place


@pytest.mark.parametrize("code", sorted(RequestCode))
def test_who_has_no_right_gets_nothing(closed: Shop, code: RequestCode) -> None:
    """The whole table, by a stranger, and by one who is known and may do nothing."""
    body = json.dumps(BODY).encode()
    stranger = closed.client().ask(code, FIELDS, body)
    assert stranger.code == FORBIDDEN
    answer = closed.as_("nothing").ask(code, FIELDS, body)
    assert b"secret body" not in answer.body
    if code in LISTS:
        assert answer.code == OK
        assert not json.loads(answer.body)[LISTS[code]]
    elif code in SILENT:
        assert answer.code == SILENT[code]
        assert b"orders" not in answer.body
    elif NEEDS[code] is nothing:
        assert b"orders" not in answer.body
    else:
        assert answer.code == FORBIDDEN, answer.remark
    root = closed.as_("root")
    assert len(messages_of(root.pull("orders.new", "billing", 0, 0).body)) == 1


@pytest.mark.parametrize("key", [None, ""])
def test_who_shows_no_key_is_told_so(shop: Shop, key: str | None) -> None:
    answer = shop.client(key).ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders.new"})
    assert answer.code == FORBIDDEN
    assert answer.remark == "no credential was shown; needed: the fields AccessKey and Signature"
    counts = shop.broker.status()["audit"]["refused"]
    assert (counts["none_shown"], counts["signature"]) == (1, 0)


def test_a_missing_right_is_noted_with_the_address(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[AskedBy] = []
    monkeypatch.setattr(Refusals, "right", lambda self, asked, *of: noted.append(asked))
    assert shop.as_("other").send("orders.new").code == FORBIDDEN
    [asked] = noted
    assert (asked.who, asked.front, asked.peer) == ("other", "rocketmq", "127.0.0.1")


def test_two_keys_of_different_rights(shop: Shop) -> None:
    mine, other, reader = shop.as_("shop"), shop.as_("other"), shop.as_("reader")
    assert mine.send("orders.new", b"x").code == OK
    assert mine.send("stock.new").code == FORBIDDEN
    assert other.send("orders.new").code == FORBIDDEN
    assert other.send("stock.new").code == OK
    assert mine.heartbeat("c1", "billing", "orders.new", "%RETRY%billing").code == OK
    [message] = mine.pull_until(1, "orders.new", "billing")
    assert other.pull("orders.new", "billing", 0, 0).code == FORBIDDEN
    assert mine.pull("orders.new", "keepers", 0, 0).code == FORBIDDEN
    assert send_back(other, message, 1, group="billing", originTopic="orders.new") == FORBIDDEN
    assert send_back(mine, message, 1, group="billing", originTopic="orders.new") == OK
    [again] = mine.pull_until(1, "%RETRY%billing", "billing")
    assert again["body"] == b"x"
    assert other.pull("%RETRY%billing", "billing", 0, 0).code == FORBIDDEN
    assert other.pull("%RETRY%billing", "keepers", 0, 0).code == FORBIDDEN
    assert reader.pull("orders.new", "billing", 0, 0).code == FORBIDDEN
    assert len(messages_of(reader.pull("orders.new", "TOOLS_CONSUMER", 0, 0).body)) == 1
    assert mine.pull("orders.new", "TOOLS_CONSUMER", 0, 0).code == FORBIDDEN


def test_heartbeats_say_nothing_of_what_their_sender_may_not_consume(shop: Shop) -> None:
    mine, other = shop.as_("shop"), shop.as_("other")
    assert mine.heartbeat("c1", "billing", "orders.new").code == OK
    assert other.heartbeat("c2", "billing", "orders.new", expression="nothing").code == FORBIDDEN
    listed = mine.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"})
    assert json.loads(listed.body) == {"consumerIdList": ["c1"]}
    assert other.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"}).code == FORBIDDEN
    assert mine.heartbeat("c1", "billing", "orders.new", "stock.new").code == OK
    asked = {"group": "billing", "topic": "stock.new"}
    told = shop.as_("root").ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, asked)
    assert json.loads(told.body)["subscriptionData"] is None


def test_dead_letters_are_for_their_groups_readers(shop: Shop) -> None:
    mine, other, reader = shop.as_("shop"), shop.as_("other"), shop.as_("reader")
    mine.heartbeat("c1", "billing", "orders.new")
    assert mine.send("orders.new", b"dead").code == OK
    [message] = mine.pull_until(1, "orders.new", "billing")
    assert send_back(mine, message, -1, group="billing", originTopic="orders.new") == OK
    route = {"topic": "%DLQ%billing"}
    # It is on its way there, and a route tells of a topic's dead letters once there are some.
    wait_until(lambda: len(dead_letters(mine, "billing", "billing")) == 1)
    assert mine.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, route).code == OK
    assert other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, route).code == FORBIDDEN
    for rpc, group, expected in ((mine, "billing", 1), (reader, "TOOLS_CONSUMER", 1), (other, "keepers", 0)):
        bodies = [
            message["body"]
            for queue in (1,)
            for message in messages_of(rpc.pull("%DLQ%billing", group, 0, 0, queueId=queue).body)
        ]
        assert bodies == [b"dead"] * expected


def test_topics_and_groups_are_changed_by_who_may_manage_them(shop: Shop) -> None:
    mine, manager = shop.as_("shop"), shop.as_("manager")
    mine.heartbeat("c1", "billing", "orders.new")
    assert mine.send("orders.new").code == OK
    mine.pull_until(1, "orders.new", "billing")
    make = {"topic": "orders.made", "readQueueNums": 2, "writeQueueNums": 2}
    for rpc, code in ((mine, FORBIDDEN), (manager, OK)):
        assert rpc.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, make).code == code
        reset = {"topic": "orders.new", "group": "billing", "timestamp": 0, "isForce": "true"}
        assert rpc.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset).code == code
    elsewhere = make | {"topic": "stock.made"}
    assert manager.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, elsewhere).code == FORBIDDEN
    # A group belongs to all of its topics: with one that is another's, it is not changed.
    root = shop.as_("root")
    root.heartbeat("c0", "billing", "stock.new")
    root.send("stock.new")
    root.pull_until(1, "stock.new", "billing")
    assert manager.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "billing"}).code == FORBIDDEN
    config = json.dumps({"groupName": "billing", "retryMaxTimes": 3}).encode()
    assert manager.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config).code == FORBIDDEN
    assert {info.topic for info in shop.broker.groups() if info.group == "billing"} >= {"orders.new", "stock.new"}


def test_lists_have_what_a_caller_may_look_at(shop: Shop) -> None:
    root = shop.as_("root")
    for topic in ("orders.new", "stock.new"):
        assert root.send(topic).code == OK
        root.heartbeat("c0", "billing", topic)
        root.pull_until(1, topic, "billing")
    mine = shop.as_("shop")
    assert json.loads(mine.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)["topicList"] == ["orders.new"]
    read = mine.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "billing"})
    assert json.loads(read.body)["topicList"] == ["orders.new"]
    assert b"stock" not in mine.ask(RequestCode.GET_BROKER_CONSUME_STATS).body
    assert b"stock" not in mine.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "billing"}).body
    assert mine.ask(RequestCode.GET_ALL_PRODUCER_INFO).code == FORBIDDEN
    assert mine.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == FORBIDDEN


def test_messages_are_looked_up_by_who_may_browse(shop: Shop) -> None:
    mine, reader, other = shop.as_("shop"), shop.as_("reader"), shop.as_("other")
    assert mine.send("orders.new", b"looked up", UNIQ_KEY="U1").code == OK
    mine.heartbeat("c1", "billing", "orders.new")
    [message] = mine.pull_until(1, "orders.new", "billing")
    query = {"topic": "orders.new", "key": "U1", "_UNIQUE_KEY_QUERY": "true", "maxNum": 1}
    for rpc, code in ((mine, FORBIDDEN), (other, FORBIDDEN), (reader, OK)):
        assert rpc.ask(RequestCode.QUERY_MESSAGE, query).code == code
        for topic in ("orders.new", ""):
            seen = rpc.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"topic": topic, "offset": message["physical"]})
            assert (b"looked up" in seen.body) is (code == OK)


def test_a_recall_handle_is_no_right(shop: Shop) -> None:
    mine, other = shop.as_("shop"), shop.as_("other")
    sent = mine.send("orders.new", TIMER_DELAY_SEC="600", UNIQ_KEY="U1")
    handle = sent.fields["recallHandle"]
    assert other.ask(RequestCode.RECALL_MESSAGE, {"topic": "orders.new", "recallHandle": handle}).code == FORBIDDEN
    assert mine.ask(RequestCode.RECALL_MESSAGE, {"topic": "orders.new", "recallHandle": handle}).code == OK


def test_a_transaction_is_decided_by_who_may_produce_its_message(shop: Shop) -> None:
    mine, other = shop.as_("shop"), shop.as_("other")
    sent = mine.send("orders.new", TRAN_MSG="true", PGROUP="producers", UNIQ_KEY="U1")
    end = {"transactionId": sent.fields["transactionId"], "commitOrRollback": 8, "msgId": "U1"}
    for word in (8, 12):
        assert other.ask(RequestCode.END_TRANSACTION, end | {"commitOrRollback": word}).code == FORBIDDEN
    assert mine.ask(RequestCode.END_TRANSACTION, end).code == OK


def test_a_stranger_under_a_producers_group_is_not_asked_about_its_transactions(shop: Shop) -> None:
    mine, thief = shop.as_("shop"), shop.as_("other")
    beat = json.dumps({"clientID": "c", "producerDataSet": [{"groupName": "producers"}]}).encode()
    clients = shop.front._components._clients  # noqa: SLF001  what only the front itself knows
    assert thief.ask(RequestCode.HEART_BEAT, body=beat).code == OK
    assert clients.producer("producers", "orders.new") is None
    assert mine.ask(RequestCode.HEART_BEAT, body=beat).code == OK
    assert {p.name for p in clients.producer("producers", "orders.new").principals} == {"shop"}


def test_a_removed_key_ends_its_connections(shop: Shop) -> None:
    mine, root = shop.as_("shop"), shop.as_("root")
    mine.heartbeat("c1", "billing", "orders.new")
    mine.begin_pull("orders.new", "billing", 0, 30)
    shop.broker.remove_credential(shop.ids["shop"])
    began_s = time.monotonic()
    assert mine.is_closed()
    assert time.monotonic() - began_s < LATE_S
    assert shop.as_("shop").send("orders.new").code == FORBIDDEN
    assert root.send("orders.new").code == OK


def test_the_first_identity_ends_connections_of_nobody(tmp_path: Path) -> None:
    with serving(Shop, tmp_path) as start:
        shop = start()
        anybody = shop.client()
        assert anybody.send("orders.new").code == OK
        shop.make_identities()
        assert anybody.is_closed()
        assert shop.client().send("orders.new").code == FORBIDDEN
        assert shop.client().ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders.new"}).code == FORBIDDEN
        assert shop.as_("shop").send("orders.new").code == OK


def test_keys_of_the_file_may_use_all_topics_beside_identities(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("old 0ldsecret\n")
    places = tmp_path / "places"
    places.mkdir()
    with serving(Shop, places) as start:
        shop = start(rocketmq_keys=str(keys), remoting_queues=1)
        shop.make_identities()
        old = shop.client("old", "0ldsecret")
        assert old.send("orders.new").code == OK
        assert old.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "made", "readQueueNums": 1}).code == OK
        assert old.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == OK
        assert shop.as_("shop").send("stock.new").code == FORBIDDEN


# -- tenants with names in common --------------------------------------------------------------------------------------


def _be_producer(client: Signing, client_id: str) -> None:
    body = {"clientID": client_id, "producerDataSet": [{"groupName": "producers"}], "consumerDataSet": []}
    assert client.ask(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == OK


def _begin_reply(client: Signing, topic: str, to: str, request: str) -> int:
    fields = send_fields(topic, REPLY_TO_CLIENT=to, CORRELATION_ID=request, MSG_TYPE="reply")
    return client.begin(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b"answer")


def test_a_reply_is_for_the_connection_that_asked(shop: Shop) -> None:
    thief, asker = shop.as_("nothing"), shop.as_("shop")
    _be_producer(thief, "asker")
    _be_producer(asker, "asker")
    assert asker.send("orders.new", b"?", REPLY_TO_CLIENT="asker", CORRELATION_ID="c-1", TTL="3000").code == OK
    replier = shop.as_("shop")
    number = _begin_reply(replier, "orders.new", "asker", "c-1")
    question = asker.next_question()
    assert question.body == b"answer"
    asker.socket.sendall(encode(question.answer(OK)))
    assert replier.finish(number).code == OK
    assert thief.asked == []
    # Nor is one that it did not ask for handed to a client whose id is known.
    stranger = shop.as_("other")
    assert stranger.finish(_begin_reply(stranger, "stock.new", "asker", "c-2")).code == ResponseCode.SYSTEM_ERROR


def test_retries_of_a_group_are_not_written_by_who_may_not_use_them(shop: Shop) -> None:
    shop.broker.set_identity("other", ["produce stock.*", "consume stock.*"])
    other = shop.as_("other")
    assert other.send("stock.new", b"forged", RETRY_TOPIC="orders.new").code == OK
    [message] = other.pull_until(1, "stock.new", "billing")
    assert send_back(other, message, 1, group="billing", originTopic="stock.new") == FORBIDDEN
    assert ends_of(shop, "%RETRY%billing") == (0, 0)


def test_a_retry_names_the_topic_that_it_came_from(shop: Shop) -> None:
    mine = shop.as_("shop")
    assert mine.send("orders.new", b"x", RETRY_TOPIC="stock.new").code == OK
    [message] = mine.pull_until(1, "orders.new", "billing")
    assert send_back(mine, message, 1, group="billing", originTopic="orders.new") == OK
    [again] = mine.pull_until(1, "%RETRY%billing", "billing")
    assert again["properties"]["RETRY_TOPIC"] == "orders.new"


def test_groups_of_one_name_in_topics_of_two_tenants_do_not_meet(shop: Shop) -> None:
    shop.broker.set_identity("other", ["produce stock.*", "consume stock.* group:billing"])
    mine, other = shop.as_("shop"), shop.as_("other")
    assert mine.heartbeat("mine", "billing", "orders.new").code == OK
    assert other.heartbeat("0evil", "billing", "stock.new").code == OK
    lists = [
        client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"}) for client in (mine, other)
    ]
    assert [json.loads(each.body)["consumerIdList"] for each in lists] == [["mine"], ["0evil"]]
    mine.send("orders.new")
    asked = {
        "topic": "orders.new", "consumerGroup": "billing", "clientId": "mine", "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    }  # fmt: skip
    shares = json.loads(mine.ask(RequestCode.QUERY_ASSIGNMENT, body=json.dumps(asked).encode()).body)
    assert [each["messageQueue"]["queueId"] for each in shares["messageQueueAssignments"]] == [0]
    # What the first one wants of its topic still stands: it is not read anew by the other's heartbeat.
    root = shop.as_("root")
    told = root.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "billing", "topic": "orders.new"})
    assert json.loads(told.body)["subscriptionData"] is not None
    other.socket.close()


def test_one_identity_holds_a_part_of_all_locks(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOCKS_MAX", 40)
    mine, root = shop.as_("shop"), shop.as_("root")

    def lock(client: Signing, count: int) -> int:
        queues = [{"topic": "orders.new", "brokerName": "b", "queueId": number} for number in range(count)]
        body = {"consumerGroup": "billing", "clientId": client.key, "mqSet": queues}
        answer = client.ask(RequestCode.LOCK_BATCH_MQ, body=json.dumps(body).encode())
        return len(json.loads(answer.body)["lockOKMQSet"])

    assert lock(mine, 30) == 10
    assert lock(mine, 10) == 10
    assert lock(root, 30) == 10  # of the others


def ends_of(shop: Shop, topic: str) -> tuple[int, int]:
    found: tuple[int, int] = shop.broker.call(GetQueues([topic])).get(topic, (0, 0))
    return found


def test_ons_clients_sign_a_routes_request_with_what_they_do_not_send(shop: Shop) -> None:
    """As ``AbstractRPCHook`` of ons-client does: each member of the request's class, its constant, too."""
    raw = Signing(shop.front.port)
    shop.clients.append(raw)

    def ask(secret: str, unsent: dict[str, str], code: int = RequestCode.GET_ROUTEINFO_BY_TOPIC) -> int:
        sent = {"topic": "orders.new", "AccessKey": "shop", "OnsChannel": "ALIYUN"}
        signature = signature_of(RemotingCommand(code, sent | unsent, b""), secret.encode())
        return raw.ask(code, sent | {"Signature": signature}).code

    assert shop.as_("shop").send("orders.new").code == OK
    assert ask(SECRETS["shop"], {"split": "\x01"}) == OK
    assert ask(SECRETS["shop"], {}) == OK
    assert ask("wrong", {"split": "\x01"}) == FORBIDDEN
    assert ask(SECRETS["shop"], {"split": "\x02"}) == FORBIDDEN
    assert ask(SECRETS["shop"], {"split": "\x01"}, RequestCode.GET_TOPIC_CONFIG) == FORBIDDEN
