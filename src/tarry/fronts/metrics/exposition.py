"""Answers to ``GET /metrics``, in the format that the client asks for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, choose_encoder, generate_latest

from tarry.fronts.http.exchange import HttpRequest, HttpResponse, Work

log = logging.getLogger(__name__)

PATH = "/metrics"
TEXT = ((b"content-type", b"text/plain; charset=utf-8"),)
NOT_ALLOWED = HttpResponse(405, b"allowed: GET, HEAD\n", ((b"allow", b"GET, HEAD"), *TEXT))
NOT_FOUND = HttpResponse(404, b"there is only /metrics\n", TEXT)
FAILED = HttpResponse(500, b"see the broker's log\n", TEXT)

Refuse: TypeAlias = Callable[[HttpRequest], HttpResponse | None]
"""Returns the answer to a request whose sender may not see the figures; None: it may."""
InThread: TypeAlias = Callable[[Callable[[], HttpResponse]], Awaitable[HttpResponse]]
"""Runs a function in a thread."""


class Exposition:
    """The handler of all requests: one a connection, as each connection has one of few places."""

    def __init__(self, registry: CollectorRegistry, in_thread: InThread, refuse: Refuse) -> None:
        self._registry = registry
        self._in_thread = in_thread
        self._refuse = refuse

    def __call__(self, request: HttpRequest) -> Work | None:
        """Answer at once what needs no figures; else read them in a thread, as the broker is asked for them."""
        request.keep_alive = False
        if (refused := self._refuse(request)) is not None:
            request.answer(refused)
        elif request.method not in ("GET", "HEAD"):
            request.answer(NOT_ALLOWED)
        elif request.path != PATH:
            request.answer(NOT_FOUND)
        else:
            return self._answer(request)
        return None

    async def _answer(self, request: HttpRequest) -> None:
        accept = b", ".join(value for name, value in request.headers if name == b"accept").decode("latin-1")
        request.answer(await self._in_thread(lambda: self._read(accept)))

    def _read(self, accept: str) -> HttpResponse:
        try:
            encode, kind = choose_encoder(accept)
        except (ValueError, TypeError):  # a version that is none
            encode, kind = generate_latest, CONTENT_TYPE_LATEST
        try:
            return HttpResponse(200, encode(self._registry), ((b"content-type", kind.encode()),))
        except Exception:
            log.exception("reading the metrics failed")
            return FAILED
