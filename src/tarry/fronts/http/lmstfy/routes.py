"""lmstfy's routes: which part carries out what, after the checks that lmstfy makes, in its order."""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable
from html import escape
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from tarry.api.access import AccessToken
from tarry.fronts.http.access import Access
from tarry.fronts.http.exchange import DirectHandler, HttpRequest, HttpResponse
from tarry.fronts.http.lmstfy.access_log import AccessLog
from tarry.fronts.http.lmstfy.answering import Answering
from tarry.fronts.http.lmstfy.answers import NO_CONTENT, QueryValues, RefusalError, answer
from tarry.fronts.http.lmstfy.fast_path import Prompt
from tarry.fronts.http.lmstfy.job_queue import JobQueue
from tarry.fronts.http.lmstfy.limits import TokenLimits
from tarry.fronts.http.lmstfy.names import NAME, NAME_CHARS_MAX, topic_of
from tarry.fronts.http.lmstfy.queues import JobQueues
from tarry.fronts.http.lmstfy.read_your_writes import Landing
from tarry.fronts.http.lmstfy.receiving import JobReceiver
from tarry.fronts.http.lmstfy.sending import Publishing
from tarry.fronts.http.lmstfy.settling import Acknowledging
from tarry.fronts.http.services import HttpServices

PREFIX = "/api/"
POOL = "default"

_NAMES = re.compile("[-_,A-Za-z0-9]+")
NO_ROUTE = answer(404, {"error": "api not found"})

Carry: TypeAlias = Callable[..., Awaitable[HttpResponse]]


class LmstfyRoute(NamedTuple):
    """What a method and the parts of a path behind the queue mean."""

    carry: Carry
    reads: bool | None = None
    """Whether it counts as one of a token's reads, or writes; None: as neither."""
    public: bool = False
    """Without a token."""
    several: bool = False
    """The queue may be several, with commas between."""


