"""The front by raw packets, good and bad: what is answered, and with which reason it ends a connection."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tarry.fronts.mqtt.front import MqttFront
from tarry.fronts.mqtt.packets import V3, V5
from tarry.fronts.mqtt.reasons import Reason
from tarry.fronts.mqtt.wire import USER, Reader
from tarry.testing import open_broker
from tests.mqtt.place import (
    CONNACK,
    DISCONNECT,
    PINGRESP,
    PUBACK,
    PUBLISH,
    SUBACK,
    UNSUBACK,
    VERSIONS,
    Mqtt,
    Raw,
    ack,
    connect,
    framed,
    publish,
    serving,
    subscribe,
    text_bytes,
    unsubscribe,
)
from tests.waiting import wait_until

REASON = 1
"""Place of the reason in a CONNACK's body."""


def test_what_is_offered_is_told(mqtt: Mqtt) -> None:
    with mqtt.raw() as raw:
        answer = raw.connect(client_id="")
        assert answer[:2] == b"\0\0"
        told = Reader(answer[2:]).properties("connack")
        assert (told["qos_max"], told["retain_available"], told["wildcards_available"]) == (1, 0, 0)
        assert told["assigned_client_id"]
        raw.send(framed(0xC0, b""))
        assert raw.expect(PINGRESP) == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_goes_round(mqtt: Mqtt, version: int) -> None:
    with mqtt.raw() as raw:
        assert raw.connect(version)[REASON] == 0
        raw.send(subscribe("a", version=version))
        assert raw.expect(SUBACK)[-1] == 1
        raw.send(publish("a", b"hello", packet_id=9, version=version))
        kinds = {}
        for _ in range(2):
            packet = raw.packet()
            assert packet is not None
            kinds[packet[0] >> 4] = packet
        assert kinds[PUBACK][1] == b"\0\x09"
        first, body = kinds[PUBLISH]
        assert first == 0x32 and body.startswith(text_bytes("a") + b"\0\1") and body.endswith(b"hello")
        raw.send(ack(1), unsubscribe("a", version=version))
        assert raw.expect(UNSUBACK)[-1:] == (b"\0" if version == V5 else b"\2")
        assert mqtt.broker.groups() == []


def test_what_fails_is_given_back(mqtt: Mqtt) -> None:
    mqtt.broker.set_group("a", "g", retry="fixed 1ms")
    with mqtt.raw() as raw:
        raw.connect()
        raw.send(subscribe("$share/g/a"))
        raw.expect(SUBACK)
        mqtt.broker.schedule("a", b"x")
        raw.expect(PUBLISH)
        raw.send(ack(1, 0x80))
        packet = raw.packet()
        assert packet is not None and packet[0] == 0x3A, "QoS 1, and DUP"
        raw.send(ack(2, 0x10))
        wait_until(lambda: mqtt.broker.group_info("a", "g").lag == 0)


@pytest.mark.parametrize("end", [framed(0xE0, b""), unsubscribe("$share/g/a")], ids=["disconnect", "unsubscribe"])
def test_what_is_acknowledged_right_before_the_end_is_done(mqtt: Mqtt, end: bytes) -> None:
    mqtt.broker.set_group("a", "g", retry="fixed 1ms")
    for _ in range(5):
        mqtt.broker.schedule("a", b"x")
    with mqtt.raw() as raw:
        raw.connect()
        raw.send(subscribe("$share/g/a"))
        raw.expect(SUBACK)
        for _ in range(5):
            raw.expect(PUBLISH)
        raw.send(*(ack(number) for number in range(1, 6)), end)
        wait_until(lambda: mqtt.broker.group_info("a", "g").lag == 0)


def test_a_client_that_acknowledges_nothing_gets_it_again(mqtt: Mqtt) -> None:
    mqtt.broker.set_group("a", "g", lease_ms=1000)
    with mqtt.raw() as raw:
        raw.connect()
        raw.send(subscribe("$share/g/a"))
        raw.expect(SUBACK)
        mqtt.broker.schedule("a", b"slow")
        raw.expect(PUBLISH)
        # While it acknowledges others, it keeps what it has.
        for packet_id in range(2, 8):
            time.sleep(0.2)
            mqtt.broker.schedule("a", b"quick")
            assert raw.expect(PUBLISH).endswith(b"quick")
            raw.send(ack(packet_id))
        packet = raw.packet()
        assert packet is not None and packet[0] == 0x3A and packet[1].endswith(b"slow")
        raw.send(ack(1), ack(8))
        wait_until(lambda: mqtt.broker.group_info("a", "g").lag == 0)


