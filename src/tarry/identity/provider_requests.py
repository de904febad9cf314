"""Requests to a provider: what it publishes of itself, its keys, and tokens for codes.

By the client of pushes, which judges each address where it connects. Redirects are not followed, and an answer has a
time and a size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.base.issuer_settings import IssuerSettings

if TYPE_CHECKING:
    from tarry.outbound.client import HttpClient
    from tarry.outbound.connection import HttpAnswer

ANSWER_S = 10.0
"""Seconds that a provider has for an answer."""
ANSWER_BYTES_MAX = 1 << 20
_HEADERS = {"accept": "application/json", "user-agent": "tarry"}
_FORM = {**_HEADERS, "content-type": "application/x-www-form-urlencoded"}


async def discover(client: HttpClient, settings: IssuerSettings) -> dict[str, Any]:
    """Return what a provider publishes of itself.

    Raises:
        UnavailableError: it does not answer. InvalidArgumentError: it is another one's.
    """
    url = settings.discovery_url
    told = json_of(await fetch(client, url), url)
    if told.get("issuer") != settings.issuer:
        raise InvalidArgumentError(
            f"{url} is of the issuer {told.get('issuer')!r:.300}; allowed: {settings.issuer!r:.300}"
        )
    return told


async def fetch(client: HttpClient, url: str) -> bytes:
    """Return what a URL has.

    Raises:
        UnavailableError: there is no answer, or none that is taken.
    """
    status, content = await _send(client, url, "GET", _HEADERS, b"")
    if status != 200:
        about = "; redirects are not followed" if 300 <= status < 400 else ""
        raise UnavailableError(f"{url} answers {status}{about}")
    return content


async def send_form(
    client: HttpClient, url: str, fields: Mapping[str, str], headers: Mapping[str, str]
) -> tuple[int, bytes]:
    """Send a form, and return the status and the content of the answer.

    Raises:
        UnavailableError: there is none, or it is too long.
    """
    return await _send(client, url, "POST", {**_FORM, **headers}, urlencode(fields).encode())


def json_of(content: bytes, url: str) -> dict[str, Any]:
    """Return the object that an answer is.

    Raises:
        UnavailableError: it is none.
    """
    try:
        told = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnavailableError(f"{url} answers no JSON") from error
    if not isinstance(told, dict):
        raise UnavailableError(f"{url} answers JSON that is no object")
    return told


async def _send(
    client: HttpClient, url: str, method: str, headers: Mapping[str, str], body: bytes
) -> tuple[int, bytes]:
    from tarry.outbound.connection import HttpTarget

    answer: HttpAnswer = await client.send(HttpTarget(url, method), headers, body, ANSWER_S)
    if answer.status is None:
        raise UnavailableError(f"{url}: {answer.error}")
    if len(answer.content) >= ANSWER_BYTES_MAX:
        raise UnavailableError(f"{url} answers {ANSWER_BYTES_MAX} bytes or more; allowed: less")
    return answer.status, answer.content
