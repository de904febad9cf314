"""Commands on the wire: one frame each, requests and answers alike. Pure functions, without I/O.

::

    length i32            of all that follows
    header length i32     its highest byte is the encoding: 0 JSON, 1 ROCKETMQ
    header
    body                  the rest

A ROCKETMQ header, numbers big-endian, texts UTF-8; of a code, the lower 16 bits::

    code i16 · language i8 · version i16 · opaque i32 · flag i32 · remark (length i32, bytes)
    fields: length i32, then of each  name (length i16, bytes) · value (length i32, bytes)

A JSON header is an object with the same names; its fields are the object ``extFields``, whose values are texts. Source:
``RemotingCommand``, ``RocketMQSerializable`` of apache/rocketmq.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

JSON, BINARY = 0, 1
"""Encodings of a header."""
LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS",
    "RUST", "NODE_JS",
)  # fmt: skip
_RESPONSE, _ONEWAY = 1, 2
_LENGTHS = struct.Struct(">ii")
_FIXED = struct.Struct(">hbhii")
_SHORT, _LONG = struct.Struct(">h"), struct.Struct(">i")
VERSION = 479
"""Version of the broker that clients see: V5_3_3 of ``MQVersion``.

They refuse SQL filters for brokers before 4.1.
"""
HEADER_BYTES_MAX = (1 << 24) - 1


class BadFrame(ValueError):  # noqa: N818
    """The bytes are no frame: the connection cannot go on, since the next frame's begin is unknown."""


