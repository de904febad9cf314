"""v5 clients as identities: each call goes by the rights of whoever signed it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.identity.conftest import add_access_keys
from tests.rocketmq.rpc import Code, RefusedError, Rpc, consumer, d, now_ms, producer, receive_request, res, s, signed
from tests.rocketmq_place import Place, serving

from tarry.api.audit import AskedBy
from tarry.fronts.rocketmq.front import RocketMQFront
from tarry.identity.principal import Principal
from tarry.identity.refusals import Refusals

GRANTS = {
    "shop": ["produce orders.*", "consume orders.* group:billing"],
    "other": ["produce stock.*", "consume stock.* group:keepers"],
    "reader": ["look orders.*", "browse orders.*"],
    "nothing": [],
}
SECRETS = {name: f"s3cret-of-{name}" for name in (*GRANTS, "root")}
LATE_S = 10.0


class Shop(Place[RocketMQFront, Rpc]):
    """Its identities have access keys of their own names."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(RocketMQFront, Rpc, directory, **settings)

    def make_identities(self) -> None:
        self.ids = add_access_keys(self.broker, GRANTS, SECRETS)

    def as_(self, name: str, client_id: str | None = None, **more: Any) -> Rpc:
        return self.client(client_id, headers=signed(name, SECRETS[name]), **more)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with serving(Shop, tmp_path) as start:
        place = start()
        place.make_identities()
        yield place


def code_of(rpc: Rpc, topic: str) -> int:
    return int(rpc.send(topic).status.code)


def test_who_is_not_known_is_refused_before_anything_is_read(shop: Shop) -> None:
    strangers: list[dict[str, str]] = [
        {},
        signed("shop", "wrong"),
        signed("unknown", SECRETS["shop"]),
        signed("shop", SECRETS["shop"], "19990101T000000Z"),
        {"authorization": "Bearer tarry_none"},
    ]
    for headers in strangers:
        rpc = shop.client(headers=headers)
        answer = s.SendMessageResponse.FromString(rpc.raw("SendMessage", b"\xff no protobuf"))
        assert answer.status.code == Code.UNAUTHORIZED
        assert rpc.telemetry(producer("orders.new")).next().status.code == Code.UNAUTHORIZED
        with pytest.raises(RefusedError) as refused:
            rpc.receive("orders.new", "billing")
        assert refused.value.code == Code.UNAUTHORIZED


@pytest.mark.parametrize("headers", [{}, signed("", "")])
def test_who_shows_no_key_is_told_so(shop: Shop, headers: dict[str, str]) -> None:
    answer = shop.client(headers=headers).send("orders.new")
    assert answer.status.code == Code.UNAUTHORIZED
    assert answer.status.message.startswith("no credential was shown; needed: the header authorization")
    counts = shop.broker.status()["audit"]["refused"]
    assert (counts["none_shown"], counts["signature"]) == (1, 0)


