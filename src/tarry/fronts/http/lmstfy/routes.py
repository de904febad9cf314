"""lmstfy's routes: which part carries out what, after the checks that lmstfy makes, in its order."""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable
from functools import partial
from html import escape
from urllib.parse import quote

from tarry.api.access import AccessToken
from tarry.api.needs import OF_TOPICS
from tarry.base.bounded_cache import BoundedCache
from tarry.base.errors import TarryError
from tarry.fronts.http.access import Access, bearer_of, may_have_secret, secret_in, shows_secret
from tarry.fronts.http.exchange import Handler, Headers, HttpRequest, HttpResponse, Work
from tarry.fronts.http.lmstfy.access_log import AccessLog
from tarry.fronts.http.lmstfy.answering import Answering
from tarry.fronts.http.lmstfy.answers import NO_CONTENT, QueryValues, RefusalError, answer
from tarry.fronts.http.lmstfy.limits import TokenLimits
from tarry.fronts.http.lmstfy.names import GROUP, NAME, NAME_CHARS_MAX, topic_of
from tarry.fronts.http.lmstfy.queues import JobQueues
from tarry.fronts.http.lmstfy.receiving import JobReceiver
from tarry.fronts.http.lmstfy.request import LmstfyRequest, LmstfyRoute, Target
from tarry.fronts.http.lmstfy.sending import Publishing
from tarry.fronts.http.lmstfy.settling import Acknowledging
from tarry.fronts.http.read_your_writes import Landing
from tarry.fronts.http.services import HttpServices
from tarry.identity.access_tokens import TokenOwner
from tarry.identity.principal import Principal

PRODUCE, CONSUME, LOOK, BROWSE, MANAGE = OF_TOPICS
PREFIX = "/api/"
POOL = "default"
TARGETS_MAX = 4096
"""The number of targets that are remembered."""

_NAMES = re.compile("[-_,A-Za-z0-9]+")
NO_ROUTE = answer(404, {"error": "api not found"})


class _ElsewhereError(Exception):
    """The request is passed on."""


