"""``/healthz`` and ``/readyz``: one word each, for whoever watches the process. No token is asked for."""

from __future__ import annotations

import asyncio

from tarry.api.operations import HasTopic
from tarry.base.errors import TarryError
from tarry.fronts.http.app import HEADERS, NOT_FOUND, Receive, Scope, Send
from tarry.fronts.http.services import HttpServices

HEALTHY, READY = "/healthz", "/readyz"
READY_S = 5.0
"""Seconds that the broker may take to answer."""
_TEXT = ((b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store"))


class HealthAnswers:
    """An ASGI application. Healthy: this process answers. Ready: the broker answers, too."""

    def __init__(self, services: HttpServices) -> None:
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in (HEALTHY, READY):
            await _answer(send, 404, HEADERS, NOT_FOUND)
        elif scope["path"] == HEALTHY or await self._is_ready():
            await _answer(send, 200, _TEXT, b"ok\n")
        else:
            await _answer(send, 503, _TEXT, b"no\n")

    async def _is_ready(self) -> bool:
        try:
            async with asyncio.timeout(READY_S):
                # Of any name: a broker that has failed or stops refuses to say.
                await self._services.call(HasTopic("readyz"))
        except (TarryError, TimeoutError):
            return False
        return True


async def _answer(send: Send, status: int, headers: object, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
