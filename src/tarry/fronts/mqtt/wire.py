"""Elements of MQTT packets on the wire: numbers, texts, properties. Pure functions, without I/O.

Source: MQTT 3.1.1 and MQTT 5.0, OASIS Standards, sections 1.5 and 2.2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tarry.fronts.mqtt.reasons import MqttError, Reason

VARINT_MAX = 268_435_455
_U16, _U32 = struct.Struct(">H"), struct.Struct(">I")

Properties = Mapping[str, Any]
"""Properties by name. A user property may come several times: they are a list of pairs."""
NO_PROPERTIES: Properties = {}
USER = "user_property"

_TABLE: tuple[tuple[int, str, str, str], ...] = (
    (0x01, "payload_format", "u8", "publish will"),
    (0x02, "message_expiry_s", "u32", "publish will"),
    (0x03, "content_type", "text", "publish will"),
    (0x08, "response_topic", "text", "publish will"),
    (0x09, "correlation_data", "binary", "publish will"),
    (0x0B, "subscription_id", "varint", "publish subscribe"),
    (0x11, "session_expiry_s", "u32", "connect connack disconnect"),
    (0x12, "assigned_client_id", "text", "connack"),
    (0x15, "authentication_method", "text", "connect"),
    (0x16, "authentication_data", "binary", "connect"),
    (0x17, "request_problem_information", "u8", "connect"),
    (0x18, "will_delay_s", "u32", "will"),
    (0x19, "request_response_information", "u8", "connect"),
    (0x1F, "reason", "text", "connack ack suback disconnect"),
    (0x21, "receive_max", "u16", "connect connack"),
    (0x22, "topic_alias_max", "u16", "connect connack"),
    (0x23, "topic_alias", "u16", "publish"),
    (0x24, "qos_max", "u8", "connack"),
    (0x25, "retain_available", "u8", "connack"),
    (0x26, USER, "pair", "connect will publish ack subscribe unsubscribe disconnect"),
    (0x27, "packet_bytes_max", "u32", "connect connack"),
    (0x28, "wildcards_available", "u8", "connack"),
)
"""Identifier, name, type, and the packets of this front that may have it."""
_BY_ID = {number: (name, kind, frozenset(packets.split())) for number, name, kind, packets in _TABLE}
_BY_NAME = {name: (number, kind) for number, name, kind, _ in _TABLE}
_FROM_ONE = ("receive_max", "packet_bytes_max", "subscription_id")
"""Properties of which 0 is a protocol error."""
_FLAGS = ("payload_format", "request_problem_information", "request_response_information")
"""Properties of which anything but 0 and 1 is a protocol error."""


class Reader:
    """Reads the elements of one packet's body.

    Every method raises MqttError (MALFORMED) where the body ends too early, or has no such element.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    @property
    def left(self) -> int:
        """Number of bytes that were not read."""
        return len(self._body) - self._at

    def take(self, size: int) -> bytes:
        """Read so many bytes."""
        end = self._at + size
        if end > len(self._body):
            raise malformed(f"{size} bytes are needed at {self._at} of a packet of {len(self._body)}")
        found, self._at = self._body[self._at : end], end
        return found

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int(_U16.unpack(self.take(2))[0])

    def u32(self) -> int:
        return int(_U32.unpack(self.take(4))[0])

    def varint(self) -> int:
        """Read a number of one to four bytes."""
        value = shift = 0
        while shift < 28:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise malformed("a variable byte integer of more than 4 bytes")

    def binary(self) -> bytes:
        """Read bytes behind their length."""
        return self.take(self.u16())

    def text(self) -> str:
        """Read a text: UTF-8 without U+0000."""
        try:
            text = self.binary().decode()
        except UnicodeDecodeError as error:
            raise malformed(f"a text is no UTF-8: {error}") from error
        if "\0" in text:
            raise malformed("a text has U+0000")
        return text

    def pair(self) -> tuple[str, str]:
        return self.text(), self.text()

    def properties(self, packet: str) -> Properties:
        """Read the properties of a packet of this kind.

        Raises:
            MqttError: MALFORMED; or PROTOCOL_ERROR: one comes twice, or has a value that is not allowed.
        """
        end = self.varint()
        end = self.left - end
        if end < 0:
            raise malformed("the properties are longer than their packet")
        found: dict[str, Any] = {}
        while self.left > end:
            number = self.varint()
            name, kind, packets = _BY_ID.get(number, ("", "", frozenset[str]()))
            if packet not in packets:
                raise malformed(f"property 0x{number:02X} in a packet {packet}")
            value = getattr(self, kind)()
            if kind == "pair":
                found.setdefault(name, []).append(value)
            elif name in found:
                raise MqttError(Reason.PROTOCOL_ERROR, f"property {name} is there twice")
            elif (not value and name in _FROM_ONE) or (name in _FLAGS and value > 1):
                allowed = "0 and 1" if name in _FLAGS else "1 and more"
                raise MqttError(Reason.PROTOCOL_ERROR, f"property {name} is {value}; allowed: {allowed}")
            else:
                found[name] = value
        if self.left != end:
            raise malformed("the last property is longer than the properties")
        return found or NO_PROPERTIES


def malformed(text: str) -> MqttError:
    """Return the error for bytes that are no packet."""
    return MqttError(Reason.MALFORMED, text)


def varint_bytes(value: int) -> bytes:
    """Return a number as one to four bytes."""
    if value < 0x80:
        return value.to_bytes()
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | 0x80 if value else low)
        if not value:
            return bytes(out)


def binary_bytes(value: bytes) -> bytes:
    """Return up to 65,535 bytes behind their length; struct.error: there are more."""
    return _U16.pack(len(value)) + value


def text_bytes(text: str) -> bytes:
    """Return a text as on the wire; U+0000, which MQTT does not have, becomes a question mark."""
    return binary_bytes(text.replace("\0", "?").encode())


_ENCODE: Mapping[str, Callable[[Any], bytes]] = {
    "u8": int.to_bytes,
    "u16": _U16.pack,
    "u32": _U32.pack,
    "varint": varint_bytes,
    "text": text_bytes,
    "binary": binary_bytes,
    "pair": lambda pair: b"".join(map(text_bytes, pair)),
}


def properties_bytes(properties: Properties) -> bytes:
    """Return properties behind their length. Those that are too long for the wire are left out."""
    out = bytearray()
    for name, value in properties.items():
        number, kind = _BY_NAME[name]
        for each in value if kind == "pair" else (value,):
            with suppress(struct.error):
                out += varint_bytes(number) + _ENCODE[kind](each)
    return varint_bytes(len(out)) + out
