"""Typed access to the fields of a request, and to JSON bodies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode

_LONG_MAX = 1 << 63
_NO_NAMES: Mapping[str, str] = {}


class Fields:
    """The fields of one request.

    Each method raises RequestRefused if a field without a default is missing, or has the wrong type. As in RocketMQ, an
    empty text counts as missing.
    """

    __slots__ = ("_names", "_values")

    def __init__(self, values: Mapping[str, str], names: Mapping[str, str] = _NO_NAMES) -> None:
        """Read from ``values``. ``names``: the names there of fields that are called differently."""
        self._values = values
        self._names = names

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(self._names.get(name, name)) or default
        if value is None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"field {name!r} is missing; it is needed")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number of 64 bits."""
        text = self._values.get(self._names.get(name, name))
        if not text:
            if default is None:
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"field {name!r} is missing; it is needed")
            return default
        if len(text) < 19 and text.isdecimal() and text.isascii():
            return int(text)
        digits = text[1:] if text[0] in "+-" else text
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20) or abs(int(text)) >= _LONG_MAX:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, f"field {name!r} is {text!r:.60}; allowed: a whole number of 64 bits"
            )
        return int(text)

    def truth(self, name: str) -> bool:
        """Return whether the field is "true"."""
        return self._values.get(self._names.get(name, name), "").lower() == "true"


def json_object(body: bytes) -> dict[str, Any]:
    """Parse a request's body.

    Raises:
        RequestRefused: it is no JSON object.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"the body is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER, f"the body is a JSON {type(value).__name__}; allowed: an object"
        )
    return value


def json_list(value: Any, name: str) -> list[dict[str, Any]]:
    """Check a list of objects within a body; None stands for an empty one.

    Raises:
        RequestRefused: it is no list of objects.
    """
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{name} is {value!r:.60}; allowed: a list of objects")
    return value


def json_text(values: Mapping[str, Any], name: str) -> str:
    """Return a text that an object must have.

    Raises:
        RequestRefused: it has none.
    """
    value = values.get(name)
    if not isinstance(value, str) or not value:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{name} is {value!r:.60}; allowed: a text, not empty")
    return value


def json_whole(values: Mapping[str, Any], name: str, default: int) -> int:
    """Return a whole number that an object may have.

    Raises:
        RequestRefused: it is something else.
    """
    value = values.get(name, default)
    if type(value) is not int:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{name} is {value!r:.60}; allowed: a whole number")
    return value


def to_json(value: Any) -> bytes:
    """Encode a body of an answer."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
