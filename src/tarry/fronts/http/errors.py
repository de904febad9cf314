"""The HTTP status of an error, and its JSON: ``{"error": code, "message": text}``.

What is wrong with a request as HTTP (no such path, a method or media type that is not allowed, a body that is too long)
is an :class:`HttpError`; everything else is the broker's own :class:`~tarry.base.errors.TarryError`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from tarry.api.wire import encode_json
from tarry.base.errors import InvalidMessageError, QuotaExceededError, TarryError, UnauthenticatedError
from tarry.fronts.kit.known_errors import known

STATUS: Mapping[str, int] = MappingProxyType(
    {
        "internal": 500,
        "invalid_argument": 400,
        "invalid_message": 422,
        "delay_too_long": 422,
        "message_too_large": 413,
        "key_exists": 409,
        "unauthenticated": 401,
        "forbidden": 403,
        "forged_handle": 403,
        "not_found": 404,
        "trimmed": 404,
        "stale_lease": 409,
        "stale_commit": 409,
        "illegal_transition": 409,
        "native_only": 501,
        "overloaded": 503,
        "quota_exceeded": 429,
        "filter_paused": 503,
        "unavailable": 503,
        "closed": 503,
        "locked": 503,
        "disk_full": 507,
        "corrupt": 500,
        "fatal": 500,
        "ownership_lost": 503,
    }
)
"""Status by the code of a :class:`~tarry.base.errors.TarryError`; else that of its base class.

The retryable ones are 429, where one identity asks too much, and 503 and 507, where the broker's state refuses.
"""
RETRY_AFTER_S = 1
"""Value of ``Retry-After`` with an error that a retry may help."""


class HttpError(Exception):
    """A request that is none for this server. ``headers`` go with the answer: ``allow``, above all."""

    def __init__(self, status: int, code: str, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})


def status_of(error: BaseException) -> int:
    """Return the status of an answer that is this error."""
    if isinstance(error, HttpError):
        return error.status
    return next((STATUS[code] for code in _codes(error) if code in STATUS), 500)


def _codes(error: BaseException) -> Iterator[str]:
    """Return the error's code, then those of its bases."""
    return (kind.code for kind in type(error).__mro__ if issubclass(kind, TarryError))


def error_json(error: BaseException) -> dict[str, Any]:
    """Return the error as its code and text, and ``row`` if it is about one of several messages.

    An exception that is not a refusal is a bug: its text goes to the log alone.
    """
    if isinstance(error, HttpError):
        return {"error": error.code, "message": str(error)}
    error = known(error)
    described: dict[str, Any] = {"error": error.code, "message": str(error)}
    if isinstance(error, InvalidMessageError) and error.row is not None:
        described["row"] = error.row
    return described


def error_headers(error: BaseException) -> dict[str, str]:
    """Return the headers of an error, besides those of every answer."""
    if isinstance(error, HttpError):
        return error.headers
    if isinstance(error, UnauthenticatedError):
        return {"www-authenticate": "Bearer"}
    if isinstance(error, QuotaExceededError):
        return {"retry-after": str(math.ceil(error.retry_after_s))}
    is_retryable = isinstance(error, TarryError) and error.retryable
    return {"retry-after": str(RETRY_AFTER_S)} if is_retryable else {}


def error_body(error: BaseException) -> bytes:
    """:func:`error_json` as the bytes of an answer."""
    return encode_json(error_json(error)) + b"\n"
