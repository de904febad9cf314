"""A producer's fields of a message.

They are in JSON, or in the query and the headers beside a body that is sent as it is.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from tarry.api.bounds import DELAY_MS, DUE_MS, KEY, NAME, Bound, Range, with_bound
from tarry.base.delay import Delay, DelayLevel
from tarry.base.errors import InvalidArgumentError, InvalidMessageError
from tarry.fronts.http.rest.description import Parameter, Schema
from tarry.fronts.http.rest.request import RestRequest
from tarry.message.options import OPTIONS, Option, OptionKind
from tarry.message.rows import Row, make_row
from tarry.message.values import whole_number

HEADER = "x-tarry-"
_PROPERTY, PROPERTY_FIELD = "property-", "property."
_DELAY_MS_MAX = 10**15
"""Beyond every limit that a broker can have, and within what a timedelta can be."""


def _about(text: str, bound: Bound | None = None) -> Any:
    # In words alone: the broker checks it, and refuses with a text of its own.
    more: Any = None if bound is None else lambda schema: schema.update(with_bound(dict(schema), bound))
    return Field(description=text, json_schema_extra=more)


_STRICT = ConfigDict(strict=True, extra="forbid")


class Times(TypedDict, total=False):
    """The due time of a message: one of these, or at once."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]

    due: Annotated[str | int, _about("The instant: ISO 8601 with an offset, or UTC milliseconds.")]
    due_ms: Annotated[int, _about("The instant in UTC milliseconds.", DUE_MS)]
    delay: Annotated[str | float, _about('How long from now: seconds, or a text such as "1h30m" or "500ms".')]
    delay_ms: Annotated[int, _about("How long from now, in milliseconds.", DELAY_MS)]
    delay_level: Annotated[int, _about("RocketMQ's delay level.")]


def _field(option: Option) -> Any:
    """Return the type of an option in JSON, with its description."""
    types: dict[OptionKind, Any] = {
        OptionKind.TEXT: str,
        OptionKind.WHOLE: int,
        OptionKind.DURATION: str | float,
        OptionKind.CHOICE: Literal[*option.choices],
        OptionKind.TEXTS: dict[str, str],
        OptionKind.RULE: dict[str, Any] | str,
    }
    bounds: dict[OptionKind, Bound] = {
        OptionKind.TEXT: KEY if option.is_name and not option.stored_as else NAME,
        OptionKind.WHOLE: Range(option.low, option.high),
    }
    # A choice that has a default is never null: it is the default that says "as if it were left out".
    kind = types[option.kind] if option.default else types[option.kind] | None
    more = ' Seconds, or a text such as "1h30m".' if option.kind is OptionKind.DURATION else ""
    return Annotated[kind, _about(option.help + more, bounds.get(option.kind))]


_BODY = {
    "body": Annotated[str, _about("The body, as a text.")],
    "body_base64": Annotated[str, _about("The body instead, in base64.")],
}
_SAID = {option.name: _field(option) for option in OPTIONS}
_typed_dict: Any = TypedDict
"""The fields are those of a table, which no type checker can follow."""


def _message_type(name: str, text: str, **required: Any) -> Any:
    """Return the type of a message in JSON, whose fields may be left out but for ``required``."""
    optional = {**Times.__annotations__, **_BODY, **_SAID}
    fields = {**{n: NotRequired[kind] for n, kind in optional.items()}, **required}
    made = _typed_dict(name, fields)
    made.__pydantic_config__ = _STRICT
    made.__doc__ = text
    return made


MessageFields: Any = _message_type(
    "MessageFields",
    "A message; without a body, it is empty. One of ``due``, ``due_ms``, ``delay``, ``delay_ms`` and ``delay_level``\n"
    "says when it is due; without them it is due at once.",
)
TopicMessageFields: Any = _message_type(
    "TopicMessageFields", "A message of a batch: it names its topic, where the path does not.", topic=str
)

