"""CloudEvents in their JSON format, one or a batch of them.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md. ``data`` is taken as it stands in
the text and put there so: to read and write it again would change its numbers.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from tarry.base.errors import InvalidMessageError
from tarry.base.printable import shown
from tarry.message.cloud_event import CloudEvent

JSON_TYPE = "application/cloudevents+json"
BATCH_TYPE = "application/cloudevents-batch+json"
_OF_JSON = "application/json"
_SPACE = re.compile("[ \t\r\n]*")
_JSON_SUBTYPE = re.compile(r"(?i)[^/;]+/(json|[^/;]*\+json)\s*(;.*)?")
_TEXT = re.compile(r"(?i)text/[^/;]+\s*(;.*)?|application/xml\s*(;.*)?|[^/;]+/[^/;]*\+xml\s*(;.*)?")


def is_json(content_type: str) -> bool:
    """Return whether a media type says that data are JSON."""
    return _JSON_SUBTYPE.fullmatch(content_type) is not None


def read_json(raw: bytes) -> CloudEvent:
    """Return the event that a text is.

    Raises:
        InvalidMessageError: it is none; names the attribute and what is allowed.
    """
    text = _decoded(raw)
    event, end = _event_at(text, _skip(text, 0))
    _check_end(text, end)
    return event


def read_batch(raw: bytes) -> list[CloudEvent]:
    """Return the events of a batch, which may be empty.

    Raises:
        InvalidMessageError: one of them is none, and which.
    """
    text = _decoded(raw)
    start = _skip(text, 0)
    if text[start : start + 1] != "[":
        raise InvalidMessageError("a batch of events is no JSON array; allowed: [{…}, …]")
    events: list[CloudEvent] = []
    at = _skip(text, start + 1)
    if text[at : at + 1] == "]":
        _check_end(text, at + 1)
        return events
    while True:
        try:
            event, at = _event_at(text, at)
        except InvalidMessageError as error:
            raise InvalidMessageError(f"event {len(events)}: {error}") from None
        events.append(event)
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            _check_end(text, at + 1)
            return events
        if text[at : at + 1] != ",":
            _no_json(at)
        at = _skip(text, at + 1)


def to_json(attributes: Mapping[str, str], content_type: str, data: bytes) -> bytes:
    """Return an event as JSON; data that say they are JSON and are not, or are no text, are in base64."""
    head = json.dumps({**attributes, "datacontenttype": content_type}, ensure_ascii=False, separators=(",", ":"))
    head = head.encode(errors="replace").decode()  # half a surrogate pair, of somebody who speaks another protocol
    return f"{head[:-1]}{_data_member(content_type, data)}}}".encode()


def _data_member(content_type: str, data: bytes) -> str:
    if not data:
        return ""
    if is_json(content_type) and (text := _json_text(data)) is not None:
        return f',"data":{text}'
    if _TEXT.fullmatch(content_type):
        try:
            return f',"data":{json.dumps(data.decode(), ensure_ascii=False)}'
        except UnicodeDecodeError:
            pass
    return f',"data_base64":"{base64.b64encode(data).decode()}"'


def _json_text(data: bytes) -> str | None:
    """Return data as they are, if they are JSON in UTF-8."""
    try:
        text = data.decode()
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return text


# -- reading -----------------------------------------------------------------------------------------------------------


def _event_at(text: str, at: int) -> tuple[CloudEvent, int]:
    """Return the event that begins at a place, and the place behind it."""
    if text[at : at + 1] != "{":
        raise InvalidMessageError("an event is no JSON object; allowed: {…}")
    attributes: dict[str, str] = {}
    content_type: str | None = None
    parts: dict[str, tuple[Any, str]] = {}
    members, end = _members(text, at)
    for name, value, raw in members:
        if name in attributes or name in parts or (name == "datacontenttype" and content_type is not None):
            raise InvalidMessageError(f"{name} is given twice; allowed: once")
        if name in ("data", "data_base64"):
            parts[name] = value, raw
        elif name == "datacontenttype":
            content_type = None if value is None else _text_of(name, value)
        elif value is not None:
            attributes[name] = _text_of(name, value)
    data, content_type = _data_of(parts, content_type)
    return CloudEvent(attributes, content_type, data), end


def _members(text: str, at: int) -> tuple[list[tuple[str, Any, str]], int]:
    """Return the members of the object at a place, and the place behind it.

    A member is its name, its value, and the value's text.
    """
    members: list[tuple[str, Any, str]] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        name, at = _value(text, at)
        at = _skip(text, at)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            _no_json(at)
        start = _skip(text, at + 1)
        value, end = _value(text, start)
        at = _skip(text, end)
        members.append((name, value, text[start:end]))
        if text[at : at + 1] == "}":
            return members, at + 1
        if text[at : at + 1] != ",":
            _no_json(at)
        at = _skip(text, at + 1)


def _data_of(parts: Mapping[str, tuple[Any, str]], content_type: str | None) -> tuple[bytes, str | None]:
    """Return data, and their type: that of ``data`` without one is JSON."""
    given = {name: part for name, part in parts.items() if part[0] is not None or name == "data"}
    if len(given) == 2:
        raise InvalidMessageError("data and data_base64 are both given; allowed: one of them")
    if "data_base64" in given:
        coded = given["data_base64"][0]
        try:
            return base64.b64decode(coded, validate=True), content_type
        except (binascii.Error, ValueError, TypeError):
            raise InvalidMessageError(f"data_base64 is {shown(coded)}; allowed: base64") from None
    if "data" not in given:
        return b"", content_type
    value, raw = given["data"]
    if isinstance(value, str) and content_type is not None and not is_json(content_type):
        return _encoded("data", value), content_type
    return _encoded("data", raw), content_type or _OF_JSON


def _text_of(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int) and -(1 << 31) <= value < 1 << 31:
        return str(value)
    raise InvalidMessageError(f"{name} is {shown(value)}; allowed: a text, true, false, or a whole number of 32 bits")


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        _no_json(at)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _check_end(text: str, at: int) -> None:
    if _skip(text, at) != len(text):
        _no_json(at)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidMessageError(f"an event is not UTF-8: {error.reason} at {error.start}; allowed: UTF-8") from None


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidMessageError(f"{name} has half a surrogate pair; allowed: Unicode") from None


def _no_json(at: int) -> NoReturn:
    raise InvalidMessageError(f"an event is not JSON, at character {at}; allowed: JSON in UTF-8")
