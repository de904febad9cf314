"""Messages through the RocketMQ front: what arrives is what was sent, when it should, and settled as it was said."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from tarry.api.operations import SetGroup
from tests.rocketmq.conftest import WAIT_S, Place
from tests.rocketmq.rpc import Code, RefusedError, Rpc, consumer, d, message, now_ms, receive_request, res, s
from tests.waiting import wait_until


def test_what_is_sent_arrives(rpc: Rpc) -> None:
    before = now_ms()
    sent = rpc.send(
        "orders", "Grüße".encode(), tag="paid", keys=["a", "b c"], properties={"x": "1", "ü": "ö"}, message_id="M1",
        born_host="shop", trace_context="00-1",
        born_timestamp=d.SystemProperties(born_timestamp={"seconds": 5, "nanos": 6_000_000}).born_timestamp,
    )  # fmt: skip
    assert (sent.status.code, sent.message_id, sent.recall_handle) == (Code.OK, "M1", "")
    [got] = rpc.receive("orders", "g")
    system = got.system_properties
    assert (got.body, got.topic.name, dict(got.user_properties)) == ("Grüße".encode(), "orders", {"x": "1", "ü": "ö"})
    assert (system.tag, list(system.keys), system.message_id) == ("paid", ["a", "b c"], "M1")
    assert (system.born_host, system.trace_context, system.born_timestamp.ToMilliseconds()) == ("shop", "00-1", 5006)
    assert before <= system.store_timestamp.ToMilliseconds() <= now_ms()
    assert (system.delivery_attempt, system.message_type) == (1, d.MessageType.NORMAL)
    assert system.body_encoding == d.Encoding.IDENTITY
    assert system.body_digest.checksum == hashlib.md5(got.body).hexdigest().upper()
    answer = rpc.ack("orders", "g", got)
    assert (answer.status.code, answer.entries[0].status.code) == (Code.OK, Code.OK)
    assert rpc.receive("orders", "g", wait_s=0) == []


def test_a_delay_to_the_millisecond(rpc: Rpc) -> None:
    due = now_ms() + 437
    sent = rpc.send("orders", b"later", due_ms=due)
    [got] = rpc.receive("orders", "g")
    assert now_ms() >= due, "never early"
    assert got.system_properties.delivery_timestamp.ToMilliseconds() == due
    assert got.system_properties.message_type == d.MessageType.DELAY
    assert sent.recall_handle


@pytest.mark.parametrize("message_type", [d.MessageType.DELAY, d.MessageType.TRANSACTION])
def test_a_delivery_time_that_has_passed_is_kept(rpc: Rpc, message_type: int) -> None:
    due = now_ms() - 20_000
    sent = rpc.send("orders", due_ms=due, message_type=message_type, properties={"mine": "1"})
    if message_type == d.MessageType.TRANSACTION:
        assert rpc.end("orders", sent, d.TransactionResolution.COMMIT) == Code.OK
    [got] = rpc.receive("orders", "g")
    assert got.system_properties.delivery_timestamp.ToMilliseconds() == due
    assert got.system_properties.message_type == message_type
    assert dict(got.user_properties) == {"mine": "1"}
    rpc.send("orders", b"at once")
    [got] = rpc.receive("orders", "g")
    assert not got.system_properties.HasField("delivery_timestamp")


def test_a_due_time_between_two_milliseconds_is_rounded_up(rpc: Rpc, place: Place) -> None:
    late = message("orders", due_ms=now_ms() + 3_600_000)
    late.system_properties.delivery_timestamp.nanos += 1
    wanted = late.system_properties.delivery_timestamp.ToMilliseconds() + 1
    assert rpc.ask("SendMessage", s.SendMessageRequest(messages=[late])).status.code == Code.OK
    assert place.broker.pending()[0].next_due_ms == wanted


@pytest.mark.parametrize(
    ("properties", "delay_ms"),
    [
        ({"DELAY": "1", "TIMER_DELAY_SEC": "9000"}, 1000),
        ({"DELAY": "999"}, 7_200_000),
        ({"DELAY": "0", "TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "1"}, 2000),
        ({"TIMER_DELAY_MS": "700", "TIMER_DELIVER_MS": "1"}, 700),
        ({"TIMER_DELIVER_MS": "{now+900}", "__STARTDELIVERTIME": "1"}, 900),
        ({"__STARTDELIVERTIME": "{now+900}"}, 900),
    ],
)
def test_delays_as_properties_in_the_originals_order(
    rpc: Rpc, place: Place, properties: dict[str, str], delay_ms: int
) -> None:
    before = now_ms()
    properties = {n: v.replace("{now+900}", str(before + 900)) for n, v in properties.items()}
    entry = rpc.send("orders", properties={**properties, "mine": "1"})
    after = now_ms()
    assert (entry.status.code, bool(entry.recall_handle)) == (Code.OK, True)
    due = place.broker.pending()[0].next_due_ms
    assert due is not None
    assert before + delay_ms <= due <= after + delay_ms
    if delay_ms <= 1000:
        assert dict(rpc.receive("orders", "g")[0].user_properties) == {"mine": "1"}


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_packed_body_is_handed_out_plain(rpc: Rpc, pack: object) -> None:
    body = b"much of the same " * 1000
    rpc.send("orders", pack(body), body_encoding=d.Encoding.GZIP)  # type: ignore[operator]
    [got] = rpc.receive("orders", "g")
    assert (got.body, got.system_properties.body_encoding) == (body, d.Encoding.IDENTITY)


def test_several_messages_in_one_request(rpc: Rpc) -> None:
    request = s.SendMessageRequest(messages=[message("orders", b"%d" % i, message_id=f"M{i}") for i in range(5)])
    answer = rpc.ask("SendMessage", request)
    assert [e.message_id for e in answer.entries] == [f"M{i}" for i in range(5)]
    assert [m.body for m in rpc.receive("orders", "g")] == [b"%d" % i for i in range(5)]


def test_a_producers_retry_is_one_message(rpc: Rpc) -> None:
    first, second = (rpc.send("orders", message_id="SAME", due_ms=now_ms() + 300) for _ in range(2))
    assert (first.status.code, first.offset, first.recall_handle) == (Code.OK, second.offset, second.recall_handle)
    assert len(rpc.receive("orders", "g")) == 1
    assert rpc.receive("orders", "g", wait_s=0.3) == []


def test_each_group_gets_all(rpc: Rpc) -> None:
    rpc.send("orders")
    assert len(rpc.receive("orders", "g")) == len(rpc.receive("orders", "h")) == 1


def test_filters(rpc: Rpc) -> None:
    for tag, a in (("A", "1"), ("B", "5"), ("C", "9")):
        rpc.send("orders", tag.encode(), tag=tag, properties={"a": a})
    assert [m.body for m in rpc.receive("orders", "tags", filter="A || C")] == [b"A", b"C"]
    assert [m.body for m in rpc.receive("orders", "sql", sql="a > 3 AND a < 7")] == [b"B"]
    with pytest.raises(RefusedError) as refused:
        rpc.receive("orders", "bad", sql="a >")
    assert refused.value.code == Code.ILLEGAL_FILTER_EXPRESSION


def test_a_tag_that_looks_like_two_is_one_as_in_rocketmq(rpc: Rpc) -> None:
    for tag in ("A", "B", "A & B", "A AND B"):
        rpc.send("orders", tag.encode(), tag=tag)
    assert [m.body for m in rpc.receive("orders", "tags", filter="A & B || A AND B")] == [b"A & B", b"A AND B"]
    rpc.send("orders", b"again", tag="A & B")
    assert [m.body for m in rpc.receive("orders", "tags", filter="A & B || A AND B")] == [b"again"]


def test_empty_parts_of_a_tag_expression_are_nothing_as_in_rocketmq(rpc: Rpc) -> None:
    for tag in ("A", "B", "C"):
        rpc.send("orders", tag.encode(), tag=tag)
    assert [m.body for m in rpc.receive("orders", "tags", filter="|| A || || B ||")] == [b"A", b"B"]


def test_what_is_not_acknowledged_comes_again(rpc: Rpc, place: Place) -> None:
    rpc.send("orders")
    [first] = rpc.receive("orders", "g", invisible_ms=10_000)
    handle = first.system_properties.receipt_handle
    answer = rpc.change("orders", "g", handle, 300)
    assert answer.status.code == Code.OK
    assert answer.receipt_handle != handle
    assert rpc.ack("orders", "g", first).entries[0].status.code == Code.INVALID_RECEIPT_HANDLE
    assert rpc.receive("orders", "g", wait_s=0) == []
    [again] = rpc.receive("orders", "g")
    assert again.system_properties.delivery_attempt == 2
    assert rpc.change("orders", "g", answer.receipt_handle, 300).status.code == Code.INVALID_RECEIPT_HANDLE


def test_a_message_held_longer_can_be_acknowledged_with_the_new_handle(rpc: Rpc) -> None:
    for _ in range(3):
        rpc.send("orders")
    got = rpc.receive("orders", "g")
    answer = rpc.change("orders", "g", got[1].system_properties.receipt_handle, 60_000)
    got[1].system_properties.receipt_handle = answer.receipt_handle
    assert rpc.ack("orders", "g", *got).status.code == Code.OK
    mixed = rpc.ack("orders", "g", got[0])
    assert mixed.status.code == Code.INVALID_RECEIPT_HANDLE


def test_mixed_results_have_a_code_of_their_own(rpc: Rpc) -> None:
    rpc.send("orders")
    [got] = rpc.receive("orders", "g")
    answer = rpc.ack("orders", "g", got, got)
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert sorted(e.status.code for e in answer.entries) == [Code.OK, Code.INVALID_RECEIPT_HANDLE]


def test_a_push_consumers_failure_is_a_try_that_survives_a_restart(place: Place) -> None:
    rpc = place.client("pushing")
    rpc.send("orders")
    [first] = rpc.receive("orders", "g", push=True)
    assert rpc.change("orders", "g", first.system_properties.receipt_handle, 500).status.code == Code.OK
    place.restart()
    [again] = place.client("pushing").receive("orders", "g", push=True)
    assert again.system_properties.delivery_attempt == 2


def test_tries_used_up_are_dead_letters_that_can_be_read(rpc: Rpc, place: Place) -> None:
    place.broker.set_group("orders", "g", tries=2)
    rpc.send("orders", b"poison", message_id="P", tag="t")
    for attempt in (1, 2):
        [got] = rpc.receive("orders", "g", push=True)
        assert got.system_properties.delivery_attempt == attempt
        rpc.change("orders", "g", got.system_properties.receipt_handle, 0)
    assert rpc.receive("orders", "g", push=True, wait_s=0.3) == []
    route = rpc.ask("QueryRoute", s.QueryRouteRequest(topic=res("%DLQ%g"))).message_queues
    assert [queue.broker.name for queue in route] == ["%DLQ%orders/g"]
    [dead] = rpc.receive("%DLQ%g", "undertaker", queue=route[0].broker.name)
    assert (dead.body, dead.topic.name) == (b"poison", "%DLQ%g")
    dead_letter = dead.system_properties.dead_letter_queue
    assert (dead_letter.topic, dead_letter.message_id, dead.system_properties.tag) == ("orders", "P", "t")
    assert rpc.ack("%DLQ%g", "undertaker", dead).status.code == Code.OK
    assert place.broker.group_info("orders", "g").dead == 1, "it stays until it is respawned or purged"


def test_a_client_may_give_a_message_up(rpc: Rpc, place: Place) -> None:
    rpc.send("orders")
    [got] = rpc.receive("orders", "g", push=True)
    request = s.ForwardMessageToDeadLetterQueueRequest(
        topic=res("orders"), group=res("g"), receipt_handle=got.system_properties.receipt_handle
    )
    assert rpc.ask("ForwardMessageToDeadLetterQueue", request).status.code == Code.OK
    assert rpc.ask("ForwardMessageToDeadLetterQueue", request).status.code == Code.INVALID_RECEIPT_HANDLE
    wait_until(lambda: place.broker.group_info("orders", "g").dead == 1)


def test_order_within_a_message_group(rpc: Rpc, place: Place) -> None:
    for i in range(6):
        rpc.send("steps", b"%d" % i, message_group=f"G{i % 2}", message_type=d.MessageType.FIFO)
    seen = []
    while len(seen) < 6:
        got = rpc.receive("steps", "g")
        assert sorted(m.system_properties.message_group for m in got) == ["G0", "G1"], "one of each at a time"
        seen += [m.body for m in got]
        assert rpc.receive("steps", "g", wait_s=0) == []
        rpc.ack("steps", "g", *got)
    assert [seen[0::2], seen[1::2]] in ([[b"0", b"2", b"4"], [b"1", b"3", b"5"]],)
    place.restart()
    assert place.broker.topic_info("steps").ordered


def test_a_message_group_waits_for_the_one_that_is_given_back(rpc: Rpc) -> None:
    """However many are asked for, one of a message group is out at a time; given back, it comes again first."""
    for i in range(4):
        rpc.send("steps", b"%d" % i, message_group="G", message_type=d.MessageType.FIFO)
    for attempt in (1, 2, 3):
        [got] = rpc.receive("steps", "g", 3)
        assert (got.body, got.system_properties.delivery_attempt) == (b"0", attempt)
        assert rpc.receive("steps", "g", 3, wait_s=0) == []
        assert rpc.change("steps", "g", got.system_properties.receipt_handle, 1).status.code == Code.OK
    [got] = rpc.receive("steps", "g", 3)
    rpc.ack("steps", "g", got)
    [got] = rpc.receive("steps", "g", 3)
    assert (got.body, got.system_properties.delivery_attempt) == (b"1", 1)


def test_recall_says_the_truth(rpc: Rpc) -> None:
    def recall(topic: str, handle: str) -> int:
        return int(rpc.ask("RecallMessage", s.RecallMessageRequest(topic=res(topic), recall_handle=handle)).status.code)

    sent = rpc.send("orders", due_ms=now_ms() + 60_000, message_id="R")
    assert recall("others", sent.recall_handle) == Code.BAD_REQUEST, "not of that topic"
    answer = rpc.ask("RecallMessage", s.RecallMessageRequest(topic=res("orders"), recall_handle=sent.recall_handle))
    assert (answer.status.code, answer.message_id) == (Code.OK, "R")
    assert recall("orders", sent.recall_handle) == Code.NOT_FOUND
    soon = rpc.send("orders", due_ms=now_ms() + 50)
    assert len(rpc.receive("orders", "g")) == 1
    assert recall("orders", soon.recall_handle) == Code.NOT_FOUND
    for bad in ("", "nonsense", "AA.BB.CC", sent.recall_handle[:-1] + "\0"):
        assert recall("orders", bad) == Code.BAD_REQUEST


def test_a_receive_waits_for_what_comes(place: Place) -> None:
    """It is answered when something comes, long before its own time is over."""
    waiting = place.client().stream("ReceiveMessage", receive_request("orders", "g", wait_s=55), timeout=60)
    place.wait_for_receives(1)
    place.client().send("orders", b"now")
    with ThreadPoolExecutor(1) as pool:
        bodies = pool.submit(lambda: [a.message.body for a in waiting if a.HasField("message")])
        assert bodies.result(WAIT_S) == [b"now"]


def test_namespaces_are_apart(place: Place) -> None:
    one, other = place.client(space="one"), place.client(space="other")
    one.send("orders", b"1")
    other.send("orders", b"2")
    assert [m.body for m in one.receive("orders", "g")] == [b"1"]
    assert [m.body for m in other.receive("orders", "g")] == [b"2"]
    assert sorted(t.topic for t in place.broker.pending()) == ["one%orders", "other%orders", "tarry.halves"]


def test_a_pull_that_waits_asks_nothing_when_it_wakes_up(place: Place) -> None:
    rpc = place.client()
    asked: list[str] = []
    call = place.broker.call

    def recorded(operation: Any) -> Any:
        asked.append(type(operation).__name__)
        return call(operation)

    place.broker.call = recorded  # type: ignore[method-assign]
    group = place.broker.group("orders", "g")
    woken = []
    group.listen(lambda: woken.append(1))
    request = s.PullMessageRequest(group=res("g"), message_queue=d.MessageQueue(topic=res("orders")), batch_size=5)
    request.filter_expression.CopyFrom(d.FilterExpression(type=d.FilterType.TAG, expression="*"))
    request.long_polling_timeout.FromSeconds(WAIT_S)
    listening = group.listen
    began = Event()

    def listen(on_news: Callable[[], None]) -> Callable[[], None]:
        began.set()
        return listening(on_news)

    group.listen = listen  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lambda: list(rpc.stream("PullMessage", request)))
        assert began.wait(WAIT_S)
        asked.clear()
        for tries in range(1, 6):
            call(SetGroup.of("orders", "g", tries=tries))
        rpc.send("orders", b"now")
        assert [a.message.body for a in answer.result(WAIT_S) if a.HasField("message")] == [b"now"]
    assert len(woken) >= 5
    assert asked == ["GetQueues", "ReadQueue"]


def test_pulling_by_offsets(rpc: Rpc) -> None:
    for i in range(5):
        rpc.send("orders", b"%d" % i, tag="AB"[i % 2])
    queue = d.MessageQueue(topic=res("orders"))

    def pull(offset: int, most: int = 3, tag: str = "*") -> tuple[list[bytes], int, int]:
        request = s.PullMessageRequest(group=res("g"), message_queue=queue, offset=offset, batch_size=most)
        request.filter_expression.CopyFrom(d.FilterExpression(type=d.FilterType.TAG, expression=tag))
        request.long_polling_timeout.FromMilliseconds(200)
        found = list(rpc.stream("PullMessage", request))
        bodies = [a.message.body for a in found if a.HasField("message")]
        return bodies, found[0].status.code, found[-1].next_offset

    rpc.receive("orders", "other", most=5)  # all are in the queue
    assert pull(0) == ([b"0", b"1", b"2"], Code.OK, 3)
    assert pull(3) == ([b"3", b"4"], Code.OK, 5)
    assert pull(5) == ([], Code.MESSAGE_NOT_FOUND, 5)
    assert pull(0, most=5, tag="B") == ([b"1", b"3"], Code.OK, 5)
    assert pull(99)[1] == Code.ILLEGAL_OFFSET
    get = s.GetOffsetRequest(group=res("g"), message_queue=queue)
    assert rpc.ask("GetOffset", get).offset == 0
    update = s.UpdateOffsetRequest(group=res("g"), message_queue=queue, offset=4)
    assert rpc.ask("UpdateOffset", update).status.code == Code.OK
    assert rpc.ask("GetOffset", get).offset == 4
    update.offset = 77
    assert rpc.ask("UpdateOffset", update).status.code == Code.ILLEGAL_OFFSET
    ends = [
        rpc.ask("QueryOffset", s.QueryOffsetRequest(message_queue=queue, query_offset_policy=policy)).offset
        for policy in (d.QueryOffsetPolicy.BEGINNING, d.QueryOffsetPolicy.END)
    ]
    assert ends == [0, 5]
    none = s.GetOffsetRequest(group=res("nobody"), message_queue=queue)
    assert rpc.ask("GetOffset", none).status.code == Code.OFFSET_NOT_FOUND


def test_settings_tell_all_that_clients_need(rpc: Rpc, place: Place) -> None:
    stream = rpc.telemetry(consumer("nobody", "orders"))
    answer = stream.next()
    settings = answer.settings
    assert answer.status.code == Code.OK
    assert (settings.backoff_policy.max_attempts, len(settings.backoff_policy.customized_backoff.next)) == (17, 16)
    assert [step.ToSeconds() for step in settings.backoff_policy.customized_backoff.next][:3] == [10, 30, 60]
    assert settings.subscription.receive_batch_size > 0
    assert settings.subscription.long_polling_timeout.ToSeconds() > 0
    assert not settings.subscription.fifo
    assert not settings.metric.on
    stream.close()
    place.broker.set_group("orders", "few", tries=3, retry="fixed 2s", ordered=True)
    stream = rpc.telemetry(consumer("few", "orders"))
    settings = stream.next().settings
    steps = [step.ToSeconds() for step in settings.backoff_policy.customized_backoff.next]
    assert (settings.backoff_policy.max_attempts, steps, settings.subscription.fifo) == (3, [2, 2], True)
    stream.close()


def test_a_topics_rate_is_obeyed(rpc: Rpc, place: Place) -> None:
    """One a second: the first receive is given one of five, however slow the machine is."""
    place.broker.set_topic("orders", max_per_second=1)
    for _ in range(5):
        rpc.send("orders")
    wait_until(lambda: sum(topic.ready for topic in place.broker.pending()) == 5)
    assert len(rpc.receive("orders", "g", wait_s=0)) == 1
    assert len(rpc.receive("orders", "g", wait_s=10)) >= 1, "who waits is given the next one"