_MESSAGE: TypeAdapter[dict[str, Any]] = TypeAdapter(MessageFields)
_TOPIC_MESSAGE: TypeAdapter[dict[str, Any]] = TypeAdapter(TopicMessageFields)
_TIMES: TypeAdapter[Times] = TypeAdapter(Times)
_IN_QUERY = (
    *Times.__annotations__,
    *(option.name for option in OPTIONS if option.kind is not OptionKind.TEXTS),
)
_WHOLE = {
    *("due_ms", "delay_ms", "delay_level"),
    *(option.name for option in OPTIONS if option.kind is OptionKind.WHOLE),
}


def message_of_json(raw: bytes, topic: str | None, **fixed: str) -> Row:
    """Return the row of a message that is a JSON object.

    ``topic``: the path's, if it has one. ``fixed``: other fields that the path has.

    Raises:
        InvalidMessageError, InvalidArgumentError: names the field and what is allowed.
    """
    try:
        fields: dict[str, Any] = dict((_MESSAGE if topic is not None else _TOPIC_MESSAGE).validate_json(raw))
    except ValidationError as error:
        # A topic that is named twice is no mistake while it is the same.
        again = None if topic is None else _with_topic(raw, topic)
        if again is None:
            _refuse(error)
        fields = again
    _check_once(fields, fixed)
    return row_of(fields.pop("topic", topic), _body(fields), {**fields, **fixed})


def _with_topic(raw: bytes, topic: str) -> dict[str, Any] | None:
    try:
        fields: dict[str, Any] = dict(_TOPIC_MESSAGE.validate_json(raw))
    except ValidationError:
        return None
    if fields["topic"] != topic:
        raise InvalidMessageError(f"topic is {fields['topic']!r:.80}, and {topic!r} in the path; allowed: one topic")
    return fields


def message_of_request(request: RestRequest, body: bytes, topic: str, **fixed: str) -> Row:
    """Return the row of a message whose body was sent as it is."""
    return row_of(topic, body, {**fields_of_request(request, fixed), **fixed})