@dataclass(slots=True)
class RemotingCommand:
    """A request or an answer."""

    code: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    """Number of the request, chosen by the side that sends it; the answer has the same."""
    flag: int = 0
    remark: str = ""
    language: str = "JAVA"
    version: int = VERSION
    form: int = JSON
    """:data:`JSON` or :data:`BINARY`."""

    @property
    def is_response(self) -> bool:
        return bool(self.flag & _RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """True if the sender expects no answer."""
        return bool(self.flag & _ONEWAY)

    def answer(
        self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"", remark: str = ""
    ) -> RemotingCommand:
        """Return an answer to this request."""
        return RemotingCommand(code, fields or {}, body, self.opaque, _RESPONSE, remark, "JAVA", VERSION, self.form)


def oneway(code: int, fields: Mapping[str, str], body: bytes = b"") -> RemotingCommand:
    """Return a request of the broker's own that is not answered."""
    return RemotingCommand(code, fields, body, flag=_ONEWAY)


def encode(command: RemotingCommand) -> bytes:
    """Encode a whole frame."""
    header = _binary_header(command) if command.form == BINARY else _json_header(command)
    length = _LONG.size + len(header) + len(command.body)
    return _LENGTHS.pack(length, command.form << 24 | len(header)) + header + command.body


def frame_length(start: bytes | bytearray | memoryview, bytes_max: int) -> int | None:
    """Return the length of the frame that begins with ``start``; None if too few bytes have come.

    The frame's first length is included.

    Raises:
        BadFrame: no frame is that long, or that short.
    """
    if len(start) < _LONG.size:
        return None
    (length,) = _LONG.unpack_from(start)
    if not _LONG.size <= length <= bytes_max:
        raise BadFrame(f"a frame of {length} bytes; allowed: {_LONG.size} to {bytes_max}")
    return int(length) + _LONG.size


def decode(frame: bytes) -> RemotingCommand:
    """Decode a whole frame.

    Raises:
        BadFrame: the bytes are no frame.
    """
    if len(frame) < _LENGTHS.size:
        raise BadFrame(f"a frame of {len(frame)} bytes; at least {_LENGTHS.size} are needed")
    _, mark = _LENGTHS.unpack_from(frame)
    form, end = mark >> 24, _LENGTHS.size + (mark & HEADER_BYTES_MAX)
    if form not in (JSON, BINARY):
        raise BadFrame(f"serialisation type {form & 0xFF}; allowed: {JSON} (JSON), {BINARY} (ROCKETMQ)")
    if end > len(frame):
        raise BadFrame(f"a header of {end - _LENGTHS.size} bytes in a frame of {len(frame)}")
    header = frame[_LENGTHS.size : end]
    try:
        command = _read_binary(header) if form == BINARY else _read_json(header)
    except (UnicodeDecodeError, struct.error) as error:
        raise BadFrame(f"the header is damaged: {error}") from error
    command.form, command.body = form, frame[end:]
    return command


def decode_header(start: bytearray) -> RemotingCommand | None:
    """Decode the header of a frame that is incomplete; None if the header itself is.

    Raises:
        BadFrame: the bytes are no frame.
    """
    if len(start) < _LENGTHS.size:
        return None
    _, mark = _LENGTHS.unpack_from(start)
    end = _LENGTHS.size + (mark & HEADER_BYTES_MAX)
    return None if end > len(start) else decode(bytes(memoryview(start)[:end]))


def _json_header(command: RemotingCommand) -> bytes:
    values: dict[str, Any] = {
        "code": command.code,
        "flag": command.flag,
        "language": command.language,
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if command.remark:
        values["remark"] = command.remark
    if command.fields:
        values["extFields"] = command.fields
    return orjson.dumps(values)


def _read_json(header: bytes) -> RemotingCommand:
    try:
        values = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise BadFrame(f"the header is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise BadFrame(f"the header is a JSON {type(values).__name__}; allowed: an object")
    fields = values.get("extFields") or {}
    if not isinstance(fields, dict):
        raise BadFrame(f"extFields is a JSON {type(fields).__name__}; allowed: an object")
    for value in fields.values():
        if type(value) is not str:
            fields = {name: _text(value) for name, value in fields.items() if value is not None}
            break
    return RemotingCommand(
        _whole(values, "code"), fields, b"", _whole(values, "opaque"), _whole(values, "flag"),
        _text(values.get("remark") or ""), _text(values.get("language") or "JAVA"), _whole(values, "version"),
    )  # fmt: skip


def _whole(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name, 0)
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        shown = value if type(value) is int else type(value).__name__  # a text may be what was meant to be secret
        raise BadFrame(f"{name} in the header is {shown!s:.60}; allowed: a whole number of 32 bits")
    return value


def _text(value: object) -> str:
    """Return a field's value as a text: some clients write numbers and booleans as JSON's."""
    if isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _binary_header(command: RemotingCommand) -> bytes:
    pairs = bytearray()
    for name, value in command.fields.items():
        key, text = name.encode(), value.encode()
        pairs += _SHORT.pack(len(key)) + key + _LONG.pack(len(text)) + text
    remark = command.remark.encode()
    language = LANGUAGES.index(command.language) if command.language in LANGUAGES else LANGUAGES.index("OTHER")
    fixed = _FIXED.pack(_low_half(command.code), language, command.version, command.opaque, command.flag)
    return b"".join((fixed, _LONG.pack(len(remark)), remark, _LONG.pack(len(pairs)), pairs))


def _low_half(code: int) -> int:
    """Return the lower 16 bits of a code, as a signed number."""
    return ((code + (1 << 15)) & 0xFFFF) - (1 << 15)


def _read_binary(header: bytes) -> RemotingCommand:
    code, language, version, opaque, flag = _FIXED.unpack_from(header)
    remark, place = _read_text(header, _FIXED.size, _LONG)
    (length,) = _LONG.unpack_from(header, place)
    place += _LONG.size
    end = place + length
    if length < 0 or end > len(header):
        raise BadFrame(f"{length} bytes of fields at {place} of a header of {len(header)}")
    fields: dict[str, str] = {}
    while place < end:
        name, place = _read_text(header, place, _SHORT)
        fields[name], place = _read_text(header, place, _LONG)
    if place != end:
        raise BadFrame(f"the last field ends at {place}, the fields at {end}")
    spoken = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    return RemotingCommand(code, fields, opaque=opaque, flag=flag, remark=remark, language=spoken, version=version)


def _read_text(header: bytes, place: int, length_form: struct.Struct) -> tuple[str, int]:
    """Return a text, and the place behind it."""
    (length,) = length_form.unpack_from(header, place)
    begin = place + length_form.size
    if length < 0 or begin + length > len(header):
        raise BadFrame(f"a text of {length} bytes at {begin} of a header of {len(header)}")
    return header[begin : begin + length].decode(), begin + length
