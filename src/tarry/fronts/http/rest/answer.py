"""Answers, and how they are sent: whole, or in parts as fast as the client reads them."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tarry.api.wire import encode_json
from tarry.fronts.http.app import Send
from tarry.fronts.http.errors import HttpError, error_body, error_headers, status_of
from tarry.fronts.http.rest.request import RestRequest

JSON = "application/json"
JSON_LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
SSE = "text/event-stream"
SLOW_S = 60.0
"""Seconds after which a client that reads nothing gets no more."""

ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


@dataclass(slots=True)
class Answer:
    """The answer to a request. ``body``: its bytes, or parts as they are made.

    The iteration of parts ends with the answer, even if the client has left.
    """

    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a JSON value as an answer."""
    return Answer(status, encode_json(value) + b"\n", JSON, headers or {})


def error_answer(error: BaseException) -> Answer:
    """Return an error as an answer."""
    return Answer(status_of(error), error_body(error), JSON, error_headers(error))


async def send_answer(answer: Answer, request: RestRequest, send: Send) -> None:
    """Send it. A client that does not read its parts is left after :data:`SLOW_S`."""
    whole = answer.body if isinstance(answer.body, bytes) else None
    headers = [(b"content-type", answer.media_type.encode()), *ALWAYS]
    headers += [(name.encode(), _one_line(value)) for name, value in answer.headers.items()]
    if whole is not None:
        headers.append((b"content-length", str(len(whole)).encode()))
    if not request.is_read and _has_body(request):
        headers.append((b"connection", b"close"))  # what is left of the body is not worth reading
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if whole is not None or request.method == "HEAD":
        await send({"type": "http.response.body", "body": whole if whole and request.method != "HEAD" else b""})
        if whole is not None:
            return
    await _send_parts(answer.body, request, send)


async def _send_parts(parts: Any, request: RestRequest, send: Send) -> None:
    try:
        if request.method != "HEAD":
            async for part in parts:
                async with asyncio.timeout(SLOW_S):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
    finally:
        await parts.aclose()


def _has_body(request: RestRequest) -> bool:
    return request.headers.get("content-length", b"0") != b"0" or "transfer-encoding" in request.headers


def _one_line(value: str) -> bytes:
    # A name from a request may be in it, and must not begin another header.
    return "".join(c if c.isprintable() else "?" for c in value).encode("latin-1", "replace")


def chosen(request: RestRequest, *offered: str) -> str:
    """Return the offered media type that the client accepts first, by its own order if it has one.

    Raises:
        HttpError: 406, it accepts none.
    """
    accept = (request.header("accept") or "*/*").lower()
    best, best_quality = None, 0.0
    for media_type in offered:
        quality = _quality(accept, media_type)
        if quality > best_quality:
            best, best_quality = media_type, quality
    if best is None:
        raise HttpError(406, "not_acceptable", f"accept is {accept[:80]!r}; allowed: {', '.join(offered)}")
    return best


_Q = re.compile(r"q=([01](?:\.[0-9]{0,3})?)")


def _quality(accept: str, media_type: str) -> float:
    """Return an Accept header's quality for a media type: that of its most exact part."""
    names = ("*/*", f"{media_type.partition('/')[0]}/*", media_type)
    best_exact, quality = -1, 0.0
    for part in accept.split(","):
        wanted, *parameters = (word.strip() for word in part.split(";"))
        if wanted in names and names.index(wanted) > best_exact:
            best_exact = names.index(wanted)
            given = next((q for p in parameters if (q := _Q.fullmatch(p))), None)
            quality = min(1.0, float(given[1])) if given else 1.0
    return quality


def etag_of(body: bytes) -> str:
    """Return a name of these bytes, for pages that are asked for again and again."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'
