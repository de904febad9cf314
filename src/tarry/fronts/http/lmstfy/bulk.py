"""The body of a bulk: an array of JSON, whose elements are jobs as they are written."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from tarry.fronts.http.lmstfy.answers import RefusalError

BODY_BYTES_MAX = 1 << 20
"""The limit for one job."""
JOBS_MAX = 64
BULK_BYTES_MAX = JOBS_MAX * BODY_BYTES_MAX + (1 << 20)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)


_DECODER: Any = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=str, parse_float=str)
_SPACE = " \t\r\n"


def bodies_of(body: bytes) -> list[bytes]:
    """Return the jobs of a bulk.

    Raises:
        RefusalError: there are none, or too many, or one is too large.
    """
    bodies = split(body)
    if not bodies:
        raise RefusalError(400, "no jobs")
    if len(bodies) > JOBS_MAX:
        raise RefusalError(400, "too many jobs")
    if any(len(body) > BODY_BYTES_MAX for body in bodies):
        raise RefusalError(413, "job too large")
    return bodies


def split(body: bytes) -> list[bytes]:
    """Split a JSON array into its elements as they are written; ``null`` has none.

    Raises:
        RefusalError: it is no array.
    """
    # As Latin-1 each byte is a character: what is in a text need not be UTF-8, and places are those of the bytes.
    text = body.decode("latin-1")
    try:
        return _elements(body, text)
    except (ValueError, IndexError, RecursionError):
        raise RefusalError(400, "request body should be an array of objects") from None


def _elements(body: bytes, text: str) -> list[bytes]:
    stripped = text.strip(_SPACE)
    if stripped == "null":
        return []
    at = text.index(stripped) + 1 if stripped[0] == "[" else -1
    end = len(text.rstrip(_SPACE)) - 1
    if at < 0 or text[end] != "]":
        raise ValueError
    found = []
    at = _skip(text, at)
    while at < end:
        _, stop = _DECODER.raw_decode(text, at)
        found.append(body[at:stop])
        at = _skip(text, stop)
        if at < end:
            if text[at] != ",":
                raise ValueError
            at = _skip(text, at + 1)
            if at >= end:
                raise ValueError
    if at != end:
        raise ValueError
    return found


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
