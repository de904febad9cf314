"""A broker with the MQTT front, in this process, and a raw client: bytes to it, and what comes back."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tarry.broker import Broker
from tarry.fronts.mqtt.front import MqttFront
from tarry.fronts.mqtt.packets import V3, V5
from tarry.fronts.mqtt.wire import NO_PROPERTIES, properties_bytes, text_bytes, varint_bytes
from tarry.fronts.registry import ServerConfig

CONNECT, CONNACK, PUBLISH, PUBACK, SUBACK, UNSUBACK, PINGRESP, DISCONNECT = 1, 2, 3, 4, 9, 11, 13, 14


class Mqtt:
    """The broker, the front, and clients of it."""

    def __init__(self, broker: Broker, front: MqttFront) -> None:
        self.broker = broker
        self.front = front

    @property
    def port(self) -> int:
        return self.front.port

    def raw(self) -> Raw:
        return Raw(self.port)


@contextmanager
def serving(directory: Path, **settings: Any) -> Iterator[Mqtt]:
    """A broker on ``directory``."""
    config = ServerConfig(data=directory, pipeline="off", flight=None, **{"disk_free_bytes_min": 0, **settings})
    with Broker.open(config) as broker, MqttFront.start(broker, "127.0.0.1:0") as front:
        yield Mqtt(broker, front)


class Raw:
    """A connection. Use it in a ``with`` block."""

    def __init__(self, port: int, sock: socket.socket | None = None) -> None:
        self.socket = sock or socket.create_connection(("127.0.0.1", port), timeout=30)
        self._received = b""

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *packets: bytes) -> None:
        self.socket.sendall(b"".join(packets))

    def connect(self, version: int = V5, **more: Any) -> bytes:
        """Connect; the body of the CONNACK."""
        self.send(connect(version, **more))
        return self.expect(CONNACK)

    def packet(self) -> tuple[int, bytes] | None:
        """The next packet: its first byte, and its body; None: the connection was closed."""
        while True:
            if len(self._received) >= 2:
                size = shift = 0
                for at, byte in enumerate(self._received[1:5], 2):
                    size |= (byte & 0x7F) << shift
                    shift += 7
                    if byte < 0x80 and len(self._received) >= at + size:
                        first, body = self._received[0], self._received[at : at + size]
                        self._received = self._received[at + size :]
                        return first, body
                    if byte < 0x80:
                        break
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self._received += data

    def expect(self, kind: int) -> bytes:
        """The body of the next packet, which must be of this kind."""
        packet = self.packet()
        assert packet is not None, "the connection was closed"
        assert packet[0] >> 4 == kind, packet
        return packet[1]

    def closes_with(self) -> int | None:
        """The reason of the DISCONNECT with which the connection is closed; None: it is closed without one."""
        packet = self.packet()
        if packet is None:
            return None
        assert packet[0] >> 4 == DISCONNECT, packet
        assert self.packet() is None
        return packet[1][0]


def framed(first: int, body: bytes) -> bytes:
    return bytes((first,)) + varint_bytes(len(body)) + body


def connect(
    version: int = V5,
    *,
    client_id: str = "c",
    clean: bool = True,
    keep_alive_s: int = 0,
    properties: Mapping[str, Any] = NO_PROPERTIES,
    flags: int = 0,
    rest: bytes = b"",
) -> bytes:
    """A CONNECT; ``flags`` and ``rest`` add a will, a user, a password."""
    head = text_bytes("MQTT") + bytes((version, flags | clean << 1)) + struct.pack(">H", keep_alive_s)
    head += properties_bytes(properties) if version == V5 else b""
    return framed(CONNECT << 4, head + text_bytes(client_id) + rest)


def publish(
    topic: str,
    body: bytes = b"x",
    *,
    qos: int = 1,
    packet_id: int = 1,
    version: int = V5,
    properties: Mapping[str, Any] = NO_PROPERTIES,
    flags: int = 0,
) -> bytes:
    head = text_bytes(topic) + (struct.pack(">H", packet_id) if qos else b"")
    head += properties_bytes(properties) if version == V5 else b""
    return framed(PUBLISH << 4 | qos << 1 | flags, head + body)


def subscribe(filter: str, *, options: int = 1, packet_id: int = 1, version: int = V5) -> bytes:
    head = struct.pack(">H", packet_id) + (b"\0" if version == V5 else b"")
    return framed(0x82, head + text_bytes(filter) + bytes((options,)))


def unsubscribe(filter: str, *, packet_id: int = 2, version: int = V5) -> bytes:
    return framed(0xA2, struct.pack(">H", packet_id) + (b"\0" if version == V5 else b"") + text_bytes(filter))


def ack(packet_id: int, reason: int | None = None) -> bytes:
    return framed(0x40, struct.pack(">H", packet_id) + (b"" if reason is None else bytes((reason,))))


VERSIONS = (V3, V5)
