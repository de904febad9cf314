"""lmstfy's admin API, on a port of its own: tokens and their limits, metrics, queues.

A token is kept as a hash, so a list has ids in the place of tokens; wherever a path names a token, the id will do, too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from tarry.api.access import SECRET_CHARS_MIN, AccessToken, token_id
from tarry.api.audit import BY_A_FRONT
from tarry.api.needs import Right
from tarry.api.operation import Operation
from tarry.api.operations import CreateToken, DeleteToken, LimitToken, ListGroups, ListTokens
from tarry.base.errors import InvalidArgumentError
from tarry.base.version import VERSION
from tarry.fronts.http.access import Access
from tarry.fronts.http.exchange import BodyTooLargeError, HttpRequest, HttpResponse, Work
from tarry.fronts.http.foreign import AccessRefusal
from tarry.fronts.http.lmstfy.access_log import AccessLog
from tarry.fronts.http.lmstfy.answering import Answering
from tarry.fronts.http.lmstfy.answers import NO_CONTENT, RefusalError, answer, indented
from tarry.fronts.http.lmstfy.names import GROUP, NAME, NAME_CHARS_MAX, queue_of
from tarry.fronts.http.lmstfy.request import LmstfyRequest
from tarry.fronts.http.lmstfy.routes import POOL
from tarry.fronts.http.services import HttpServices
from tarry.fronts.metrics.collector import BrokerCollector
from tarry.identity.principal import Principal

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 64 << 10
FORM = b"application/x-www-form-urlencoded"
NOT_FOUND = HttpResponse(404, b"404 page not found", ((b"content-type", b"text/plain"),))
MS = 1000

Carry: TypeAlias = Callable[..., Awaitable[HttpResponse]]

R = TypeVar("R")


class Admin:
    """A :data:`tarry.fronts.http.exchange.Handler`. On the loop's thread."""

    def __init__(self, services: HttpServices, access: Access, access_log: AccessLog) -> None:
        self._services = services
        self._access = access
        self._log = access_log
        self._answering = Answering(access_log)
        self._metrics = CollectorRegistry(auto_describe=False)
        self._metrics.register(BrokerCollector(services.broker))
        ProcessCollector(registry=self._metrics)
        self._routes: dict[tuple[str, tuple[str, ...]], Carry] = {
            ("GET", ("metrics",)): self._get_metrics,
            ("GET", ("version",)): self._version,
            ("GET", ("info",)): self._info,
            ("GET", ("pools",)): self._pools,
            ("GET", ("limits",)): self._list_limits,
            ("GET", ("accesslog",)): self._access_log,
            ("POST", ("accesslog",)): self._set_access_log,
            ("GET", ("token", "*")): self._list,
            ("POST", ("token", "*")): self._create,
            ("DELETE", ("token", "*", "*")): self._delete,
            ("GET", ("token", "*", "*", "limit")): self._get_limit,
            ("POST", ("token", "*", "*", "limit")): self._add_limit,
            ("PUT", ("token", "*", "*", "limit")): self._set_limit,
            ("DELETE", ("token", "*", "*", "limit")): self._delete_limit,
        }

    def __call__(self, request: HttpRequest) -> Work:
        return LmstfyRequest(request, self._answering).wait_for(self._answer(request))

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if (refused := self._refusal_of(request)) is not None:
            return refused
        parts = request.path.strip("/").split("/")
        shape = (parts[0], *("*" for _ in parts[1:3]), *parts[3:])
        carry = self._routes.get((request.method, shape))
        return NOT_FOUND if carry is None else await carry(request, *parts[1:3])

    def _refusal_of(self, request: HttpRequest) -> HttpResponse | None:
        """Return the answer to whoever may not do everything; None: it may."""
        # Without the query, whose "token" is one that is made.
        admitted = self._admit(request)
        if isinstance(admitted, Principal) and admitted.is_anonymous:
            admitted = AccessRefusal(401, "no token was shown; allowed: one of an administrator", "unauthenticated")
        if isinstance(admitted, AccessRefusal):
            headers = ((b"www-authenticate", b'Basic realm="tarry"'),) if admitted.status == 401 else ()
            return HttpResponse(admitted.status, answer(admitted.status, {"error": admitted.text}).body, headers)
        if not admitted.rights.allow(Right.ADMIN):
            admitted.note_refusal(Right.ADMIN, None, None, asked=admitted.asks(request.host, "http"))
            return answer(403, {"error": f"{admitted.name} has not the right admin; see tarry whoami"})
        return None

    def _admit(self, request: HttpRequest) -> Principal | AccessRefusal:
        scope = {"method": request.method, "headers": request.headers, "query_string": b"", "client": (request.host, 0)}
        return self._access.admit({**scope, "state": {"principal": request.principal, "trusted": request.trusted}})

    async def _call(self, operation: Operation[R], request: HttpRequest) -> R:
        """Carry an operation out for who may do everything; the audit log has its name."""
        admitted = self._admit(request)
        asked = BY_A_FRONT if isinstance(admitted, AccessRefusal) else admitted.asks(request.host, "http")
        return await self._services.call_by(operation, asked)

    # -- what there is -----------------------------------------------------------------------------------------------

    async def _get_metrics(self, request: HttpRequest) -> HttpResponse:
        text = await self._services.run(generate_latest, self._metrics)
        return HttpResponse(200, text, ((b"content-type", CONTENT_TYPE_LATEST.encode()),))

    async def _version(self, request: HttpRequest) -> HttpResponse:
        return indented(200, {"version": f"tarry {VERSION}", "build_commit": "unknown", "build_date": "unknown"})

    async def _info(self, request: HttpRequest) -> HttpResponse:
        """Return the queues by namespace."""
        found: dict[str, list[str]] = {}
        for group in await self._services.call(ListGroups()):
            names = queue_of(group.topic) if group.group == GROUP else None
            if names is not None:
                found.setdefault(names[0], []).append(names[1])
        shown = json.dumps(found, indent=4, sort_keys=True) + "\n"
        return HttpResponse(200, shown.encode(), ((b"content-type", b"text/plain; charset=utf-8"),))

    async def _pools(self, request: HttpRequest) -> HttpResponse:
        return indented(200, [POOL])

    async def _access_log(self, request: HttpRequest) -> HttpResponse:
        return answer(200, {"status": self._log.status})

    async def _set_access_log(self, request: HttpRequest) -> HttpResponse:
        wanted = _query(request).get("status", "")
        if wanted not in ("enable", "disable"):
            raise RefusalError(400, "invalid status")
        self._log.switch(wanted == "enable")
        return await self._access_log(request)

    # -- tokens ------------------------------------------------------------------------------------------------------

    async def _list(self, request: HttpRequest, namespace: str) -> HttpResponse:
        _check_pool(_query(request).get("pool", ""))
        tokens = await self._services.call(ListTokens(namespace))
        return indented(200, {"tokens": {token.id: token.description for token in tokens}})

    async def _create(self, request: HttpRequest, namespace: str) -> HttpResponse:
        query = _query(request)
        form = {**query, **await _form(request)}
        description, secret = form.get("description", ""), form.get("token", "")
        if not description:
            raise RefusalError(400, "invalid description")
        if secret and len(secret) < SECRET_CHARS_MIN:
            raise RefusalError(400, "the user token was too short")
        if len(namespace) > NAME_CHARS_MAX:
            raise RefusalError(400, "the namespace name was too long")
        if not NAME.fullmatch(namespace):
            raise RefusalError(400, "namespace name contains forbidden characters")
        pool, colon, rest = secret.partition(":")
        _check_pool(pool if colon else query.get("pool", ""))
        secret = rest if colon else secret
        if secret and any(token.id == token_id(namespace, secret) for token in self._services.broker.access_tokens):
            raise RefusalError(400, "the token has already existed")
        created = await self._call(CreateToken(namespace, description, secret or None), request)
        return indented(201, {"token": created.secret})

    async def _delete(self, request: HttpRequest, namespace: str, named: str) -> HttpResponse:
        token = self._find(namespace, named)
        if token is not None:
            await self._call(DeleteToken(token.id), request)
        return NO_CONTENT

    # -- limits ------------------------------------------------------------------------------------------------------

    async def _list_limits(self, request: HttpRequest) -> HttpResponse:
        tokens = self._services.broker.access_tokens
        shown = [
            {"namespace": t.namespace, "token": t.id, "limiter": limiter} for t in tokens if (limiter := _limiter(t))
        ]
        return answer(200, shown)

    async def _get_limit(self, request: HttpRequest, namespace: str, named: str) -> HttpResponse:
        token = self._find(namespace, named)
        limiter = None if token is None else _limiter(token)
        return answer(404 if limiter is None else 200, limiter)

    async def _add_limit(self, request: HttpRequest, namespace: str, named: str) -> HttpResponse:
        token, limiter = self._find(namespace, named), await _limiter_of(request)
        if token is not None and _limiter(token) is not None:
            raise RefusalError(500, f"throttler token({named}) has already exists")
        return await self._limit(request, token, named, limiter, 201)

    async def _set_limit(self, request: HttpRequest, namespace: str, named: str) -> HttpResponse:
        return await self._limit(request, self._find(namespace, named), named, await _limiter_of(request), 200)

    async def _limit(
        self, request: HttpRequest, token: AccessToken | None, named: str, limiter: dict[str, int], status: int
    ) -> HttpResponse:
        if token is None:
            raise RefusalError(404, f"there is no token {named}; allowed: one of the namespace, or its id")
        try:
            asked = LimitToken(token.id, limiter["read"], limiter["write"], limiter["interval"] * MS)
            await self._call(asked, request)
        except InvalidArgumentError as error:
            raise RefusalError(500, str(error)) from error
        return answer(status, {"limiter": limiter})

    async def _delete_limit(self, request: HttpRequest, namespace: str, named: str) -> HttpResponse:
        token = self._find(namespace, named)
        if token is not None:
            await self._call(LimitToken(token.id), request)
        return answer(200, {"msg": "success"})

    def _find(self, namespace: str, named: str) -> AccessToken | None:
        """Return a namespace's token with this secret, maybe with its pool before it, or with this id."""
        pool, colon, secret = named.partition(":")
        if colon:
            _check_pool(pool)
        wanted = {named, token_id(namespace, secret if colon else named)}
        tokens = self._services.broker.access_tokens
        return next((token for token in tokens if token.namespace == namespace and token.id in wanted), None)


