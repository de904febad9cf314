"""What producers send, and what becomes of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest

from tarry.api.operations import ListPending
from tarry.fronts.rocketmq.classic.batches import BatchEntry, encode_batch
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode
from tarry.fronts.rocketmq.classic.frames import BINARY
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, messages_of, send_back, send_fields


def test_a_message_arrives_as_it_was_sent(client: Remoting) -> None:
    sent = client.send("orders", b"one", flag=5, TAGS="a", KEYS="k1 k2", UNIQ_KEY="ABC", price="3")
    assert (sent.code, sent.fields["queueId"]) == (ResponseCode.SUCCESS, "0")
    [message] = client.pull_until(1, "orders", "g")
    assert (message["topic"], message["body"], message["flag"], message["offset"]) == ("orders", b"one", 5, 0)
    assert message["properties"] == {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "ABC", "price": "3", "__SEQ": "0"}
    assert message["born_ms"] == 1_700_000_000_000


def test_the_long_form_and_a_binary_header_do_the_same(place: Place) -> None:
    client = place.client(form=BINARY)
    fields = {
        "producerGroup": "p", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "UNIQ_KEY\x01A\x02",
    }  # fmt: skip
    assert client.ask(RequestCode.SEND_MESSAGE, fields, b"x").code == ResponseCode.SUCCESS
    [message] = client.pull_until(1, "orders", "g")
    assert (message["body"], message["properties"]["UNIQ_KEY"]) == (b"x", "A")


def test_a_batch_is_in_order(client: Remoting) -> None:
    entries = [BatchEntry(f"{i}".encode(), {"UNIQ_KEY": f"id-{i}", "TAGS": "t"}, i) for i in range(5)]
    sent = client.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("orders") | {"m": "true"}, encode_batch(entries))
    assert len(sent.fields["msgId"].split(",")) == 5
    messages = client.pull_until(5, "orders", "g")
    assert [(m["body"], m["properties"]["UNIQ_KEY"], m["flag"]) for m in messages] == [
        (f"{i}".encode(), f"id-{i}", i) for i in range(5)
    ]


def test_one_object_sent_twice_is_two_messages(client: Remoting) -> None:
    for _ in range(2):
        client.send("orders", b"x", UNIQ_KEY="SAME")
    assert [m["properties"]["UNIQ_KEY"] for m in client.pull_until(2, "orders", "g")] == ["SAME", "SAME"]


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
def test_packed_bodies_are_handed_out_plain(client: Remoting, codec: str) -> None:
    body, kinds = b"much " * 5000, {"lz4": 1, "zstd": 2, "zlib": 3}
    if codec == "zlib":
        packed = zlib.compress(body)
    else:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(body)
        packed = sink.getvalue().to_pybytes()
    fields = send_fields("orders") | {"f": 1 | kinds[codec] << 8}
    assert client.ask(RequestCode.SEND_MESSAGE_V2, fields, packed).code == ResponseCode.SUCCESS
    [message] = client.pull_until(1, "orders", "g")
    assert (message["body"], message["system"]) == (body, 0)
    assert client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"none").code == ResponseCode.MESSAGE_ILLEGAL


def test_delays_are_kept_and_in_order(place: Place, client: Remoting) -> None:
    now_ms = place.broker.clock.now_ms()
    client.send("orders", b"level", DELAY="1")
    client.send("orders", b"ms", TIMER_DELAY_MS="700")
    client.send("orders", b"at", TIMER_DELIVER_MS=str(now_ms + 400))
    client.send("orders", b"start", __STARTDELIVERTIME=str(now_ms + 550))
    client.send("orders", b"level 0", DELAY="0")
    messages = client.pull_until(5, "orders", "g")
    assert [m["body"] for m in messages] == [b"level 0", b"at", b"start", b"ms", b"level"]


def test_a_delayed_message_says_how_as_the_original_does(place: Place, client: Remoting) -> None:
    now_ms = place.broker.clock.now_ms()
    at_ms = (now_ms // 1000 + 2) * 1000
    client.send("orders", b"level", DELAY="1", REAL_TOPIC="forged", TIMER_OUT_MS="1")
    client.send("orders", b"ms", TIMER_DELAY_MS="1100")
    client.send("orders", b"at", TIMER_DELIVER_MS=str(at_ms))
    client.send("orders", b"past", TIMER_DELIVER_MS=str(now_ms - 5))
    client.send("orders", b"none", DELAY="0", TIMER_OUT_MS="1")
    pulled = client.pull_until(5, "orders", "g")
    fields = {"topic": "orders", "consumerGroup": "p", "queueId": -1, "maxMsgNums": 9, "invisibleTime": 9_000}
    more = {"pollTime": 5_000, "bornTime": 0, "initMode": 0, "exp": "*", "expType": "TAG"}
    popped = messages_of(client.ask(RequestCode.POP_MESSAGE, fields | more).body)
    names = ("DELAY", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID")
    real = {"REAL_TOPIC": "orders", "REAL_QID": "0"}
    [ms_due] = [m["stored_ms"] for m in pulled if m["body"] == b"ms"]
    for messages in (pulled, popped):
        said = {m["body"]: {n: m["properties"][n] for n in names if n in m["properties"]} for m in messages}
        assert said == {
            b"level": {"DELAY": "1"} | real,
            b"ms": {"TIMER_DELAY_MS": "1100", "TIMER_OUT_MS": str((ms_due - 1) // 1000 * 1000)} | real,
            b"at": {"TIMER_DELIVER_MS": str(at_ms), "TIMER_OUT_MS": str(at_ms - 1000)} | real,
            b"past": {"TIMER_DELIVER_MS": str(now_ms - 5)},
            b"none": {},
        }


def test_a_consumer_that_sends_with_the_next_level_climbs(serve: Callable[..., Place]) -> None:
    client = serve(delay_levels="200ms 210ms 220ms").client()
    client.send("orders", b"x", DELAY="1")
    levels = []
    for count in range(1, 5):
        message = client.pull_until(count, "orders", "g")[-1]
        levels.append(message["properties"]["DELAY"])
        client.send("orders", b"x", **message["properties"] | {"DELAY": str(int(levels[-1]) + 1)})
    assert levels == ["1", "2", "3", "3"], "the last is the last"


def test_a_retry_says_its_own_level(serve: Callable[..., Place]) -> None:
    client = serve(delay_levels="1ms 2ms 300ms 4ms").client()
    client.send("orders", b"x", TIMER_DELAY_SEC="0", TIMER_DELIVER_MS="5")
    [first] = client.pull_until(1, "orders", "g")
    assert send_back(client, first, 0) == ResponseCode.SUCCESS
    [again] = client.pull_until(1, "%RETRY%g", "g")
    names = ("DELAY", "TIMER_DELAY_SEC", "REAL_TOPIC", "REAL_QID")
    assert [again["properties"].get(name) for name in names] == ["3", None, "%RETRY%g", "0"]


def test_levels_above_the_last_are_the_last(place: Place, client: Remoting) -> None:
    before_ms = place.broker.clock.now_ms()
    assert client.send("orders", DELAY="99").fields["recallHandle"]
    [due_ms] = place.broker.call(ListPending(topic="orders")).rows.column("due_ms").to_pylist()
    assert before_ms + 7_200_000 <= due_ms <= place.broker.clock.now_ms() + 7_200_000


def test_levels_are_a_setting_and_those_of_0_and_below_are_none(serve: Callable[..., Place]) -> None:
    place = serve(delay_levels="3s 40d")
    client = place.client()
    for level in ("1", "2", "3"):
        before_ms = place.broker.clock.now_ms()
        client.send(f"level-{level}", DELAY=level)
        [due_ms] = place.broker.call(ListPending(topic=f"level-{level}")).rows.column("due_ms").to_pylist()
        delay_ms = 3_000 if level == "1" else 40 * 86_400_000
        assert before_ms + delay_ms <= due_ms <= place.broker.clock.now_ms() + delay_ms
    for level in ("0", "-1"):
        client.send("now", DELAY=level)
    assert len(client.pull_until(2, "now", "g")) == 2


@pytest.mark.rest
def test_messages_of_a_level_come_in_order_and_once_also_after_a_restart(serve: Callable[..., Place]) -> None:
    place = serve(delay_levels="1s")
    client = place.client()
    sent = [f"{number}".encode() for number in range(60)]
    for body in sent[:30]:
        client.send("orders", body, DELAY="1")
    client.pull_until(10, "orders", "g")
    for body in sent[30:]:
        client.send("orders", body, DELAY="1")
    place.restart()
    client = place.client()
    assert [m["body"] for m in client.pull_until(60, "orders", "g")] == sent
    assert client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": 0}).fields["offset"] == "60"


def test_a_recall_says_what_is_true(client: Remoting) -> None:
    handle = client.send("orders", b"x", UNIQ_KEY="ID", TIMER_DELAY_SEC="60").fields["recallHandle"]
    fields = {"topic": "orders", "recallHandle": handle}
    answer = client.ask(RequestCode.RECALL_MESSAGE, fields)
    assert (answer.code, answer.fields["msgId"]) == (ResponseCode.SUCCESS, "ID")
    assert client.ask(RequestCode.RECALL_MESSAGE, fields).code == ResponseCode.ILLEGAL_OPERATION
    assert client.ask(RequestCode.RECALL_MESSAGE, fields | {"topic": "other"}).code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    ("topic", "body", "properties", "code"),
    [
        ("orders", b"", {}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", b"x" * 2000, {}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", b"x", {"tarry.order": "k"}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", b"x", {"p": "v" * 40_000}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", b"x", {"DELAY": "soon"}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", b"x", {"TIMER_DELAY_SEC": "99999999999"}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", b"x", {"TAGS": "a|b"}, ResponseCode.MESSAGE_ILLEGAL),
        ("or ders", b"x", {}, ResponseCode.INVALID_PARAMETER),
        ("tarry.halves", b"x", {}, ResponseCode.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", b"x", {}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_what_is_not_allowed_is_refused(
    serve: Callable[..., Place], topic: str, body: bytes, properties: dict[str, str], code: int
) -> None:
    client = serve(body_bytes_max=1000).client()
    answer = client.send(topic, body, **properties)
    assert (answer.code, bool(answer.remark)) == (code, True)


def test_traces_are_taken_and_thrown_away(place: Place, client: Remoting) -> None:
    assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "RMQ_SYS_TRACE_TOPIC"}).code == ResponseCode.SUCCESS
    assert client.send("RMQ_SYS_TRACE_TOPIC", b"trace").code == ResponseCode.SUCCESS
    assert place.broker.call(ListPending(topic="RMQ_SYS_TRACE_TOPIC")).rows.num_rows == 0


def test_a_topic_must_be_there_where_it_is_not_made(serve: Callable[..., Place]) -> None:
    client = serve(rocketmq_create_topics="off").client()
    assert client.send("orders").code == ResponseCode.TOPIC_NOT_EXIST
    assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_what_was_acknowledged_is_there_after_a_restart(place: Place) -> None:
    place.client().send("orders", b"kept", UNIQ_KEY="A")
    place.restart()
    assert [m["body"] for m in place.client().pull_until(1, "orders", "g")] == [b"kept"]


def test_an_empty_topic_is_pulled_in_vain(client: Remoting) -> None:
    answer = client.pull("orders", "g", 0, wait_s=0)
    assert (answer.code, messages_of(answer.body)) == (ResponseCode.PULL_NOT_FOUND, [])
