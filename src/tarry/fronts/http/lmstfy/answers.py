"""Answers as lmstfy gives them, to the byte; and values of a query.

JSON has sorted keys and no spaces.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qsl

from tarry.base.errors import (
    DelayTooLongError,
    ForbiddenError,
    InvalidArgumentError,
    MessageTooLargeError,
    QuotaExceededError,
    TarryError,
)
from tarry.fronts.http.exchange import HttpResponse

TYPE = (b"content-type", b"application/json; charset=utf-8")
JSON = (TYPE,)
JSON_LINE = b"content-type: application/json; charset=utf-8\r\n"
NO_CONTENT = HttpResponse(204)

_NUMBER = re.compile("[0-9]{1,20}")
_SIGNED = re.compile("[-+]?[0-9]{1,20}")


class RefusalError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, text: str, name: str = "error") -> None:
        super().__init__(text)
        self.response = answer(status, {name: text})


def answer(status: int, value: Any) -> HttpResponse:
    """Return a JSON answer."""
    return HttpResponse(status, json_bytes(value), JSON)


def indented(status: int, value: Any) -> HttpResponse:
    """Return a JSON answer for people, as the admin port gives them."""
    return HttpResponse(status, _escaped(json.dumps(value, indent=4, sort_keys=True, ensure_ascii=False)), JSON)


def json_bytes(value: Any) -> bytes:
    """Encode a value as JSON."""
    return _escaped(json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False))


def _escaped(text: str) -> bytes:
    # As Go writes texts that may end up in HTML. These characters are nowhere else in JSON.
    for character, escape in _ESCAPES:
        if character in text:
            text = text.replace(character, escape)
    return text.encode(errors="replace")


_ESCAPES = (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))


def refusal_of(error: TarryError) -> HttpResponse:
    """Return the answer to an error of the broker, in lmstfy's words where it has some.

    A client may try again after 5xx, as with lmstfy.
    """
    if isinstance(error, DelayTooLongError):
        return answer(400, {"error": "invalid delay"})
    if isinstance(error, MessageTooLargeError):
        return answer(413, {"error": "body too large"})
    if isinstance(error, ForbiddenError):
        return answer(403, {"error": str(error)})
    if isinstance(error, QuotaExceededError):
        return answer(429, {"error": str(error)})
    if isinstance(error, InvalidArgumentError):
        return answer(400, {"error": str(error)})
    return answer(503 if error.retryable else 500, {"error": str(error) if error.retryable else "internal error"})


class QueryValues:
    """The values of a query; of a name that is there twice, the first."""

    def __init__(self, raw: bytes) -> None:
        text = raw.decode("latin-1")
        self._values: dict[str, str] = {}
        if "%" in text or "+" in text or ";" in text:
            pairs = parse_qsl(text, keep_blank_values=True)
        else:
            pairs = [(name, value) for name, _, value in (pair.partition("=") for pair in text.split("&"))]
        for name, value in reversed(pairs):
            self._values[name] = value

    def text(self, name: str) -> str:
        """Return a value; empty: there is none."""
        return self._values.get(name, "")

    def natural(self, name: str, default: int, most: int, *, least: int = 0) -> int:
        """Return a whole number without a sign.

        Raises:
            RefusalError: it is none, or not from ``least`` to ``most``.
        """
        text = self._values.get(name)
        if text is None:
            return default
        number = int(text) if _NUMBER.fullmatch(text) else -1
        if not least <= number <= most:
            raise RefusalError(400, f"invalid {name}")
        return number

    def signed(self, name: str, default: int, *, least: int) -> int:
        """Return a whole number of 64 bits, ``least`` or more.

        Raises:
            RefusalError: it is none.
        """
        text = self._values.get(name)
        if text is None:
            return default
        number = int(text) if _SIGNED.fullmatch(text) else least - 1
        if not least <= number < 1 << 63:
            raise RefusalError(400, f"invalid {name}")
        return number