def _check_pool(pool: str) -> None:
    if pool not in ("", POOL):
        raise RefusalError(400, "the pool was not exists")


def _query(request: HttpRequest) -> dict[str, str]:
    return dict(reversed(parse_qsl(request.query.decode("latin-1"), keep_blank_values=True)))


async def _form(request: HttpRequest) -> dict[str, str]:
    if not dict(request.headers).get(b"content-type", b"").startswith(FORM):
        return {}
    return dict(reversed(parse_qsl((await _body(request)).decode("latin-1"), keep_blank_values=True)))


async def _body(request: HttpRequest) -> bytes:
    try:
        return await request.read(BODY_BYTES_MAX)
    except BodyTooLargeError:
        raise RefusalError(413, "body too large") from None


async def _limiter_of(request: HttpRequest) -> dict[str, int]:
    try:
        given: Any = json.loads(await _body(request))
        limiter = {name: given.get(name, 0) for name in ("read", "write", "interval")}
    except (ValueError, AttributeError, RecursionError):
        raise RefusalError(400, "no JSON object") from None
    if not all(type(value) is int and abs(value) < 1 << 63 for value in limiter.values()):
        raise RefusalError(400, "read, write and interval are whole numbers")
    if not limiter["read"] and not limiter["write"]:
        response = answer(400, {"limiter": limiter})
        raise _LimiterError(response)
    if not limiter["interval"]:
        raise RefusalError(400, "interval should be > 0")
    return limiter


class _LimiterError(RefusalError):
    def __init__(self, response: HttpResponse) -> None:
        super().__init__(response.status, "")
        self.response = response


def _limiter(token: AccessToken) -> dict[str, int] | None:
    if not token.reads_max and not token.writes_max:
        return None
    return {"read": token.reads_max, "write": token.writes_max, "interval": token.interval_ms // MS}
