"""Chooses the application for a request: the first whose prefix its path has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI application."""

NOT_FOUND = b'{"error":"api not found"}'
HEADERS: Sequence[tuple[bytes, bytes]] = ((b"content-type", b"application/json; charset=utf-8"),)


class Apps:
    """An ASGI application made of others, by prefix of the path, longest first. The path is unchanged."""

    def __init__(self, apps: Mapping[str, App]) -> None:
        self._apps = sorted(apps.items(), key=lambda item: -len(item[0]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        for prefix, app in self._apps:
            if path.startswith(prefix):
                await app(scope, receive, send)
                return
        await send({"type": "http.response.start", "status": 404, "headers": HEADERS})
        await send({"type": "http.response.body", "body": NOT_FOUND})
