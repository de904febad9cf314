"""MQTT's packets as bytes: what is encoded is decoded, and no bytes do more than be refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.fronts.mqtt import packets
from tarry.fronts.mqtt.packets import V3, V5, PublishPacket, decode, packet_length
from tarry.fronts.mqtt.reasons import MqttError, Reason
from tarry.fronts.mqtt.wire import USER, VARINT_MAX, Reader, properties_bytes, varint_bytes
from tests.mqtt import place

versions = st.sampled_from(place.VERSIONS)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50)
properties = st.fixed_dictionaries(
    {},
    optional={
        "payload_format": st.integers(0, 1),
        "message_expiry_s": st.integers(0, (1 << 32) - 1),
        "content_type": texts,
        "correlation_data": st.binary(max_size=300),
        "topic_alias": st.integers(0, 65_535),
        USER: st.lists(st.tuples(texts, texts), min_size=1, max_size=3),
    },
)


def split(packet: bytes) -> tuple[int, bytes]:
    lengths = packet_length(packet, VARINT_MAX)
    assert lengths is not None and lengths[1] == len(packet)
    return packet[0], packet[lengths[0] :]


@given(versions, texts, st.binary(max_size=200), st.integers(0, 2), st.integers(1, 65_535), st.booleans(), properties)
def test_a_publish_comes_back(
    version: int, topic: str, body: bytes, qos: int, packet_id: int, retain: bool, more: dict[str, Any]
) -> None:
    message = PublishPacket(topic, body, qos, retain, packet_id if qos else 0, more if version == V5 else {}, bool(qos))
    assert decode(version, *split(packets.publish(version, message))) == message


@given(st.integers(0, VARINT_MAX))
def test_a_length_comes_back(value: int) -> None:
    reader = Reader(varint_bytes(value))
    assert (reader.varint(), reader.left) == (value, 0)


@given(st.sampled_from([None, *place.VERSIONS]), st.integers(0, 255), st.binary(max_size=60))
def test_any_bytes_are_a_packet_or_refused(version: int | None, first: int, body: bytes) -> None:
    try:
        decode(version, first, body)
    except MqttError as error:
        assert error.reason >= Reason.UNSPECIFIED


GOOD = [
    place.publish("a/b", b"body", properties={"content_type": "text/plain", USER: [("a", "b")]}),
    place.subscribe("a/b"),
    place.unsubscribe("a/b"),
    place.ack(7, 0x80),
    place.framed(0xE0, b"\x04" + properties_bytes({"session_expiry_s": 5})),
]


@given(st.sampled_from(GOOD), st.data())
def test_nearly_good_packets_are_refused_or_taken(good: bytes, data: st.DataObject) -> None:
    first, body = split(good)
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(changed)))
    try:
        decode(V5, first, bytes(changed[:cut]))
    except MqttError:
        pass


@given(st.binary(max_size=6))
def test_a_length_is_refused_or_waited_for(start: bytes) -> None:
    try:
        packet_length(start, 1000)
    except MqttError as error:
        assert error.reason in (Reason.MALFORMED, Reason.TOO_LARGE)


def reason_of(version: int | None, packet: bytes) -> Reason:
    with pytest.raises(MqttError) as refused:
        decode(version, *split(packet))
    return refused.value.reason


def test_properties_stand_where_they_may_and_once() -> None:
    assert reason_of(V5, place.publish("a", properties={"session_expiry_s": 1})) is Reason.MALFORMED
    assert reason_of(V5, place.publish("a", properties={"subscription_id": 1})) is Reason.PROTOCOL_ERROR
    twice = properties_bytes({"content_type": "a"})[1:] * 2
    body = place.text_bytes("a") + bytes((len(twice),)) + twice
    assert reason_of(V5, place.framed(0x30, body)) is Reason.PROTOCOL_ERROR
    assert reason_of(None, place.connect(properties={"receive_max": 0})) is Reason.PROTOCOL_ERROR
    assert reason_of(V5, place.publish("a", properties={"payload_format": 2})) is Reason.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (place.framed(0x30, place.text_bytes("a\ud7ff") + b"\0"), None),
        (place.framed(0x30, b"\0\x02\xff\xfe\0"), Reason.MALFORMED),
        (place.framed(0x36, place.text_bytes("a") + b"\0\1\0"), Reason.MALFORMED),
        (place.framed(0x38, place.text_bytes("a") + b"\0"), Reason.MALFORMED),
        (place.framed(0x32, place.text_bytes("a") + b"\0\0\0"), Reason.MALFORMED),
        (place.framed(0x80, b"\0\1\0" + place.text_bytes("a") + b"\0"), Reason.MALFORMED),
        (place.framed(0x82, b"\0\1\0"), Reason.MALFORMED),
        (place.framed(0x82, b"\0\1\0" + place.text_bytes("a") + b"\3"), Reason.MALFORMED),
        (place.framed(0xC0, b"x"), Reason.MALFORMED),
        (place.framed(0x50, b"\0\1"), Reason.PROTOCOL_ERROR),
        (place.framed(0xF0, b""), Reason.PROTOCOL_ERROR),
        (place.connect(), Reason.PROTOCOL_ERROR),
    ],
)
def test_packets_that_are_none(packet: bytes, reason: Reason | None) -> None:
    if reason is None:
        decode(V5, *split(packet))
    else:
        assert reason_of(V5, packet) is reason


def test_a_connect_with_everything() -> None:
    will = properties_bytes({"will_delay_s": 5}) + place.text_bytes("w") + place.text_bytes("gone")
    rest = will + place.text_bytes("user") + place.text_bytes("secret")
    packet = place.connect(client_id="me", keep_alive_s=60, flags=0xC0 | 0x04 | 0x08, rest=rest)
    found = decode(None, *split(packet))
    assert isinstance(found, packets.ConnectPacket)
    assert (found.version, found.clean, found.keep_alive_s, found.client_id) == (V5, True, 60, "me")
    assert (found.user, found.password) == ("user", b"secret")
    assert found.will == PublishPacket("w", b"gone", 1, properties={"will_delay_s": 5})


def test_versions_that_are_not_spoken() -> None:
    assert reason_of(None, place.connect(3)) is Reason.UNSUPPORTED_VERSION
    assert reason_of(None, place.connect(V3, flags=0x40)) is Reason.MALFORMED
    assert reason_of(None, place.ack(1)) is Reason.PROTOCOL_ERROR


def test_texts_too_long_for_the_wire_are_left_out() -> None:
    long = "x" * 70_000
    assert properties_bytes({USER: [("a", long), ("b", "c")]}) == properties_bytes({USER: [("b", "c")]})