class Lmstfy:
    """A :data:`tarry.fronts.http.exchange.Handler`. On the loop's thread."""

    def __init__(
        self,
        services: HttpServices,
        access: Access,
        access_log: AccessLog,
        *,
        elsewhere_s: float = 0.0,
        pass_on: Handler | None = None,
    ) -> None:
        """Make the API.

        Args:
            services: the broker's.
            access: the tokens.
            access_log: notes requests.
            elsewhere_s: see :class:`Landing`.
            pass_on: gets the requests whose token is not known here, or has limits, which are counted elsewhere.
        """
        self._access = access
        self._pass_on = pass_on
        self._limits = TokenLimits(services.loop)
        self._last_found: tuple[object, bytes, str, TokenOwner | None] = (None, b"", "", None)
        """The broker's tokens, and the last secret, namespace and owner: the next request often has them."""
        self._targets: BoundedCache[tuple[str, bytes], Target] = BoundedCache(TARGETS_MAX)
        self._answering = Answering(access_log)
        self._acknowledging = Acknowledging(services)
        landing = Landing(services, GROUP, elsewhere_s)
        publishing = Publishing(services, self._acknowledging, landing)
        consuming = JobReceiver(services, self._acknowledging, landing)
        queues = JobQueues(services, landing)
        self._routes: dict[tuple[str, tuple[str, ...]], LmstfyRoute] = {
            ("PUT", ()): LmstfyRoute(publishing.publish, (PRODUCE,), reads=False),
            ("PUT", ("bulk",)): LmstfyRoute(partial(publishing.publish, several=True), (PRODUCE,), reads=False),
            ("PUT", ("job", ":id")): LmstfyRoute(publishing.republish, (PRODUCE, CONSUME)),
            ("GET", ()): LmstfyRoute(consuming.consume, (CONSUME,), reads=True, several=True),
            ("GET", ("peek",)): LmstfyRoute(queues.peek, (BROWSE,)),
            ("GET", ("job", ":id")): LmstfyRoute(queues.peek_job, (CONSUME,)),
            ("GET", ("size",)): LmstfyRoute(queues.size, (LOOK,), public=True),
            ("DELETE", ()): LmstfyRoute(queues.destroy, (MANAGE,)),
            ("DELETE", ("job", ":id")): LmstfyRoute(self._delete, (CONSUME,)),
            ("GET", ("deadletter",)): LmstfyRoute(queues.dead_letter, (BROWSE,)),
            ("GET", ("deadletter", "size")): LmstfyRoute(queues.dead_letter_size, (LOOK,), public=True),
            ("PUT", ("deadletter",)): LmstfyRoute(queues.respawn, (MANAGE,)),
            ("DELETE", ("deadletter",)): LmstfyRoute(queues.delete_dead_letters, (MANAGE,)),
        }

    def __call__(self, http: HttpRequest) -> Work | None:
        request = LmstfyRequest(http, self._answering)
        try:
            work = self._begin(request)
        except _ElsewhereError:
            assert self._pass_on is not None
            return self._pass_on(http)
        except Exception as error:  # noqa: BLE001 - it is logged, and the client gets an answer
            request.refuse(error)
            return None
        return None if work is None else request.wait_for(work)

    def _begin(self, request: LmstfyRequest) -> Awaitable[HttpResponse] | None:
        http = request.http
        remembered = self._targets.get((http.method, http.target))
        target = remembered or self._look(http)
        if target is None:
            request.answer(self._without_slash(http))
            return None
        request.target, route = target, target.route
        if route.public and not self._access.knows_identities:
            self._secret(_shown(http.headers), http)
        else:
            self._admit(request)
            http.trusted()
        work = route.carry(request)
        if remembered is None and target.known is not None and not may_have_secret(http.query):
            self._targets.keep((http.method, http.target), target)
        return work

    # -- what is asked for -------------------------------------------------------------------------------------------

    def _look(self, http: HttpRequest) -> Target | None:
        """Return the target of a request's method and path; None: there is none.

        Raises:
            RefusalError: a name is not allowed.
        """
        namespace, *rest = http.path[len(PREFIX) :].split("/")
        route = self._route(http.method, rest[1:]) if rest else None
        if route is None:
            return None
        queue, job = rest[0], rest[2] if rest[1:2] == ["job"] else ""
        if not route.several and (len(namespace) > NAME_CHARS_MAX or len(queue) > NAME_CHARS_MAX):
            raise RefusalError(400, "namespace or queue name too long")
        if not NAME.fullmatch(namespace):
            raise RefusalError(400, "namespace name contains forbidden characters")
        named = _NAMES.fullmatch(queue) if route.several else NAME.fullmatch(queue) and not queue.startswith("_")
        if not named:
            raise RefusalError(400, "queue name contains forbidden characters")
        return Target(route, namespace, queue, topic_of(namespace, queue), job)

    def _without_slash(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the path without its final slash if that has a route, as lmstfy's router does."""
        parts = request.path[len(PREFIX) :].split("/")
        if len(parts) < 3 or parts[-1] or self._route(request.method, parts[2:-1]) is None:
            return NO_ROUTE
        there = quote(request.path[:-1]).encode() + (b"?" + request.query if request.query else b"")
        if request.method != "GET":
            return HttpResponse(307, b"", ((b"location", there),))
        body = b'<a href="%s">Moved Permanently</a>.\n\n' % escape(there.decode("latin-1")).encode("latin-1")
        return HttpResponse(301, body, ((b"location", there), (b"content-type", b"text/html; charset=utf-8")))

    def _route(self, method: str, rest: list[str]) -> LmstfyRoute | None:
        shape = ("job", ":id") if len(rest) == 2 and rest[0] == "job" and rest[1] else tuple(rest)
        return self._routes.get((method, shape))

    # -- who may ask -------------------------------------------------------------------------------------------------

    def _count(self, request: LmstfyRequest, token: AccessToken, *, reads: bool) -> None:
        """Count a request of a token with limits; one that comes to nothing does not count.

        Raises:
            RefusalError: there were too many.
        """
        if self._pass_on is not None:
            raise _ElsewhereError
        if not self._limits.take(token, reads=reads):
            action = "consume" if reads else "produce"
            raise RefusalError(429, f"token({token.id}) {action} reach the limit rate, please retry later", "msg")

        def on_end(status: int) -> None:
            if status != (200 if reads else 201):
                self._limits.give_back(token, reads=reads)

        request.on_end = on_end

    def _admit(self, request: LmstfyRequest) -> None:
        """Let a request in, by the token of its namespace or by the rights of an identity.

        Raises:
            RefusalError, ForbiddenError: it is kept out.
        """
        http, target = request.http, request.target
        shown = _shown(http.headers)
        owner = self._found_before(shown, target.namespace)
        if owner is None:
            secret = self._secret(shown, http)
            if not secret:
                request.principal = self._of_certificate(http)
                _check_rights(request.principal, target, http.host)
                return
            owner = self._access.identify(secret)
            if owner is None or owner.token_for(target.namespace) is None:
                request.principal = self._identity(secret, owner, http.host)
                _check_rights(request.principal, target, http.host)
                return
            if shown:
                self._last_found = self._access.tokens, shown, target.namespace, owner
        token, reads = owner.token_for(target.namespace), target.route.reads
        assert token is not None  # what was found last had one for this namespace
        request.principal = owner.principal
        if reads is not None and (token.reads_max or token.writes_max):
            self._count(request, token, reads=reads)

    def _found_before(self, shown: bytes, namespace: str) -> TokenOwner | None:
        tokens, known, of, owner = self._last_found
        if tokens is not self._access.tokens or of != namespace or not hmac.compare_digest(known, shown):
            return None
        return owner

    def _identity(self, secret: str, owner: TokenOwner | None, host: str) -> Principal:
        """Return the identity whose token a secret is; ``owner``: it is an access token, of other namespaces.

        Raises:
            RefusalError: there is no such identity.
        """
        if owner is None and self._access.knows_identities:
            admitted = self._access.owner_of(secret, host)
            if isinstance(admitted, Principal):
                return admitted
        if self._pass_on is not None:
            raise _ElsewhereError  # it may have been made just now
        if owner is not None or not self._access.knows_identities:  # else it was noted
            self._access.authenticator.note_refusal("not_known", host)
        raise RefusalError(401, "invalid token")

    def _of_certificate(self, http: HttpRequest) -> Principal:
        """Return the identity of a request without a token.

        Raises:
            RefusalError: its connection's certificate names none; or there is no certificate, and it has to show one.
        """
        shown = shows_secret(http.headers) or secret_in(http.query) is not None
        admitted = None if shown else self._access.owner_of_certificate(http.principal, http.headers, http.host)
        if admitted is None and not shown:
            admitted = self._access.anonymous(
                {"method": http.method, "headers": http.headers, "client": (http.host, 0)}
            )
        if isinstance(admitted, Principal):
            return admitted
        if admitted is None:
            self._access.authenticator.note_refusal("not_known" if shown else "none_shown", http.host)
            raise RefusalError(401, "invalid token" if shown else "token not found")
        if self._pass_on is not None:
            raise _ElsewhereError  # it may have been made just now
        raise RefusalError(admitted.status, admitted.text)

    def _secret(self, shown: bytes, http: HttpRequest) -> str:
        """Return the token that a request shows, without its pool; empty: none."""
        text = shown.decode("latin-1")
        if not text and may_have_secret(http.query):
            text = QueryValues(http.query).text("token")
        if not text:
            return bearer_of(http.headers)  # no password, which another site's page may have a browser send
        pool, colon, secret = text.partition(":")
        if not colon:
            return text
        if pool != POOL:
            raise RefusalError(404, "pool not found")
        return secret

    # -- acknowledging -----------------------------------------------------------------------------------------------

    def _delete(self, request: LmstfyRequest) -> Awaitable[HttpResponse] | None:
        """Acknowledge a job, or take it back; always as if it had been there."""
        target = request.target
        held = self._acknowledging.settle(target.topic, target.job, partial(self._on_settled, request))
        return None if held else self._discard(target)

    def _on_settled(self, request: LmstfyRequest, result: bool | TarryError) -> None:
        if isinstance(result, TarryError):
            request.refuse(result)
        elif result:
            request.answer(NO_CONTENT)
        else:
            request.carry_out(self._discard(request.target))  # its lease was over: wherever it is now, it is to go

    async def _discard(self, target: Target) -> HttpResponse:
        await self._acknowledging.discard(target.topic, target.job)
        return NO_CONTENT


def _check_rights(principal: Principal, target: Target, peer: str) -> None:
    """Ask an identity for what a route needs. A queue's jobs are those of its one group.

    Raises:
        ForbiddenError: it has not got it.
    """
    queues = target.queue.split(",") if target.route.several else [target.queue]
    for topic in [topic_of(target.namespace, queue) for queue in queues if queue]:
        for right in target.route.rights:
            principal.check(right, topic, None if right is PRODUCE else GROUP, peer=peer)


def _shown(headers: Headers) -> bytes:
    """Return the token of the first X-Token header; empty: there is none."""
    for name, value in headers:
        if name == b"x-token":
            return value
    return b""