def test_a_missing_right_is_noted_with_the_address(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[AskedBy] = []
    monkeypatch.setattr(Refusals, "right", lambda self, asked, *of: noted.append(asked))
    assert shop.as_("other").send("orders.new").status.code == Code.FORBIDDEN
    [asked] = noted
    assert (asked.who, asked.front, asked.peer) == ("other", "rocketmq", "127.0.0.1")


def test_two_keys_of_different_rights(shop: Shop) -> None:
    mine, other = shop.as_("shop"), shop.as_("other")
    assert code_of(mine, "orders.new") == Code.OK
    assert code_of(mine, "stock.new") == Code.FORBIDDEN
    assert code_of(other, "orders.new") == Code.FORBIDDEN
    assert code_of(other, "stock.new") == Code.OK
    [message] = mine.receive("orders.new", "billing")
    for rpc, topic, group in ((other, "orders.new", "billing"), (mine, "orders.new", "keepers")):
        with pytest.raises(RefusedError) as refused:
            rpc.receive(topic, group)
        assert refused.value.code == Code.FORBIDDEN
    assert other.ack("orders.new", "billing", message).entries[0].status.code == Code.FORBIDDEN
    handle = message.system_properties.receipt_handle
    assert other.change("orders.new", "billing", handle, 1000).status.code == Code.FORBIDDEN
    request = s.ForwardMessageToDeadLetterQueueRequest(
        topic=res("orders.new"), group=res("billing"), receipt_handle=handle
    )
    assert other.ask("ForwardMessageToDeadLetterQueue", request).status.code == Code.FORBIDDEN
    assert mine.ack("orders.new", "billing", message).status.code == Code.OK
    assert shop.as_("root").send("stock.new").status.code == Code.OK


def test_a_token_is_taken_too(shop: Shop) -> None:
    token = shop.broker.add_credential("shop").secret
    rpc = shop.client(headers={"authorization": f"Bearer {token}"})
    assert code_of(rpc, "orders.new") == Code.OK
    assert code_of(rpc, "stock.new") == Code.FORBIDDEN


def test_routes_and_offsets_are_told_to_whom_the_topic_concerns(shop: Shop) -> None:
    mine, other, reader = shop.as_("shop"), shop.as_("other"), shop.as_("reader")
    assert code_of(mine, "orders.new") == Code.OK
    queue = d.MessageQueue(topic=res("orders.new"))
    asked = (
        ("QueryRoute", s.QueryRouteRequest(topic=res("orders.new"))),
        ("QueryAssignment", s.QueryAssignmentRequest(topic=res("orders.new"), group=res("billing"))),
        ("QueryOffset", s.QueryOffsetRequest(message_queue=queue)),
    )
    for method, request in asked:
        assert mine.ask(method, request).status.code == Code.OK
        assert reader.ask(method, request).status.code == Code.OK
        assert other.ask(method, request).status.code == Code.FORBIDDEN
    update = s.UpdateOffsetRequest(message_queue=queue, group=res("billing"), offset=0)
    for rpc in (other, reader):
        assert rpc.ask("UpdateOffset", update).status.code == Code.FORBIDDEN
        get = s.GetOffsetRequest(message_queue=queue, group=res("billing"))
        assert rpc.ask("GetOffset", get).status.code == Code.FORBIDDEN
        pull = s.PullMessageRequest(message_queue=queue, group=res("billing"), offset=0, batch_size=1)
        assert [answer.status.code for answer in rpc.stream("PullMessage", pull)] == [Code.FORBIDDEN]


def test_a_recall_handle_is_no_right(shop: Shop) -> None:
    mine, other = shop.as_("shop"), shop.as_("other")
    sent = mine.send("orders.new", due_ms=now_ms() + 600_000)
    bare = sent.recall_handle.partition(".")[0]
    for topic, handle in (("orders.new", sent.recall_handle), ("stock.new", sent.recall_handle), ("stock.new", bare)):
        answer = other.ask("RecallMessage", s.RecallMessageRequest(topic=res(topic), recall_handle=handle))
        assert answer.status.code in (Code.FORBIDDEN, Code.BAD_REQUEST, Code.NOT_FOUND)
    # As a handle of nothing is answered.
    assert other.ask(
        "RecallMessage", s.RecallMessageRequest(topic=res("stock.new"), recall_handle=bare)
    ).status.code == int(Code.NOT_FOUND)
    own = s.RecallMessageRequest(topic=res("orders.new"), recall_handle=sent.recall_handle)
    assert mine.ask("RecallMessage", own).status.code == Code.OK
    assert mine.ask("RecallMessage", own).status.code == Code.NOT_FOUND


def test_a_transaction_is_decided_by_who_may_produce_its_message(shop: Shop) -> None:
    mine, other = shop.as_("shop"), shop.as_("other")
    sent = mine.send("orders.new", b"half", message_type=d.MessageType.TRANSACTION)
    for topic in ("orders.new", "stock.new"):
        for resolution in (d.TransactionResolution.COMMIT, d.TransactionResolution.ROLLBACK):
            assert other.end(topic, sent, resolution) == Code.FORBIDDEN
    assert mine.end("orders.new", sent, d.TransactionResolution.COMMIT) == Code.OK
    [message] = mine.receive("orders.new", "billing")
    assert message.body == b"half"


def test_the_same_client_id_of_another_caller_is_another_client(shop: Shop) -> None:
    """A goodbye under a stolen id must not give back what its owner holds."""
    mine, thief = shop.as_("shop", "client-1"), shop.as_("other", "client-1")
    assert code_of(mine, "orders.new") == Code.OK
    [message] = mine.receive("orders.new", "billing", push=True)
    goodbye = s.NotifyClientTerminationRequest(group=res("billing"))
    assert thief.ask("NotifyClientTermination", goodbye).status.code == Code.OK
    assert mine.ack("orders.new", "billing", message).status.code == Code.OK


def test_who_publishes_only_by_its_settings_is_not_asked_about_transactions(shop: Shop) -> None:
    thief, mine = shop.as_("other"), shop.as_("shop")
    for rpc, expected in ((thief, set()), (mine, {"orders.new"})):
        stream = rpc.telemetry(producer("orders.new"))
        assert stream.next().status.code == Code.OK
        [client] = [c for c in clients_of(shop) if c.id.endswith(f"\0{rpc.id}")]
        assert set(client.published_topics()) == expected


def clients_of(shop: Shop) -> list[Any]:
    return list(shop.front._components._clients._clients.values())  # noqa: SLF001  what only the front itself knows


def test_dead_letters_are_for_their_groups_readers(shop: Shop) -> None:
    mine, other, reader = shop.as_("shop"), shop.as_("other"), shop.as_("reader")
    assert code_of(mine, "orders.new") == Code.OK
    [message] = mine.receive("orders.new", "billing")
    request = s.ForwardMessageToDeadLetterQueueRequest(
        topic=res("orders.new"), group=res("billing"), receipt_handle=message.system_properties.receipt_handle
    )
    assert mine.ask("ForwardMessageToDeadLetterQueue", request).status.code == Code.OK
    route = s.QueryRouteRequest(topic=res("%DLQ%billing"))
    assert other.ask("QueryRoute", route).status.code == Code.FORBIDDEN
    [queue] = mine.ask("QueryRoute", route).message_queues
    assert queue.broker.name == "%DLQ%orders.new/billing"
    with pytest.raises(RefusedError) as refused:
        other.receive("%DLQ%billing", "undertakers", queue=queue.broker.name)
    assert refused.value.code == Code.FORBIDDEN
    assert len(reader.receive("%DLQ%billing", "undertakers", queue=queue.broker.name)) == 1
    assert len(mine.receive("%DLQ%billing", "billing", queue=queue.broker.name)) == 1


def test_a_removed_key_ends_streams_and_waits_and_calls(shop: Shop) -> None:
    mine = shop.as_("shop")
    stream = mine.telemetry(consumer("billing", "orders.new"))
    assert stream.next().status.code == Code.OK
    waiting = mine.stream("ReceiveMessage", receive_request("orders.new", "billing", wait_s=30))
    answers = iter(waiting)
    while not shop.front.waiting_receives("orders.new", "billing"):
        time.sleep(0.01)
    shop.broker.remove_credential(shop.ids["shop"])
    began_s = time.monotonic()
    assert code_of(mine, "orders.new") == Code.UNAUTHORIZED
    error = stream.next(LATE_S)
    assert isinstance(error, grpc.RpcError)
    assert error.code() == grpc.StatusCode.UNAUTHENTICATED
    assert [answer.status.code for answer in answers] == [Code.UNAUTHORIZED]
    assert time.monotonic() - began_s < LATE_S
    assert shop.as_("root").send("orders.new").status.code == Code.OK


def test_changed_rights_hold_for_the_next_call(shop: Shop) -> None:
    mine = shop.as_("shop")
    assert code_of(mine, "orders.new") == Code.OK
    shop.broker.set_identity("shop", ["produce stock.*"])
    assert code_of(mine, "orders.new") == Code.FORBIDDEN
    assert code_of(mine, "stock.new") == Code.OK


def test_a_signature_is_taken_for_as_long_as_its_key_lives(shop: Shop) -> None:
    """The header is remembered, but not beyond the expiry of its key."""
    soon_ms = shop.broker.clock.now_ms() + 1_500
    shop.broker.add_credential("shop", kind="access_key", access_key="brief", secret="s3cret-brief", expires_ms=soon_ms)
    rpc = shop.client(headers=signed("brief", "s3cret-brief"))
    assert code_of(rpc, "orders.new") == Code.OK
    end_s = time.monotonic() + LATE_S
    while code_of(rpc, "orders.new") == Code.OK:
        assert time.monotonic() < end_s
    assert shop.broker.clock.now_ms() >= soon_ms
    assert code_of(rpc, "orders.new") == Code.UNAUTHORIZED


def test_keys_of_the_file_may_use_all_topics_beside_identities(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("old 0ldsecret\n")
    with serving(Shop, tmp_path / "places") as start:
        (tmp_path / "places").mkdir()
        shop = start(rocketmq_keys=str(keys))
        old = shop.client(headers=signed("old", "0ldsecret"))
        assert code_of(old, "orders.new") == Code.OK
        shop.make_identities()
        assert code_of(old, "orders.new") == Code.OK
        assert code_of(old, "stock.new") == Code.OK
        assert code_of(shop.as_("shop"), "stock.new") == Code.FORBIDDEN
        assert code_of(shop.client(headers=signed("old", "wrong")), "orders.new") == Code.UNAUTHORIZED


OFFICIAL = """
import sys
from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

endpoint, key, secret = sys.argv[1:]
configuration = ClientConfiguration(endpoint, Credentials(key, secret))
producer = Producer(configuration, ())
producer.startup()
for topic in ("plain-orders", "plain-stock"):
    message = Message()
    message.topic, message.body = topic, b"official"
    try:
        producer.send(message)
        print(topic, "sent", flush=True)
    except Exception as error:
        print(topic, "refused", str(error).replace("\\n", " "), flush=True)
producer.shutdown()
consumer = SimpleConsumer(configuration, "billing", {"plain-orders": FilterExpression()})
consumer.startup()
messages = consumer.receive(8, 15)
for message in messages:
    consumer.ack(message)
print("received", len(messages), flush=True)
consumer.shutdown()
"""


@pytest.mark.timeout(120)
def test_the_official_client_with_two_keys(shop: Shop, tmp_path: Path) -> None:
    """In a process of its own: it leaves threads and open files behind."""
    shop.broker.set_identity("shop", ["produce plain-orders", "consume plain-orders group:billing"])

    def run(name: str, secret: str) -> str:
        command = [sys.executable, "-c", OFFICIAL, f"127.0.0.1:{shop.front.port}", name, secret]
        environment = os.environ | {"HOME": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, check=False).stdout

    said = run("shop", SECRETS["shop"]).splitlines()
    assert said[0] == "plain-orders sent"
    assert said[1].startswith("plain-stock refused")  # with its route
    assert said[2:] == ["received 1"]
    for name, secret in (("other", SECRETS["other"]), ("shop", "wrong")):
        assert "sent" not in run(name, secret)


def test_rights_are_those_of_the_grants() -> None:
    """The rules of retry and dead-letter topics, on their own."""
    from tarry.fronts.rocketmq.common import rights
    from tarry.identity.grants import Grant
    from tarry.identity.rights import Rights

    def of(*grants: str) -> Rights:
        return Rights(map(Grant.parse, grants))

    named, anything = of("consume orders group:g"), of("consume orders")
    assert rights.may_consume(named, "%RETRY%g", "g")
    assert not rights.may_consume(named, "%RETRY%g", "other")
    assert not rights.may_consume(named, "%RETRY%h", "h")
    assert not rights.may_consume(anything, "%RETRY%g", "g")
    assert rights.may_consume(of("consume *"), "%RETRY%g", "g")
    assert not rights.may_consume(of("consume orders group:g", "deny consume %RETRY%*"), "%RETRY%g", "g")
    assert not rights.may_consume(of("consume orders group:g", "deny consume * group:g"), "%RETRY%g", "g")
    assert rights.may_consume(named, "%DLQ%orders/g", "undertakers")
    assert not rights.may_consume(named, "%DLQ%stock/g", "undertakers")
    assert not rights.may_consume(named, "%DLQ%orders//0123456789abcdef", "g")
    assert rights.may_consume(of("browse orders"), "%DLQ%orders/g", "undertakers")
    assert rights.may_browse(named, "%DLQ%orders/g")
    assert not rights.may_browse(named, "orders")
    assert not rights.may_browse(of("consume orders group:g", "deny browse %DLQ%*"), "%DLQ%orders/g")
    rights.check_produce(Principal("n", named), "%RETRY%g")
    for topic in ("%RETRY%h", "orders", "%DLQ%orders/g"):
        with pytest.raises(Exception, match="has not the right produce"):
            rights.check_produce(Principal("n", named), topic)
