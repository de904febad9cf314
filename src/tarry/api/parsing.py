"""Strict parsing of requests from the wire: types, unknown fields, missing fields.

A refusal names the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from tarry.api.operation import Request
from tarry.api.wire import decode_json
from tarry.base.errors import InvalidArgumentError

Q = TypeVar("Q", bound=Request)


def parse(kind: type[Q], raw: bytes) -> Q:
    """Read ``raw``, a JSON object, as a request of this kind.

    Raises:
        InvalidArgumentError: names the field and what is allowed.
    """
    return from_json(kind, decode_json(raw))


def from_json(kind: type[Q], values: Any) -> Q:
    """:func:`parse` of what was decoded already."""
    if not isinstance(values, dict):
        raise InvalidArgumentError(f"a command is {type(values).__name__}: {values!r:.80}; allowed: a JSON object")
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
    first = error.errors(include_url=False, include_context=False)[0]
    # Of a field of several types, the name is followed by that of a type.
    named = [str(part) for place, part in enumerate(first["loc"]) if not place or isinstance(part, int)]
    field = ".".join(named)
    fields = ", ".join(model.model_fields)
    if first["type"] == "missing":
        return f"{field} is missing; the fields are: {fields}"
    if first["type"] == "extra_forbidden":
        return f"{field} is not a field; allowed: {fields}"
    return f"{field} is {first['input']!r:.80}; {first['msg']}"
