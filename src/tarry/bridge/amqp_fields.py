"""Properties of a message of AMQP 0-9-1 as bytes: what the bridge does not change stays as it was.

A library's dict forgets which of eight kinds of integer a header was, makes a double a float, and fails on a timestamp
in milliseconds. Here values stay encoded, and only those that the bridge asks for are read (AMQP 0-9-1, section 4.2.5;
kinds of fields: https://www.rabbitmq.com/amqp-0-9-1-errata.html, "Field types").
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

_SHORT, _TABLE, _OCTET, _TIME = "short", "table", "octet", "time"
_FIELDS: dict[str, str] = {
    "content_type": _SHORT,
    "content_encoding": _SHORT,
    "headers": _TABLE,
    "delivery_mode": _OCTET,
    "priority": _OCTET,
    "correlation_id": _SHORT,
    "reply_to": _SHORT,
    "expiration": _SHORT,
    "message_id": _SHORT,
    "timestamp": _TIME,
    "type": _SHORT,
    "user_id": _SHORT,
    "app_id": _SHORT,
    "cluster_id": _SHORT,
}
"""In the order of their flags, the highest bit first."""
_SIZES = {
    b"t": 1,
    b"b": 1,
    b"B": 1,
    b"s": 2,
    b"u": 2,
    b"I": 4,
    b"i": 4,
    b"l": 8,
    b"L": 8,
    b"f": 4,
    b"d": 8,
    b"D": 5,
    b"T": 8,
    b"V": 0,
    b"\0": 0,
}
"""Bytes of a value, by the kind before it."""
_WITH_SIZE = frozenset({b"S", b"x", b"A", b"F"})
"""Kinds whose value begins with its size, in four bytes."""
_NUMBERS = {
    b"b": ">b",
    b"B": ">B",
    b"s": ">h",
    b"u": ">H",
    b"I": ">i",
    b"i": ">I",
    b"l": ">q",
    b"L": ">q",
    b"f": ">f",
    b"d": ">d",
}


_ADDED = frozenset({b"timestamp_in_ms", b"x-routed-by", b"x-received-by"})
"""Headers that RabbitMQ's interceptors set, if it is told to (rabbitmq.conf, message_interceptors)."""


class MalformedError(ValueError):
    """Bytes that are no properties of AMQP 0-9-1."""


@dataclass(slots=True)
class AmqpProperties:
    """Properties of a message, each as its bytes; ``headers`` by name, a value with its kind before it."""

    fields: dict[str, bytes] = field(default_factory=dict)
    headers: dict[bytes, bytes] = field(default_factory=dict)

    @classmethod
    def decode(cls, raw: bytes) -> AmqpProperties:
        """Return the properties of a content header, from its flags on.

        Raises:
            MalformedError: they are none.
        """
        found = cls()
        try:
            [flags] = struct.unpack_from(">H", raw)
            if flags & 0b11:
                raise MalformedError(f"flags are {flags:#06x}; allowed: 14 properties")
            at = 2
            for number, (name, kind) in enumerate(_FIELDS.items()):
                if flags & 0x8000 >> number:
                    end = at + _size(kind, raw, at)
                    if kind == _TABLE:
                        found.headers = _table(raw[at + 4 : end])
                    else:
                        found.fields[name] = raw[at:end]
                    at = end
        except (struct.error, IndexError) as error:
            raise MalformedError(f"properties are cut off: {error}") from error
        if at != len(raw):
            raise MalformedError(f"{len(raw)} bytes of properties; expected: {at}")
        return found

    def encode(self) -> bytes:
        """Return the properties as a content header has them, from their flags on."""
        flags, parts = 0, [b""]
        for number, (name, kind) in enumerate(_FIELDS.items()):
            if kind == _TABLE:
                if not self.headers:
                    continue
                entries = b"".join(bytes([len(key)]) + key + value for key, value in self.headers.items())
                parts.append(struct.pack(">I", len(entries)) + entries)
            elif name in self.fields:
                parts.append(self.fields[name])
            else:
                continue
            flags |= 0x8000 >> number
        parts[0] = struct.pack(">H", flags)
        return b"".join(parts)

    def text(self, name: str) -> str | None:
        """Return a property that is a short text; what is not UTF-8 in it is escaped."""
        value = self.fields.get(name)
        return None if value is None else value[1:].decode("utf-8", "backslashreplace")

    def address(self, name: str) -> str | None:
        """Return a property that is a short text, to be sent as the bytes that it has."""
        value = self.fields.get(name)
        return None if value is None else value[1:].decode("utf-8", "surrogateescape")

    def set_text(self, name: str, value: str) -> None:
        """Set a property that is a short text, of up to 255 bytes."""
        data = value.encode()
        self.fields[name] = bytes([len(data)]) + data

    def header(self, name: str) -> Any:
        """Return a header as a value of Python; None: it is not there, or void.

        Integers, floats, Decimals and texts; bool; a time as a datetime, or in seconds where it is beyond those; bytes
        of another kind as they are.
        """
        value = self.headers.get(name.encode())
        return None if value is None else _value(value)

    def set_header(self, name: str, value: str | int) -> None:
        """Set a header: a text, or an integer of 32 or 64 bits."""
        if isinstance(value, int):
            kind = b"I" if -(2**31) <= value < 2**31 else b"l"
            self.headers[name.encode()] = kind + struct.pack(_NUMBERS[kind], value)
        else:
            data = value.encode()
            self.headers[name.encode()] = b"S" + struct.pack(">I", len(data)) + data

    def negate(self, name: str) -> None:
        """Make a header that is a number negative, of the same kind if that has a sign."""
        key, number = name.encode(), self.header(name)
        kind = self.headers[key][:1]
        if kind in (b"b", b"s", b"I", b"l", b"f", b"d"):
            self.headers[key] = kind + struct.pack(_NUMBERS[kind], -abs(number))
        else:
            self.set_header(name, -abs(int(number)))