def fields_of_request(request: RestRequest, fixed: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a message in the query and the headers; ``fixed``: those that the path has."""
    fields: dict[str, Any] = {}
    properties: dict[str, str] = {}
    for name, value in _said(request):
        if name.startswith(PROPERTY_FIELD):
            if name.removeprefix(PROPERTY_FIELD) in properties:
                raise InvalidArgumentError(f"{name!r:.80} is given twice; allowed: once")
            properties[name.removeprefix(PROPERTY_FIELD)] = value
        elif name not in _IN_QUERY:
            allowed = f"{', '.join(_IN_QUERY)}, {PROPERTY_FIELD}NAME"
            raise InvalidArgumentError(f"{name[:60]!r} is no field of a message; allowed: {allowed}")
        elif name in fields or name in fixed:
            raise InvalidArgumentError(f"{name} is given twice; allowed: once")
        else:
            fields[name] = whole_number(name, value) if name in _WHOLE else value
    if properties:
        fields["properties"] = properties
    return fields


def times_of_json(raw: bytes) -> dict[str, Any]:
    """``delay`` or ``due`` of a JSON object with :class:`Times`."""
    try:
        return _time(dict(_TIMES.validate_json(raw)))
    except ValidationError as error:
        _refuse(error)


def times_of_query(request: RestRequest) -> dict[str, Any]:
    """Return ``delay`` or ``due`` of a query with the fields of :class:`Times`."""
    fields: dict[str, Any] = {}
    for name, value in request.query:
        if name not in Times.__annotations__ or name in fields:
            allowed = ", ".join(Times.__annotations__)
            raise InvalidArgumentError(f"{name[:60]!r} is no field, or given twice; allowed: one of {allowed}")
        fields[name] = whole_number(name, value) if name in _WHOLE else value
    return _time(fields)


def _check_once(fields: Collection[str], fixed: Collection[str]) -> None:
    if twice := next((name for name in fixed if name in fields), None):
        raise InvalidMessageError(f"{twice} is in the path and once more; allowed: once")


def _said(request: RestRequest) -> Iterator[tuple[str, str]]:
    yield from request.query
    for name, value in request.headers_of(HEADER):
        if name.startswith(_PROPERTY):
            yield PROPERTY_FIELD + name.removeprefix(_PROPERTY), value
        else:
            yield name.replace("-", "_"), value


def row_of(topic: str, body: bytes, fields: dict[str, Any]) -> Row:
    """Return the row of a message with these fields, a time among them; the fields are used up."""
    return make_row(topic, body, **_time(fields), **fields)


def _body(fields: dict[str, Any]) -> bytes:
    text, coded = fields.pop("body", None), fields.pop("body_base64", None)
    if coded is None:
        return b"" if text is None else text.encode()
    if text is not None:
        raise InvalidMessageError("body and body_base64 are both given; allowed: one of them")
    try:
        return base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidMessageError(f"body_base64 is {coded!r:.40}: {error}; allowed: base64") from error


def _time(fields: dict[str, Any]) -> dict[str, Any]:
    """``delay`` or ``due``, as :func:`make_row` has them, taken out of the fields."""
    given = [name for name in Times.__annotations__ if name in fields]
    if not given:
        return {}
    if len(given) > 1:
        raise InvalidMessageError(f"{' and '.join(given)} are given; allowed: one of them")
    [name] = given
    value = fields.pop(name)
    if name in ("due", "due_ms"):
        return {"due": _instant(value)}
    delay: Delay = value
    if name == "delay_level":
        delay = DelayLevel(value)
    elif name == "delay_ms":
        if value < 0:
            raise InvalidMessageError(f"delay_ms is {value}; allowed: 0 (at once) or more")
        delay = timedelta(milliseconds=min(value, _DELAY_MS_MAX))
    return {"delay": delay}


def _instant(value: str | int) -> datetime | int:
    if isinstance(value, int):
        return value
    if value.removeprefix("-").isdigit() and value.isascii():
        return whole_number("due", value)
    try:
        given = datetime.fromisoformat(value)
        if given.tzinfo is None:
            raise ValueError("it names no instant")
        return given
    except ValueError as error:
        raise InvalidMessageError(
            f"due is {value!r:.60}; allowed: ISO 8601 with an offset, '2030-01-01T00:00:00Z', or UTC milliseconds"
        ) from error


def _refuse(error: ValidationError) -> NoReturn:
    """Refuse a JSON object with the first of its faults.

    Raises:
        InvalidArgumentError: it is no JSON object. InvalidMessageError: names the field.
    """
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        raise InvalidArgumentError(f"not JSON: {first['msg']}") from None
    field = str(first["loc"][0]) if first["loc"] else "a message"
    if first["type"] == "extra_forbidden":
        allowed = ", ".join((*MessageFields.__annotations__, "topic"))
        raise InvalidMessageError(f"{field[:60]!r} is no field of a message; allowed: {allowed}") from None
    raise InvalidMessageError(f"{field} is {first['input']!r:.80}; {first['msg']}") from None


# -- what is said of them ----------------------------------------------------------------------------------------------


@cache
def schemas() -> dict[str, Schema]:
    """Return the three schemas, by their names in a description."""
    kinds: dict[str, TypeAdapter[Any]] = {"Message": _MESSAGE, "TopicMessage": _TOPIC_MESSAGE, "Times": _TIMES}
    return {name: _untitled(kind.json_schema()) for name, kind in kinds.items()}


def parameters(*left_out: str) -> tuple[Parameter, ...]:
    """Return the fields beside a body that is sent as it is, as fields of the query.

    Each may be a header, too.
    """
    fields = schemas()["Message"]["properties"]
    return tuple(
        Parameter(name, "query", _scalar(fields[name]), fields[name].get("description", ""))
        for name in _IN_QUERY
        if name not in left_out
    )


def _scalar(schema: Mapping[str, Any]) -> Schema:
    """Return the schema of a field as a text: objects and null are only in JSON."""
    kinds = [one for one in schema.get("anyOf", [schema]) if one.get("type") not in ("object", "null")]
    found = dict(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
    found.pop("description", None)
    found.pop("additionalProperties", None)
    return found


def _untitled(schema: Schema) -> Schema:
    """Return a schema without the titles that pydantic makes of the names of fields."""
    fields = {name: {k: v for k, v in one.items() if k != "title"} for name, one in schema["properties"].items()}
    return {**schema, "properties": fields}
