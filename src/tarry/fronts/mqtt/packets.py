"""MQTT packets: those of clients are decoded, the server's encoded. Pure functions, without I/O.

A packet is its first byte (kind and flags), the length of all that follows as a varint, and its body. A will and a
delivery are a :class:`Publish`, too. Source: MQTT 3.1.1 and MQTT 5.0, OASIS Standards, section 3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tarry.base.redaction import without_tokens
from tarry.fronts.mqtt.reasons import CONNACK_3, MqttError, Reason
from tarry.fronts.mqtt.wire import (
    NO_PROPERTIES,
    Properties,
    Reader,
    malformed,
    properties_bytes,
    text_bytes,
    varint_bytes,
)

V3, V5 = 4, 5
"""Protocol levels of 3.1.1 and 5."""
CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, DISCONNECT = (
    *(1, 2, 3, 4, 8, 9, 10, 11, 12, 14),
)
"""Kinds of packets."""
PINGRESP = bytes((13 << 4, 0))
_FLAGS = {SUBSCRIBE: 0b0010, UNSUBSCRIBE: 0b0010}
"""Flags that a kind must have; others but PUBLISH have none."""
_ID = struct.Struct(">H")


class PublishPacket(NamedTuple):
    """A message with its topic."""

    topic: str
    body: bytes
    qos: int = 0
    retain: bool = False
    packet_id: int = 0
    """0 of QoS 0, and of a will."""
    properties: Properties = NO_PROPERTIES
    again: bool = False
    """True if it was sent before (DUP)."""


class ConnectPacket(NamedTuple):
    """The first packet of a client."""

    version: int
    clean: bool
    keep_alive_s: int
    client_id: str
    user: str | None
    password: bytes | None
    will: PublishPacket | None
    properties: Properties


class AckPacket(NamedTuple):
    """A client's answer to a message of QoS 1."""

    packet_id: int
    reason: int
    text: str


class RequestedFilter(NamedTuple):
    """A filter that is subscribed to, with its options."""

    filter: str
    qos: int
    no_local: bool


class SubscribePacket(NamedTuple):
    """Subscriptions to add."""

    packet_id: int
    subscriptions: list[RequestedFilter]
    properties: Properties


class UnsubscribePacket(NamedTuple):
    """Filters of subscriptions to end."""

    packet_id: int
    filters: list[str]


class PingPacket(NamedTuple):
    """A sign of life."""


class DisconnectPacket(NamedTuple):
    """The last packet of a client."""

    reason: int
    properties: Properties


Packet: TypeAlias = (
    ConnectPacket | PublishPacket | AckPacket | SubscribePacket | UnsubscribePacket | PingPacket | DisconnectPacket
)


def packet_length(start: bytes | bytearray, bytes_max: int) -> tuple[int, int] | None:
    """Return the lengths of a packet's head and of the whole, from its first bytes; None: too few.

    Raises:
        MqttError: MALFORMED, or TOO_LARGE.
    """
    length = 0
    for at, byte in enumerate(start[1:5], 1):
        length |= (byte & 0x7F) << 7 * (at - 1)
        if byte < 0x80:
            if at + 1 + length > bytes_max:
                raise MqttError(Reason.TOO_LARGE, f"a packet of {at + 1 + length} bytes; allowed: {bytes_max}")
            return at + 1, at + 1 + length
    if len(start) >= 5:
        raise malformed("a length of more than 4 bytes")
    return None


def decode(version: int | None, first: int, body: bytes) -> Packet:
    """Decode a client's packet: its first byte, and all behind its length.

    ``version``: None before CONNECT.

    Raises:
        MqttError: it is none, or none that a client may send.
    """
    kind, flags = first >> 4, first & 0x0F
    if kind != PUBLISH and flags != _FLAGS.get(kind, 0):
        raise malformed(f"flags {flags:04b} of a packet of kind {kind}")
    if version is None or kind == CONNECT:
        if kind != CONNECT or version is not None:
            raise MqttError(Reason.PROTOCOL_ERROR, f"a packet of kind {kind}; allowed: CONNECT, first and once")
        return _connect(Reader(body))
    if kind != PUBLISH and kind not in _DECODE:
        raise MqttError(Reason.PROTOCOL_ERROR, f"a packet of kind {kind}, which no client of QoS 0 and 1 sends")
    reader = Reader(body)
    if kind == PUBLISH:
        return _publish(version, flags, reader)
    packet = _DECODE[kind](version, reader)
    _check_end(reader)
    return packet


def _connect(reader: Reader) -> ConnectPacket:
    name, version, flags = reader.text(), reader.u8(), 0
    if name != "MQTT" or version not in (V3, V5):
        raise MqttError(
            Reason.UNSUPPORTED_VERSION,
            f"protocol {without_tokens(name)[:20]!r} {version}; allowed: MQTT 3.1.1 (4) and 5",
        )
    flags = reader.u8()
    has_will, will_qos = bool(flags & 0x04), flags >> 3 & 3
    if flags & 1 or will_qos == 3 or (not has_will and flags & 0x38) or (version == V3 and flags & 0xC0 == 0x40):
        raise malformed(f"connect flags {flags:08b}")
    keep_alive_s = reader.u16()
    properties = reader.properties("connect") if version == V5 else NO_PROPERTIES
    client_id = reader.text()
    will = None
    if has_will:
        of_will = reader.properties("will") if version == V5 else NO_PROPERTIES
        topic = reader.text()
        will = PublishPacket(topic, reader.binary(), will_qos, bool(flags & 0x20), 0, of_will)
    user = reader.text() if flags & 0x80 else None
    password = reader.binary() if flags & 0x40 else None
    _check_end(reader)
    return ConnectPacket(version, bool(flags & 0x02), keep_alive_s, client_id, user, password, will, properties)


