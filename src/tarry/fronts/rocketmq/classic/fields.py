"""The fields of a request, read as what they should be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode

_LONG_MAX = 1 << 63
_NO_NAMES: Mapping[str, str] = {}


class Fields:
    """Of one request. Each method raises RequestRefused where a field is missing that has no default, or is none of its
    kind; as in RocketMQ, an empty text is one that is missing.
    """

    __slots__ = ("_names", "_values")

    def __init__(self, values: Mapping[str, str], names: Mapping[str, str] = _NO_NAMES) -> None:
        """``names``: what fields are called in ``values`` that have other names there."""
        self._values = values
        self._names = names

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(self._names.get(name, name)) or default
        if value is None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"field {name!r} is missing; it is needed")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number of 64 bits."""
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
        """Whether it says "true"."""
        return self._values.get(self._names.get(name, name), "").lower() == "true"


def json_object(body: bytes) -> dict[str, Any]:
    """A request's body.

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
    """A list of objects within a body; None stands for an empty one.

    Raises:
        RequestRefused: it is none.
    """
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{name} is {value!r:.60}; allowed: a list of objects")
    return value


def json_text(values: Mapping[str, Any], name: str) -> str:
    """A text that an object must have.

    Raises:
        RequestRefused: it has none.
    """
    value = values.get(name)
    if not isinstance(value, str) or not value:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{name} is {value!r:.60}; allowed: a text, not empty")
    return value


def json_whole(values: Mapping[str, Any], name: str, default: int) -> int:
    """A whole number that an object may have.

    Raises:
        RequestRefused: it is something else.
    """
    value = values.get(name, default)
    if type(value) is not int:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{name} is {value!r:.60}; allowed: a whole number")
    return value


def to_json(value: Any) -> bytes:
    """A body of an answer."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
