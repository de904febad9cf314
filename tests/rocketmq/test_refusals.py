"""What is refused, with which code; and that nothing else suffers for it."""

from __future__ import annotations

import gzip
import socket
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from loopgrpc.frames import DATA, PREFACE, frame, settings
from tarry.fronts.rocketmq.v5.service import NAME
from tests import rocketmq_place
from tests.loopgrpc.wire import call
from tests.rocketmq.conftest import WAIT_S, Place
from tests.rocketmq.rpc import Code, RefusedError, Rpc, consumer, d, message, now_ms, producer, res, s, signed
from tests.waiting import wait_until

FULL = b"x" * (4 << 20)
QUARTERS = {"properties": {"p" * (4 << 10): "x" * (4 << 10)}, "keys": ["k" * (4 << 10)]}
BOMB = gzip.compress(b"\0" * (64 << 20))


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rpc]:
    """A client of one broker for all that is refused, since nothing of it is kept."""
    with rocketmq_place.serving(Place, tmp_path_factory.mktemp("common")) as start:
        rpc = start().client()
        take_a_good_one(rpc)
        yield rpc


def take_a_good_one(rpc: Rpc) -> None:
    """Nothing that was refused is there beside it."""
    assert rpc.send("orders", b"good").status.code == Code.OK
    [got] = rpc.receive("orders", "g")
    assert got.body == b"good"
    assert rpc.ack("orders", "g", got).status.code == Code.OK


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"body": b""}, Code.MESSAGE_BODY_EMPTY),
        ({"body": b"x" * ((4 << 20) + 1)}, Code.MESSAGE_BODY_TOO_LARGE),
        ({"body": b"no gzip", "body_encoding": d.Encoding.GZIP}, Code.MESSAGE_CORRUPTED),
        ({"body": gzip.compress(b"cut off")[:-9], "body_encoding": d.Encoding.GZIP}, Code.MESSAGE_CORRUPTED),
        ({"body": BOMB, "body_encoding": d.Encoding.GZIP}, Code.MESSAGE_BODY_TOO_LARGE),
        ({"properties": {f"p{i}": "x" for i in range(129)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"properties": {"p": "x" * (16 << 10)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"properties": {"ü": "x" * ((16 << 10) - 1)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"keys": ["k" * (8 << 10), "l" * (8 << 10), "m"]}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"body": FULL, **QUARTERS, "tag": "t" * ((4 << 10) + 1)}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"trace_context": "t" * (64 << 10)}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"properties": {"TRAN_MSG": "true"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {"__BORNHOST": "x"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {"tarry.only": "g"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {"a\nb": "x"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {"a": "x\x00"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"tag": " "}, Code.ILLEGAL_MESSAGE_TAG),
        ({"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
        ({"tag": "t" * ((16 << 10) + 1)}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"keys": [" "]}, Code.ILLEGAL_MESSAGE_KEY),
        ({"keys": ["a\tb"]}, Code.ILLEGAL_MESSAGE_KEY),
        ({"message_id": " "}, Code.ILLEGAL_MESSAGE_ID),
        ({"message_id": "m" * 256}, Code.ILLEGAL_MESSAGE_ID),
        ({"message_group": " "}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"message_group": "g" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"message_type": d.MessageType.FIFO}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"message_type": d.MessageType.DELAY}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"message_type": d.MessageType.LITE}, Code.UNSUPPORTED),
        ({"message_type": 99}, Code.UNSUPPORTED),
        ({"properties": {"TIMER_DELAY_SEC": "soon"}}, Code.ILLEGAL_DELIVERY_TIME),
        ({"properties": {"DELAY": "three"}}, Code.ILLEGAL_DELIVERY_TIME),
        ({"properties": {"TIMER_DELAY_SEC": "9" * 18}}, Code.ILLEGAL_DELIVERY_TIME),
        ({"due_ms": 253_402_300_799_000}, Code.ILLEGAL_DELIVERY_TIME),
    ],
)  # fmt: skip
def test_messages(common: Rpc, given: dict[str, Any], code: int) -> None:
    entry = common.send("orders", **given)
    assert entry.status.code == code, entry.status
    assert entry.status.message
    take_a_good_one(common)


@pytest.mark.parametrize("message_type", [d.MessageType.NORMAL, d.MessageType.TRANSACTION])
@pytest.mark.parametrize(
    "given",
    [
        {"tag": "t" * (16 << 10)},
        {"tag": "ü" * (8 << 10)},
        {"keys": ["k" * (16 << 10)]},
        {"keys": ["k" * (8 << 10), "l" * (8 << 10)]},
        {"properties": {f"{i:03}": "x" * 125 for i in range(128)}},
        {"body": FULL, "properties": {"p" * (8 << 10): "x" * (8 << 10)}},
        {"body": FULL, **QUARTERS, "tag": "t" * (4 << 10)},
        {"body": FULL, **QUARTERS, "tag": "t" * (4 << 10), "message_group": "g" * 63},
    ],
)  # fmt: skip
def test_a_message_at_the_limit(
    common: Rpc, given: dict[str, Any], message_type: int, request: pytest.FixtureRequest
) -> None:
    """What its user gives is counted, to the byte, as RocketMQ's proxy does; not what its client says beside."""
    beside = {"born_host": "h" * 255, "trace_context": "t" * 1000, "message_type": message_type}
    topic = f"limit-{zlib.crc32(request.node.name.encode())}"  # its own: what is sent is received
    sent = common.send(topic, **given, **beside)
    assert sent.status.code == Code.OK, sent.status
    if message_type == d.MessageType.TRANSACTION:
        assert common.end(topic, sent, d.TransactionResolution.COMMIT) == Code.OK
    [got] = common.receive(topic, "g")
    system = got.system_properties
    assert (system.tag, list(system.keys)) == (given.get("tag", ""), given.get("keys", []))
    assert (got.body, dict(got.user_properties)) == (given.get("body", b"x"), given.get("properties", {}))
    assert (system.born_host, system.trace_context) == (beside["born_host"], beside["trace_context"])


def test_what_is_stored_fits_the_brokers_own_limit(serve: Callable[..., Place]) -> None:
    """Also of a transaction, which is stored with more than its message."""
    rpc = serve(properties_bytes_max=2000).client()
    stored = len("__BORNHOST" + "h" + "p")
    fits, more = ({"p": "x" * (size - stored)} for size in (2000, 2001))
    given = {"tag": "t" * 5000, "born_host": "h"}
    assert rpc.send("orders", properties=fits, **given).status.code == Code.OK
    assert rpc.send("orders", properties=more, **given).status.code == Code.MESSAGE_PROPERTIES_TOO_LARGE
    half = {"message_type": d.MessageType.TRANSACTION, "born_host": "h"}
    assert rpc.send("orders", properties=fits, **half).status.code == Code.MESSAGE_PROPERTIES_TOO_LARGE
    assert rpc.send("orders", properties={"p": "x" * 1700}, **half).status.code == Code.OK
    assert len(rpc.receive("orders", "g")) == 1


@pytest.mark.parametrize(
    "topic", ["", " ", "a b", "ü", "x" * 256, "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "tarry.halves"]
)
def test_topics(common: Rpc, topic: str) -> None:
    assert common.send(topic).status.code == Code.ILLEGAL_TOPIC
    assert common.ask("QueryRoute", s.QueryRouteRequest(topic=res(topic))).status.code == Code.ILLEGAL_TOPIC
    with pytest.raises(RefusedError) as refused:
        common.receive(topic, "g")
    assert refused.value.code == Code.ILLEGAL_TOPIC


@pytest.mark.parametrize("group", ["", "a b", "x" * 256, "tarry.dead"])
def test_groups(common: Rpc, group: str) -> None:
    with pytest.raises(RefusedError) as refused:
        common.receive("orders", group)
    assert refused.value.code == Code.ILLEGAL_CONSUMER_GROUP
    assert common.ack("orders", group, message("orders")).status.code == Code.ILLEGAL_CONSUMER_GROUP


def test_a_request_is_all_or_nothing_before_it_is_accepted(rpc: Rpc, place: Place) -> None:
    for messages in (
        [],
        [message("orders"), message("others")],
        [message("orders"), message("orders", b"")],
        [message("orders")] * 1025,
    ):
        answer = rpc.ask("SendMessage", s.SendMessageRequest(messages=messages))
        assert answer.status.code in (Code.MESSAGE_CORRUPTED, Code.MESSAGE_BODY_EMPTY)
    assert [t.topic for t in place.broker.pending()] == ["tarry.halves"]


def test_handles_that_are_none_or_stale(rpc: Rpc) -> None:
    for handle in ("", "x", "AAAA", "é", "A" * 5000):
        broken = message("orders")
        broken.system_properties.receipt_handle = handle
        assert rpc.ack("orders", "g", broken).status.code == Code.INVALID_RECEIPT_HANDLE
        assert rpc.change("orders", "g", handle, 1000).status.code == Code.INVALID_RECEIPT_HANDLE
    rpc.send("orders")
    [got] = rpc.receive("orders", "g")
    assert rpc.ack("orders", "other", got).status.code == Code.INVALID_RECEIPT_HANDLE
    assert rpc.ack("others", "g", got).status.code == Code.INVALID_RECEIPT_HANDLE
    assert rpc.ack("orders", "g").status.code == Code.BAD_REQUEST
    assert rpc.ack("orders", "g", got).status.code == Code.OK
    assert "INVALID_RECEIPT_HANDLE" in rpc.ack("orders", "g", got).entries[0].status.message


@pytest.mark.parametrize(("ms", "words"), [(0, "too small"), (9_999, "too small"), (12 * 3_600_000 + 1, "too large")])
def test_invisible_times(common: Rpc, ms: int, words: str) -> None:
    with pytest.raises(RefusedError, match=f"the invisibleTime is {words}") as refused:
        common.receive("orders", "g", invisible_ms=ms)
    assert refused.value.code == Code.ILLEGAL_INVISIBLE_TIME


def test_changed_invisible_times(rpc: Rpc) -> None:
    rpc.send("orders")
    [got] = rpc.receive("orders", "g")
    for ms in (-1, 12 * 3_600_000 + 1):
        answer = rpc.change("orders", "g", got.system_properties.receipt_handle, ms)
        assert answer.status.code == Code.ILLEGAL_INVISIBLE_TIME


METHODS = [
    "QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "AckMessage", "ForwardMessageToDeadLetterQueue",
    "UpdateOffset", "GetOffset", "QueryOffset", "EndTransaction", "NotifyClientTermination", "ChangeInvisibleDuration",
    "RecallMessage",
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_bytes_that_are_no_request(common: Rpc, method: str) -> None:
    answer = getattr(s, f"{method}Response").FromString(common.raw(method, b"\xff\xff\xff"))
    assert answer.status.code == Code.BAD_REQUEST


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("Heartbeat", "NotifyClientTermination")])
def test_requests_that_say_nothing(common: Rpc, method: str) -> None:
    answer = getattr(s, f"{method}Response").FromString(common.raw(method, b""))
    assert 40000 <= answer.status.code < 50000, answer


@pytest.mark.parametrize("method", ["ReceiveMessage", "PullMessage"])
def test_streams_of_bytes_that_are_no_request(common: Rpc, method: str) -> None:
    call = common.channel.unary_stream(f"/{NAME}/{method}", lambda b: b, getattr(s, f"{method}Response").FromString)
    [answer] = call(b"\xff\xff", metadata=common.metadata)
    assert answer.status.code == Code.BAD_REQUEST
    [answer] = call(b"", metadata=common.metadata)
    assert 40000 <= answer.status.code < 50000


def test_a_client_without_an_id(place: Place) -> None:
    nobody = place.client()
    nobody.metadata = ()
    for method in METHODS:
        answer = getattr(s, f"{method}Response").FromString(nobody.raw(method, b""))
        assert answer.status.code == Code.CLIENT_ID_REQUIRED
    assert nobody.telemetry(producer("orders")).next().status.code == Code.CLIENT_ID_REQUIRED


def test_signatures(serve: Callable[..., Place], tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# ours\nshop s3cret\n\nother 0ther  # theirs\n")
    place = serve(rocketmq_keys=str(keys))
    assert place.client(headers=signed("shop", "s3cret")).send("orders").status.code == Code.OK
    lower = signed("other", "0ther")
    scheme, _, signature = lower["authorization"].rpartition("=")
    lower["authorization"] = f"{scheme}={signature.lower()}"
    assert place.client(headers=lower).send("orders").status.code == Code.OK
    for headers in (
        {},
        signed("shop", "wrong"),
        signed("nobody", "s3cret"),
        signed("nobody", ""),
        signed("shop", "s3cret") | {"x-mq-date-time": "20270101T000000Z"},
        signed("shop", "s3cret", "19990101T000000Z"),
        signed("shop", "s3cret", "20990101T000000Z"),
        signed("shop", "s3cret", "now"),
        signed("shop", "s3cret", datetime.now(UTC).replace(tzinfo=None).isoformat()),
        signed("shop", "s3cret", (datetime.now(UTC) - timedelta(hours=16)).isoformat()),
        {"authorization": "Basic c2hvcDpzM2NyZXQ="},
        {"authorization": "Bearer s3cret"},
    ):
        rpc = place.client(headers=headers)
        assert rpc.send("orders").status.code == Code.UNAUTHORIZED
        assert rpc.telemetry(producer("orders")).next().status.code == Code.UNAUTHORIZED
        with pytest.raises(RefusedError) as refused:
            rpc.receive("orders", "g")
        assert refused.value.code == Code.UNAUTHORIZED


@pytest.mark.parametrize("hours", [0, 8, -11])
def test_signatures_with_the_date_of_the_rust_client(serve: Callable[..., Place], tmp_path: Any, hours: int) -> None:
    keys = tmp_path / "keys"
    keys.write_text("shop s3cret\n")
    place = serve(rocketmq_keys=str(keys))
    zone = timezone(timedelta(hours=hours))
    moment = datetime.now(zone).isoformat(timespec="microseconds")  # that client has nanoseconds
    for fraction in ("", "123"):
        date = (moment[:26] + fraction + moment[26:]).replace("+00:00", "Z")
        assert place.client(headers=signed("shop", "s3cret", date)).send("orders").status.code == Code.OK, date


def test_topics_that_are_not_made_by_being_named(serve: Callable[..., Place]) -> None:
    place = serve(rocketmq_create_topics="off")
    rpc = place.client()
    assert rpc.send("orders").status.code == Code.TOPIC_NOT_FOUND
    assert rpc.ask("QueryRoute", s.QueryRouteRequest(topic=res("orders"))).status.code == Code.TOPIC_NOT_FOUND
    with pytest.raises(RefusedError) as refused:
        rpc.receive("orders", "g")
    assert refused.value.code == Code.TOPIC_NOT_FOUND
    # Each client asks for the routes of its topics when it starts, and ends there; a push consumer would ask for this.
    request = s.QueryAssignmentRequest(topic=res("orders"), group=res("g"))
    assert rpc.ask("QueryAssignment", request).status.code == Code.TOPIC_NOT_FOUND
    place.broker.set_topic("orders", declared=True)
    place.restart()
    rpc = place.client()
    assert rpc.send("orders").status.code == Code.OK
    assert len(rpc.receive("orders", "g")) == 1


def test_a_full_disk(serve: Callable[..., Place]) -> None:
    """The broker looks now and then; from then on it refuses, and serves its consumers."""
    place = serve(disk_free_bytes_min=1)
    rpc = place.client()
    accepted: list[bytes] = []

    def is_refused() -> bool:
        entry = rpc.send("orders", body := b"%d" % len(accepted))
        if entry.status.code != Code.OK:
            assert entry.status.code == Code.TOO_MANY_REQUESTS
            assert "disk" in entry.status.message
            return True
        accepted.append(body)
        return False

    assert not is_refused()
    place.disk.free = 0
    wait_until(is_refused)
    assert [m.body for m in rpc.receive("orders", "g", most=1000)] == accepted


def test_a_broker_that_has_failed(place: Place) -> None:
    rpc = place.client()
    rpc.send("orders", b"x")
    place.disk.broken_sync = True
    assert rpc.send("orders").status.code == Code.INTERNAL_SERVER_ERROR
    assert place.broker.wait_fatal(WAIT_S)
    assert rpc.send("orders").status.code == Code.INTERNAL_SERVER_ERROR
    with pytest.raises(RefusedError) as refused:
        rpc.receive("orders", "g", wait_s=5)
    assert refused.value.code == Code.INTERNAL_SERVER_ERROR


def test_long_delays_are_fine(rpc: Rpc) -> None:
    year = 366 * 86_400_000
    assert rpc.send("orders", due_ms=now_ms() + year - 60_000).status.code == Code.OK


def test_the_longest_delay_is_the_brokers(serve: Callable[..., Place]) -> None:
    rpc = serve(delay_ms_max=60_000).client()
    assert rpc.send("orders", due_ms=now_ms() + 59_000).status.code == Code.OK
    assert rpc.send("orders", due_ms=now_ms() + 62_000).status.code == Code.ILLEGAL_DELIVERY_TIME


def test_settings_that_say_nothing(rpc: Rpc) -> None:
    assert "40000" in str(rpc.telemetry(d.Settings()).next())
    assert str(Code.ILLEGAL_CONSUMER_GROUP) in str(rpc.telemetry(consumer("a b", "orders")).next())


def test_with_keys_half_a_request_of_a_stranger_is_short(serve: Callable[..., Place], tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice S3CRETSECRET\n")
    place = serve(rocketmq_keys=str(keys))
    with socket.create_connection(("127.0.0.1", place.front.port), 30) as stranger:
        stranger.sendall(
            PREFACE + settings({}) + call(1, None, path="/apache.rocketmq.v2.MessagingService/SendMessage")
        )
        stranger.sendall(frame(DATA, 0, 1, (5 << 20).to_bytes(5, "big") + bytes(16_000)))
        for _ in range(4):
            stranger.sendall(frame(DATA, 0, 1, bytes(16_000)))
        got = b""
        while b"waits for handlers" not in got:
            part = stranger.recv(65_536)
            assert part
            got += part