def test_a_subscription_that_is_made_again_keeps_what_the_client_has(mqtt: Mqtt) -> None:
    with mqtt.raw() as raw:
        raw.connect()
        raw.send(subscribe("a"))
        raw.expect(SUBACK)
        mqtt.broker.schedule("a", b"one")
        raw.expect(PUBLISH)
        raw.send(subscribe("a", options=0))
        assert raw.expect(SUBACK)[-1] == 0
        mqtt.broker.schedule("a", b"two")
        packet = raw.packet()
        assert packet is not None and packet[0] == 0x30 and packet[1].endswith(b"two")
        raw.send(ack(1))
        wait_until(lambda: mqtt.broker.group_info("a", "mqtt@c").lag == 0)


def test_receive_maximum(mqtt: Mqtt) -> None:
    with mqtt.raw() as raw:
        raw.connect(properties={"receive_max": 2})
        raw.send(subscribe("a"), subscribe("b"))
        raw.expect(SUBACK), raw.expect(SUBACK)
        for number in range(6):
            mqtt.broker.schedule("ab"[number % 2], b"%d" % number)
        raw.expect(PUBLISH), raw.expect(PUBLISH)
        raw.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            raw.packet()
        raw.socket.settimeout(30)
        for number in range(1, 5):
            raw.send(ack(number))
            raw.expect(PUBLISH)


def test_packets_too_large_for_the_client_are_dead_letters(mqtt: Mqtt) -> None:
    with mqtt.raw() as raw:
        raw.connect(properties={"packet_bytes_max": 200})
        raw.send(subscribe("$share/g/a"))
        raw.expect(SUBACK)
        mqtt.broker.schedule("a", b"x" * 300)
        mqtt.broker.schedule("a", b"small")
        assert raw.expect(PUBLISH).endswith(b"small")
        wait_until(lambda: mqtt.broker.group_info("a", "g").dead == 1)


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (publish("a", qos=2), Reason.QOS_UNSUPPORTED),
        (framed(0x50, b"\0\1"), Reason.PROTOCOL_ERROR),
        (framed(0x32, b"\0"), Reason.MALFORMED),
        (b"\x30\xff\xff\xff\xff", Reason.MALFORMED),
        (b"\x30\xff\xff\xff\x7f", Reason.TOO_LARGE),
        (connect(), Reason.PROTOCOL_ERROR),
        (framed(0xF0, b""), Reason.PROTOCOL_ERROR),
    ],
)
def test_bad_packets_end_the_connection_and_no_other(mqtt: Mqtt, packet: bytes, reason: Reason) -> None:
    with mqtt.raw() as other, mqtt.raw() as raw:
        other.connect(client_id="other")
        raw.connect()
        raw.send(packet)
        assert raw.closes_with() == reason
        other.send(framed(0xC0, b""))
        other.expect(PINGRESP)
    with mqtt.raw() as old:
        old.connect(V3)
        old.send(packet)
        assert old.closes_with() is None


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (publish("a", flags=1), Reason.RETAIN_UNSUPPORTED),
        (publish("a", properties={"topic_alias": 1}), Reason.TOPIC_ALIAS_INVALID),
    ],
)
def test_what_was_not_offered_ends_the_connection(mqtt: Mqtt, packet: bytes, reason: Reason) -> None:
    with mqtt.raw() as raw:
        raw.connect()
        raw.send(packet)
        assert raw.closes_with() == reason


def test_before_a_connect_nothing_is_taken(mqtt: Mqtt) -> None:
    for first in (publish("a"), b"GET / HTTP/1.1\r\n\r\n", framed(0x10, text_bytes("MQTT"))):
        with mqtt.raw() as raw:
            raw.send(first)
            assert raw.closes_with() is None
    with mqtt.raw() as raw:
        raw.send(connect(3))
        assert raw.expect(CONNACK) == b"\0\1"
        assert raw.packet() is None