def _publish(version: int, flags: int, reader: Reader) -> PublishPacket:
    qos = flags >> 1 & 3
    if qos == 3 or (not qos and flags & 8):
        raise malformed(f"flags {flags:04b} of a PUBLISH")
    topic = reader.text()
    packet_id = _packet_id(reader) if qos else 0
    properties = reader.properties("publish") if version == V5 else NO_PROPERTIES
    if "subscription_id" in properties:
        raise MqttError(Reason.PROTOCOL_ERROR, "a client's PUBLISH with a subscription identifier")
    return PublishPacket(topic, reader.take(reader.left), qos, bool(flags & 1), packet_id, properties, bool(flags & 8))


def _ack(version: int, reader: Reader) -> AckPacket:
    packet_id = _packet_id(reader)
    reason = reader.u8() if version == V5 and reader.left else 0
    properties = reader.properties("ack") if version == V5 and reader.left else NO_PROPERTIES
    return AckPacket(packet_id, reason, properties.get("reason", ""))


def _subscribe(version: int, reader: Reader) -> SubscribePacket:
    packet_id = _packet_id(reader)
    properties = reader.properties("subscribe") if version == V5 else NO_PROPERTIES
    subscriptions: list[RequestedFilter] = []
    while reader.left or not subscriptions:
        filter, options = reader.text(), reader.u8()
        if options & 3 == 3 or options & (0xC0 if version == V5 else 0xFC) or options >> 4 & 3 == 3:
            raise malformed(f"subscription options {options:08b}")
        subscriptions.append(RequestedFilter(filter, options & 3, bool(options & 4)))
    return SubscribePacket(packet_id, subscriptions, properties)


def _unsubscribe(version: int, reader: Reader) -> UnsubscribePacket:
    packet_id = _packet_id(reader)
    if version == V5:
        reader.properties("unsubscribe")
    filters = [reader.text()]
    while reader.left:
        filters.append(reader.text())
    return UnsubscribePacket(packet_id, filters)


def _disconnect(version: int, reader: Reader) -> DisconnectPacket:
    reason = reader.u8() if version == V5 and reader.left else 0
    return DisconnectPacket(reason, reader.properties("disconnect") if version == V5 and reader.left else NO_PROPERTIES)


_DECODE: Mapping[int, Callable[[int, Reader], Packet]] = {
    PUBACK: _ack,
    SUBSCRIBE: _subscribe,
    UNSUBSCRIBE: _unsubscribe,
    PINGREQ: lambda *_: PingPacket(),
    DISCONNECT: _disconnect,
}


def _packet_id(reader: Reader) -> int:
    packet_id = reader.u16()
    if not packet_id:
        raise malformed("packet identifier 0")
    return packet_id


def _check_end(reader: Reader) -> None:
    if reader.left:
        raise malformed(f"{reader.left} bytes behind the end of a packet")


# -- the server's ------------------------------------------------------------------------------------------------------


def connack(version: int, reason: Reason, properties: Properties = NO_PROPERTIES, *, present: bool = False) -> bytes:
    """Encode the answer to CONNECT. ``present``: the session is an earlier one."""
    if version == V5:
        return _packet(CONNACK, bytes((present, reason)) + properties_bytes(properties))
    return _packet(CONNACK, bytes((present, CONNACK_3.get(reason, 3))))


def publish(version: int, message: PublishPacket) -> bytes:
    """Encode a delivery."""
    flags = message.again << 3 | message.qos << 1 | message.retain
    head = text_bytes(message.topic) + (_ID.pack(message.packet_id) if message.qos else b"")
    if version == V5:
        head += properties_bytes(message.properties)
    length = varint_bytes(len(head) + len(message.body))
    return b"".join((bytes((PUBLISH << 4 | flags,)), length, head, message.body))


def puback(version: int, packet_id: int, reason: Reason = Reason.SUCCESS, text: str = "") -> bytes:
    """Encode the answer to a PUBLISH of QoS 1; 3.1.1 knows success alone."""
    body = _ID.pack(packet_id)
    if version == V5 and reason:
        body += bytes((reason,)) + properties_bytes(_reason(text))
    return _packet(PUBACK, body)


def suback(version: int, packet_id: int, reasons: Sequence[int], text: str = "") -> bytes:
    """Encode the answer to SUBSCRIBE: a granted QoS or a reason for each filter."""
    if version == V5:
        return _packet(SUBACK, _ID.pack(packet_id) + properties_bytes(_reason(text)) + bytes(reasons))
    return _packet(SUBACK, _ID.pack(packet_id) + bytes(min(reason, 0x80) for reason in reasons))


def unsuback(version: int, packet_id: int, reasons: Sequence[int]) -> bytes:
    """Encode the answer to UNSUBSCRIBE."""
    return _packet(UNSUBACK, _ID.pack(packet_id) + (b"\0" + bytes(reasons) if version == V5 else b""))


def disconnect(reason: Reason, text: str = "") -> bytes:
    """Encode the server's last packet, which MQTT 5 alone has."""
    return _packet(DISCONNECT, bytes((reason,)) + properties_bytes(_reason(text)))


def _reason(text: str) -> Properties:
    return {"reason": text[:500]} if text else NO_PROPERTIES


def _packet(kind: int, body: bytes) -> bytes:
    return bytes((kind << 4,)) + varint_bytes(len(body)) + body
