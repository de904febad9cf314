"""Strict parsing of requests from the wire: types, unknown fields, missing fields.

A refusal names the field, its value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin

from annotated_types import Ge, Le, Lt
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tarry.api.bounds import Choice, Range, bound_of
from tarry.api.operation import Request
from tarry.api.wire import decode_json
from tarry.base.delay import INT64_MAX
from tarry.base.errors import InvalidArgumentError

Q = TypeVar("Q", bound=Request)
_SECRET = frozenset({"secret", "token"})
"""Names of fields whose values are not repeated in a refusal."""


def parse(kind: type[Q], raw: bytes) -> Q:
    """Read ``raw``, a JSON object, as a request of this kind.

    Raises:
        InvalidArgumentError: names the field and what is allowed.
    """
    return from_json(kind, decode_json(raw))


def from_json(kind: type[Q], values: Any) -> Q:
    """:func:`parse` of what was decoded already."""
    if not isinstance(values, dict):
        raise InvalidArgumentError(f"a command is {type(values).__name__}; allowed: a JSON object")
    return _checked(kind, _model(cast(Any, kind)), values)


def from_texts(kind: type[Q], values: Mapping[str, str | list[str]]) -> Q:
    """:func:`from_json` of values that are texts all of them, as a URL has them: ``5``, ``true``.

    Raises:
        InvalidArgumentError: names the field and what is allowed.
    """
    return _checked(kind, _model(cast(Any, kind), is_strict=False), values)


def model_of(kind: Any) -> type[BaseModel] | None:
    """Return the model that checks the fields of a request's class; None: any object will do.

    For callers that describe the fields, as OpenAPI does.
    """
    return _model(kind)


def _checked(kind: type[Q], model: type[BaseModel] | None, values: Mapping[str, Any]) -> Q:
    if model is None:
        return kind.from_wire(values)
    try:
        checked = model.model_validate(values)
    except ValidationError as error:
        raise InvalidArgumentError(_text(model, error)) from None
    return kind.from_wire({name: getattr(checked, name) for name in checked.model_fields_set})


@cache
def _model(kind: Any, *, is_strict: bool = True) -> type[BaseModel] | None:
    """Return the pydantic model that checks the fields of a request's class; made once for each."""
    wire_fields = kind.wire_fields()
    if wire_fields is None:
        return None
    config = ConfigDict(strict=is_strict, extra="forbid", frozen=True)
    return create_model(kind.__name__, __config__=config, **wire_fields)


def _text(model: type[BaseModel], error: ValidationError) -> str:
    errors = error.errors(include_url=False)
    first = errors[0]
    field = _field(first)
    fields = ", ".join(model.model_fields)
    if first["type"] == "missing":
        return f"{field} is missing; the fields are: {fields}"
    if first["type"] == "extra_forbidden":
        return f"{field} is not a field; allowed: {fields}"
    if first["type"] == "too_long":
        return f"{field} has {first['ctx']['actual_length']} values; allowed: at most {first['ctx']['max_length']}"
    # One that may be of several types has an error for each.
    allowed = dict.fromkeys(_allowed(model, each) for each in errors if _field(each) == field)
    shown = f"a {type(first['input']).__name__}" if field in _SECRET else f"{first['input']!r:.80}"
    return f"{field} is {shown}; allowed: {' or '.join(allowed)}"


def _field(error: ErrorDetails) -> str:
    # Of a field of several types, the name is followed by that of a type.
    return ".".join(str(part) for place, part in enumerate(error["loc"]) if not place or isinstance(part, int))


_BY_PLAIN_TYPE = {"string": "a text", "bool": "true or false", "float": "a number", "finite": "a number"}
_CONTAINERS = {"list": "a list", "dict": "an object"}
_ITEMS = {str: " of texts", int: " of whole numbers", list: " of lists"}
_WHOLE = ("int", "greater", "less")


def _allowed(model: type[BaseModel], error: ErrorDetails) -> str:
    """Return the allowed values of a field, in words: pydantic's, of an error that is not known here."""
    name, plain_type = str(error["loc"][0]), error["type"].partition("_")[0]
    bound = bound_of(model.__name__, name)
    if isinstance(bound, Choice):
        return ", ".join(bound.values)
    hints = list(_hints(model.model_fields[name])) if name in model.model_fields else []
    if plain_type in _WHOLE:
        return _whole(hints, bound if isinstance(bound, Range) else None)
    if plain_type in _CONTAINERS:
        depth = sum(isinstance(part, int) for part in error["loc"])
        of = [get_args(hint)[-1] for hint in hints if get_origin(hint) in (list, dict)][depth : depth + 1]
        return f"{_CONTAINERS[plain_type]}{''.join(_ITEMS.get(_bare(each), '') for each in of)}"
    if plain_type == "literal":
        return str(error["ctx"]["expected"])
    return _BY_PLAIN_TYPE.get(plain_type, error["msg"])


def _hints(field: FieldInfo) -> Iterator[Any]:
    """Yield the types and marks of which a field's type is made."""
    yield from field.metadata
    left = [field.annotation]
    while left:
        yield (hint := left.pop())
        left += get_args(hint)


def _bare(hint: Any) -> Any:
    """Return a type without marks and arguments."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else get_origin(hint) or hint


def _whole(hints: list[Any], bound: Range | None) -> str:
    lows = [int(str(hint.ge)) for hint in hints if isinstance(hint, Ge)]
    highs = [int(str(hint.le)) for hint in hints if isinstance(hint, Le)]
    highs += [int(str(hint.lt)) - 1 for hint in hints if isinstance(hint, Lt)]
    if bound is not None:
        lows.append(bound.low)
        highs += [bound.high] if bound.high is not None else []
    if not lows or not highs:
        return "a whole number"
    low, high = max(lows), min(highs)
    is_any = (low, high) == (-INT64_MAX - 1, INT64_MAX)
    return f"a whole number{' of 64 bits' if is_any else f', {low} to {high}'}"