@pytest.mark.parametrize("version", VERSIONS)
def test_refused_messages(mqtt: Mqtt, version: int) -> None:
    with mqtt.raw() as raw:
        raw.connect(version)
        raw.send(publish("a/+", packet_id=1, version=version), publish("b", packet_id=2, version=version))
        if version == V3:
            assert raw.closes_with() is None, "3.1.1 has no other answer"
            return
        answers = [raw.expect(PUBACK), raw.expect(PUBACK)]
        assert answers[0][:3] == b"\0\1" + bytes((Reason.TOPIC_INVALID,))
        assert b"a/+" in answers[0]
        assert answers[1] == b"\0\2"
        raw.send(publish("b", properties={USER: [("tarry.unknown", "1")]}))
        assert raw.expect(PUBACK)[2] == Reason.NOT_ACCEPTED
        raw.send(publish("b", properties={USER: [("tarry.key", "k"), ("tarry.on_key", "if_pending")]}))
        unmet = raw.expect(PUBACK)
        assert unmet[2] == Reason.NOT_ACCEPTED
        assert b"not_pending" in unmet


@pytest.mark.parametrize(
    ("filter", "options", "reason"),
    [
        ("a", 2, 1),
        ("a/+", 1, Reason.WILDCARDS_UNSUPPORTED),
        ("$share/g", 1, Reason.FILTER_INVALID),
        ("$SYS/x", 1, Reason.FILTER_INVALID),
        ("a", 0b101, Reason.NOT_ACCEPTED),
    ],
)
def test_granted_and_refused_subscriptions(mqtt: Mqtt, filter: str, options: int, reason: int) -> None:
    with mqtt.raw() as raw:
        raw.connect()
        raw.send(subscribe(filter, options=options))
        assert raw.expect(SUBACK)[-1] == reason
    with mqtt.raw() as old:
        old.connect(V3)
        old.send(subscribe(filter, options=options & 3, version=V3))
        assert old.expect(SUBACK)[-1] == (0x80 if reason >= 0x80 and options < 4 else 1)


def test_texts_only_if_they_are_wanted(mqtt: Mqtt) -> None:
    with mqtt.raw() as raw:
        raw.connect(properties={"request_problem_information": 0})
        raw.send(publish("a/+"), subscribe("a/+"))
        bodies = {}
        for _ in range(2):
            packet = raw.packet()
            assert packet is not None
            bodies[packet[0] >> 4] = packet[1]
        assert bodies[PUBACK] == b"\0\1" + bytes((Reason.TOPIC_INVALID,)) + b"\0"
        assert bodies[SUBACK] == b"\0\1\0" + bytes((Reason.WILDCARDS_UNSUPPORTED,))


