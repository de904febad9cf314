"""CloudEvents that are POSTed where messages are: in binary or structured mode, or as a batch.

An event becomes a message: its data are the body, its attributes properties. When it is due it says itself, by the
extension attributes ``tarrydue`` or ``tarrydelay``; or the query and the headers do, as of any message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarry.base.errors import InvalidArgumentError, InvalidMessageError
from tarry.fronts.http.errors import HttpError
from tarry.fronts.http.rest.message_fields import fields_of_request, row_of
from tarry.fronts.http.rest.request import RestRequest
from tarry.fronts.kit.cloud_event_headers import PREFIX, decoded_attribute
from tarry.message.cloud_event import DELAY, DUE, KEY, REQUIRED, CloudEvent
from tarry.message.cloud_event_json import BATCH_TYPE, JSON_TYPE, read_batch, read_json
from tarry.message.rows import Row

_FIELDS = {DUE: "due", DELAY: "delay", KEY: "key"}
"""Fields of a message by the attributes that say them."""
_FORMATS = "application/cloudevents"


def is_event(request: RestRequest) -> bool:
    """Return whether a request has a CloudEvent, or several.

    Raises:
        HttpError: 415, they are in a format that is not known.
        InvalidMessageError: some of its attributes are in headers, and not its version.
    """
    media_type = request.media_type or ""
    if media_type.startswith(_FORMATS):
        if media_type not in (JSON_TYPE, BATCH_TYPE):
            raise HttpError(
                415,
                "unsupported_media_type",
                f"content-type is {media_type[:80]!r}; allowed: {JSON_TYPE}, {BATCH_TYPE}",
            )
        return True
    found = [name for name in REQUIRED if PREFIX + name in request.headers]
    if found and found[0] != REQUIRED[0]:
        raise InvalidMessageError(f"{PREFIX}{found[0]} is given without {PREFIX}{REQUIRED[0]}; allowed: both")
    return bool(found)


def is_batch(request: RestRequest) -> bool:
    """Return whether a request has several events."""
    return request.media_type == BATCH_TYPE


def rows_of_events(request: RestRequest, body: bytes, topic: str, fixed: Mapping[str, str]) -> list[Row]:
    """Return the rows of the events in a request; one, but of a batch.

    Raises:
        InvalidMessageError, InvalidArgumentError: names the attribute or the field, and what is allowed.
    """
    said = fields_of_request(request, fixed)
    if is_batch(request):
        if said or fixed:
            name = next(iter({**said, **fixed}))
            raise InvalidArgumentError(f"{name} is given beside a batch; allowed: {', '.join(_FIELDS)} of each event")
        return [_numbered(number, event, topic) for number, event in enumerate(read_batch(body))]
    event = read_json(body) if request.media_type == JSON_TYPE else _of_headers(request, body)
    return [_row(event, topic, {**said, **fixed})]


def _numbered(number: int, event: CloudEvent, topic: str) -> Row:
    try:
        return _row(event, topic, {})
    except InvalidArgumentError as error:
        raise InvalidMessageError(f"event {number}: {error}") from None


def _of_headers(request: RestRequest, body: bytes) -> CloudEvent:
    attributes: dict[str, str] = {}
    for name, value in request.headers_of(PREFIX):
        if name in attributes:
            raise InvalidMessageError(f"{PREFIX}{name:.64} is given twice; allowed: once")
        attributes[name] = decoded_attribute(name, value)
    return CloudEvent(attributes, request.header("content-type"), body)


def _row(event: CloudEvent, topic: str, said: dict[str, Any]) -> Row:
    if "repeat" in said:
        raise InvalidMessageError("repeat is given, and an event of one source and id is one; allowed: without repeat")
    fields: dict[str, Any] = {"id": event.id, **said}
    if DUE in event.own and DELAY in event.own:
        raise InvalidMessageError(f"{DUE} and {DELAY} are both given; allowed: one of them")
    for name, value in event.own.items():
        _check(name, value)
        if _FIELDS[name] in said:
            raise InvalidMessageError(f"{name} and {_FIELDS[name]} are both given; allowed: one of them")
        fields[_FIELDS[name]] = value
    fields["properties"] = {**said.get("properties", {}), **event.properties}
    return row_of(topic, event.data, fields)


def _check(name: str, value: str) -> None:
    """Refuse the value of an attribute by that attribute's name: of a row, it would be by the field's."""
    try:
        row_of("any", b"", {_FIELDS[name]: value})
    except InvalidArgumentError as error:
        raise InvalidMessageError(f"{name}: {error}") from None