def name_of(raw: bytes) -> str:
    """Return a name of encoded properties, by which what RabbitMQ returns is found.

    RabbitMQ may have encoded them anew, with what its interceptors add.
    """
    try:
        properties = AmqpProperties.decode(raw)
    except MalformedError:
        return ""
    fields = [(name.encode(), value) for name, value in properties.fields.items() if name != "timestamp"]
    headers = [(b"." + name, value) for name, value in properties.headers.items() if name not in _ADDED]
    parts = [part for pair in sorted(fields + headers) for part in pair]
    sizes = b"".join(len(part).to_bytes(4, "big") for part in parts)
    return hashlib.blake2b(sizes + b"".join(parts), digest_size=16).hexdigest()


def _size(kind: str, raw: bytes, at: int) -> int:
    if kind == _SHORT:
        size = 1 + raw[at]
    elif kind == _TABLE:
        size = 4 + int(struct.unpack_from(">I", raw, at)[0])
    else:
        size = 1 if kind == _OCTET else 8
    if at + size > len(raw):
        raise MalformedError(f"a property of {size} bytes; {len(raw) - at} are there")
    return size


def _table(raw: bytes) -> dict[bytes, bytes]:
    """Return the fields of a table; of a name that comes twice, the last."""
    found, at = {}, 0
    while at < len(raw):
        begin = at + 1 + raw[at]
        kind = raw[begin : begin + 1]
        if kind in _WITH_SIZE:
            end = begin + 5 + int(struct.unpack_from(">I", raw, begin + 1)[0])
        elif kind in _SIZES:
            end = begin + 1 + _SIZES[kind]
        else:
            raise MalformedError(f"a header of kind {kind!r}; allowed: those of AMQP 0-9-1")
        if end > len(raw):
            raise MalformedError(f"a header ends at {end}, and the headers at {len(raw)}")
        found[raw[at + 1 : begin]] = raw[begin:end]
        at = end
    return found


def _value(field_bytes: bytes) -> Any:
    kind, data = field_bytes[:1], field_bytes[1:]
    if kind in _NUMBERS:
        return struct.unpack(_NUMBERS[kind], data)[0]
    if kind == b"S":
        return data[4:].decode("utf-8", "backslashreplace")
    if kind == b"t":
        return data != b"\0"
    if kind == b"D":
        return Decimal(struct.unpack(">i", data[1:])[0]).scaleb(-data[0])
    if kind == b"T":
        [seconds] = struct.unpack(">Q", data)
        try:
            return datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            return seconds
    return None if kind in (b"V", b"\0") else data