def test_a_slow_packet_after_a_long_silence(mqtt: Mqtt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.fronts.mqtt.connection.HALF_S", 1.0)
    monkeypatch.setattr("tarry.fronts.mqtt.connection.LOOK_S", 0.1)
    with mqtt.raw() as raw:
        raw.connect()
        time.sleep(1.2)
        packet = publish("a", b"x" * 1000)
        raw.send(packet[:500])
        time.sleep(0.4)
        raw.send(packet[500:])
        raw.expect(PUBACK)
        raw.send(packet[:500])
        assert raw.packet() is None


def test_a_second_connection_takes_over(mqtt: Mqtt) -> None:
    with mqtt.raw() as first, mqtt.raw() as second:
        first.connect()
        second.connect()
        assert first.closes_with() == Reason.TAKEN_OVER
        second.send(framed(0xC0, b""))
        second.expect(PINGRESP)


def test_keep_alive(mqtt: Mqtt) -> None:
    with mqtt.raw() as raw:
        raw.connect(keep_alive_s=1)
        began_s = time.monotonic()
        assert raw.closes_with() == Reason.KEEP_ALIVE_TIMEOUT
        assert time.monotonic() - began_s > 1.4


def test_a_session_is_kept_and_told(mqtt: Mqtt) -> None:
    kept = {"session_expiry_s": 1000}
    with mqtt.raw() as raw:
        assert raw.connect(clean=False, properties=kept)[0] == 0
        raw.send(subscribe("a"))
        raw.expect(SUBACK)
    mqtt.broker.schedule("a", b"missed")
    with mqtt.raw() as raw:
        raw.send(connect(clean=False, properties=kept))
        assert raw.expect(CONNACK)[0] == 1
        assert raw.expect(PUBLISH).endswith(b"missed")
        raw.send(framed(0xE0, b""))
    with mqtt.raw() as raw:
        assert raw.connect(clean=True)[0] == 0
    wait_until(lambda: mqtt.broker.groups() == [], what=mqtt.broker.groups)


def test_messages_in_flight_come_again_after_the_connection(mqtt: Mqtt) -> None:
    with mqtt.raw() as raw:
        raw.connect(V3, clean=False)
        raw.send(subscribe("a", version=V3))
        raw.expect(SUBACK)
        mqtt.broker.schedule("a", b"x")
        raw.expect(PUBLISH)
    with mqtt.raw() as raw:
        raw.send(connect(V3, clean=False))
        raw.expect(CONNACK)
        packet = raw.packet()
        assert packet is not None and packet[0] == 0x3A, "QoS 1, and DUP"


def test_a_restart_of_the_broker_keeps_messages(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as mqtt, mqtt.raw() as raw:
        raw.connect(V3, clean=False)
        raw.send(subscribe("a", version=V3))
        raw.expect(SUBACK)
        mqtt.broker.schedule("a", b"kept", delay=0.2)
        mqtt.front.stop()
    with serving(tmp_path / "data") as mqtt:
        with mqtt.raw() as raw:
            assert raw.connect(V3, clean=False)[0] == 0, "its subscriptions are not known any more"
            raw.send(subscribe("a", version=V3))
            packets = [raw.packet(), raw.packet()]
            assert {packet[0] >> 4 for packet in packets if packet} == {SUBACK, PUBLISH}
        with mqtt.raw() as raw:
            raw.connect(V3)
        wait_until(lambda: mqtt.broker.groups() == [])


def test_a_stop_tells_clients(mqtt: Mqtt) -> None:
    with mqtt.raw() as raw:
        raw.connect()
        mqtt.front.stop()
        assert raw.closes_with() == Reason.SHUTTING_DOWN


def test_a_deleted_group_ends_the_connection(mqtt: Mqtt) -> None:
    with mqtt.raw() as raw:
        raw.connect()
        raw.send(subscribe("$share/g/a"))
        raw.expect(SUBACK)
        mqtt.broker.delete_group("a", "g")
        assert raw.closes_with() == Reason.ADMINISTRATIVE


def test_access_tokens(tmp_path: Path) -> None:
    def login(password: str) -> bytes:
        return text_bytes("anybody") + text_bytes(password)

    with serving(tmp_path / "data", mqtt_access="tokens") as mqtt:
        for_all = mqtt.broker.create_token("*").secret
        for_one = mqtt.broker.create_token("ns").secret
        for secret, reason, old in (
            (for_all, 0, 0),
            (for_one, Reason.NOT_AUTHORIZED, 5),
            ("x" * 30, Reason.BAD_LOGIN, 4),
        ):
            for version, code in ((V5, reason), (V3, old)):
                with mqtt.raw() as raw:
                    assert raw.connect(version, flags=0xC0, rest=login(secret))[REASON] == code
        with mqtt.raw() as raw:
            assert raw.connect()[REASON] == Reason.BAD_LOGIN
            assert raw.packet() is None


def test_a_slow_reader_gets_no_more_than_fits(mqtt: Mqtt) -> None:
    body = b"x" * 100_000
    with mqtt.raw() as slow, mqtt.raw() as quick:
        for raw, topic in ((slow, "a"), (quick, "b")):
            raw.connect(client_id=topic)
            raw.send(subscribe(topic, options=0))
            raw.expect(SUBACK)
        for _ in range(200):
            mqtt.broker.schedule("a", body)
        for _ in range(20):
            mqtt.broker.schedule("b", b"b")
            assert quick.expect(PUBLISH).endswith(b"b")
        assert mqtt.broker.group_info("a", "mqtt@a").ready > 20
        for _ in range(200):
            assert slow.expect(PUBLISH).endswith(body)


def test_disconnect_is_the_servers_last_word(mqtt: Mqtt) -> None:
    with mqtt.raw() as raw:
        raw.connect(properties={"session_expiry_s": 0})
        raw.send(framed(0xE0, b"\0" + b"\5\x11\0\0\0\5"))
        assert raw.expect(DISCONNECT)[0] == Reason.PROTOCOL_ERROR


def test_a_topics_rate_is_obeyed(tmp_path: Path) -> None:
    """One a second, by a clock that stands still between."""
    with open_broker(tmp_path) as broker, MqttFront.start(broker, "127.0.0.1:0") as front, Raw(front.port) as raw:
        broker.set_topic("orders", max_per_second=1)
        raw.connect()
        raw.send(subscribe("$share/g/orders"))
        raw.expect(SUBACK)
        for number in range(3):
            broker.schedule("orders", b"%d" % number)
        broker.step()
        for number in range(3):
            assert raw.expect(PUBLISH).endswith(b"%d" % number)
            raw.send(framed(0xC0, b""))
            raw.expect(PINGRESP)  # and no message before it
            assert broker.group_info("orders", "g").leased == number + 1
            broker.advance(1)