class Lmstfy:
    """A :data:`tarry.fronts.http.exchange.Handler`. On the loop's thread."""

    def __init__(self, services: HttpServices, access: Access, access_log: AccessLog) -> None:
        self._access = access
        self._limits = TokenLimits(services.loop)
        self._last_found: tuple[object, bytes, str, AccessToken | None] = (None, b"", "", None)
        """The broker's tokens, and a secret, a namespace and its token among them: the next request has them, too."""
        self._answering = Answering(access_log)
        self._acknowledging = Acknowledging(services)
        landing = Landing(services)
        publishing = Publishing(services, self._acknowledging, landing)
        consuming = JobReceiver(services, self._acknowledging, landing)
        queues = JobQueues(services, landing)
        jobs = JobQueue(services.broker, services.loop, landing)
        services.on_close(jobs.close)
        prompt = Prompt(services, jobs, self._acknowledging, consuming, self._answering, access_log, self._find_token)
        self.handler = DirectHandler(self, prompt.begin)
        """What a server gets."""
        self._routes: dict[tuple[str, tuple[str, ...]], LmstfyRoute] = {
            ("PUT", ()): LmstfyRoute(publishing.publish, reads=False),
            ("PUT", ("bulk",)): LmstfyRoute(publishing.publish_bulk, reads=False),
            ("PUT", ("job", ":id")): LmstfyRoute(publishing.republish),
            ("GET", ()): LmstfyRoute(consuming.consume, reads=True, several=True),
            ("GET", ("peek",)): LmstfyRoute(queues.peek),
            ("GET", ("job", ":id")): LmstfyRoute(queues.peek_job),
            ("GET", ("size",)): LmstfyRoute(queues.size, public=True),
            ("DELETE", ()): LmstfyRoute(queues.destroy),
            ("DELETE", ("job", ":id")): LmstfyRoute(self._delete),
            ("GET", ("deadletter",)): LmstfyRoute(queues.dead_letter),
            ("GET", ("deadletter", "size")): LmstfyRoute(queues.dead_letter_size, public=True),
            ("PUT", ("deadletter",)): LmstfyRoute(queues.respawn),
            ("DELETE", ("deadletter",)): LmstfyRoute(queues.delete_dead_letters),
        }

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        return await self._answering.answer(request, self._answer)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        parts = request.path[len(PREFIX) :].split("/")
        route = self._route(request.method, parts[2:]) if len(parts) >= 2 else None
        if route is None:
            return self._without_slash(request, parts) or NO_ROUTE
        namespace, queue = parts[0], parts[1]
        _check_names(namespace, queue, several=route.several)
        secret = self._secret(request)
        token = None if route.public else self._token(secret, namespace)
        if token is None or route.reads is None:
            job = parts[3:] if parts[2:3] == ["job"] else []
            return await route.carry(request, namespace, queue, *job)
        return await self._limited(route, token, request, namespace, queue)

    def _without_slash(self, request: HttpRequest, parts: list[str]) -> HttpResponse | None:
        """Where a route would be found without the slash at its end: the way to it, as lmstfy's router shows it."""
        if len(parts) < 3 or parts[-1] or self._route(request.method, parts[2:-1]) is None:
            return None
        there = quote(request.path[:-1]).encode() + (b"?" + request.query if request.query else b"")
        if request.method != "GET":
            return HttpResponse(307, b"", ((b"location", there),))
        body = b'<a href="%s">Moved Permanently</a>.\n\n' % escape(there.decode("latin-1")).encode("latin-1")
        return HttpResponse(301, body, ((b"location", there), (b"content-type", b"text/html; charset=utf-8")))

    def _route(self, method: str, rest: list[str]) -> LmstfyRoute | None:
        shape = ("job", ":id") if len(rest) == 2 and rest[0] == "job" and rest[1] else tuple(rest)
        return self._routes.get((method, shape))

    async def _limited(
        self, route: LmstfyRoute, token: AccessToken, request: HttpRequest, namespace: str, queue: str
    ) -> HttpResponse:
        reads = bool(route.reads)
        if not self._limits.take(token, reads=reads):
            action = "consume" if reads else "produce"
            return answer(429, {"msg": f"token({token.id}) {action} reach the limit rate, please retry later"})
        status = 0
        try:
            response = await route.carry(request, namespace, queue)
            status = response.status
            return response
        finally:
            if status != (200 if reads else 201):
                self._limits.give_back(token, reads=reads)

    def _secret(self, request: HttpRequest) -> str:
        """The token that a request shows, without its pool; empty: none."""
        shown = b""
        for name, value in request.headers:
            if name == b"x-token":
                shown = value
                break
        text = shown.decode("latin-1") or (
            QueryValues(request.query).text("token") if b"token=" in request.query else ""
        )
        return self._without_pool(text)

    def _without_pool(self, text: str) -> str:
        pool, colon, secret = text.partition(":")
        if not colon:
            return text
        if pool != POOL:
            raise RefusalError(404, "pool not found")
        return secret

    def _token(self, secret: str, namespace: str) -> AccessToken:
        if not secret:
            raise RefusalError(401, "token not found")
        identity = self._access.identify(secret)
        token = None if identity is None else identity.token_for(namespace)
        if token is None:
            raise RefusalError(401, "invalid token")
        return token

    def _find_token(self, shown: bytes, namespace: str) -> AccessToken | None:
        """As :meth:`_secret` and :meth:`_token`; None: they refuse it."""
        tokens, known, of, token = self._last_found
        if tokens is self._access.tokens and of == namespace and hmac.compare_digest(known, shown):
            return token
        identity = self._access.identify(shown.decode("latin-1")) if shown and b":" not in shown else None
        token = None if identity is None else identity.token_for(namespace)
        if token is not None:
            self._last_found = self._access.tokens, shown, namespace, token
        return token

    async def _delete(self, request: HttpRequest, namespace: str, queue: str, job: str) -> HttpResponse:
        """Acknowledge a job, or take it back; always as if it had been there."""
        await self._acknowledging.discard(topic_of(namespace, queue), job)
        return NO_CONTENT


def _check_names(namespace: str, queue: str, *, several: bool) -> None:
    if not several and (len(namespace) > NAME_CHARS_MAX or len(queue) > NAME_CHARS_MAX):
        raise RefusalError(400, "namespace or queue name too long")
    if not NAME.fullmatch(namespace):
        raise RefusalError(400, "namespace name contains forbidden characters")
    if not (_NAMES if several else NAME).fullmatch(queue) or (queue.startswith("_") and not several):
        raise RefusalError(400, "queue name contains forbidden characters")
