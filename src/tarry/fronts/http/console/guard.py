"""Checks before every page: security headers, access, and the origin and token of forms.

Where no token is asked for, the console trusts this machine (:meth:`Access.admit`). Else a browser logs in, by the
token of an identity; without identities, by an access token for everything. A request that changes something needs, in
all cases, an origin that is this front's own and the token of its session.

A browser sends no cookie of ``SameSite=Strict`` with a link of another site. So who comes by one may have a session,
which another cookie would end: it gets no cookie, and a page that goes on by itself, as a page of this site.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from tarry.base.clock import Clock
from tarry.fronts.http.access import Access, peer_of
from tarry.fronts.http.app import App, Receive, Scope, Send
from tarry.fronts.http.console.cookies import SessionCookie
from tarry.fronts.http.console.sessions import VisitorSession, VisitorSessions
from tarry.fronts.http.foreign import SAFE_METHODS, AccessRefusal, foreign_page
from tarry.identity.principal import NOBODY, Principal

HSTS = (b"strict-transport-security", b"max-age=31536000")
"""By TLS: browsers come by TLS alone from then on (RFC 6797). A proxy with TLS says it by itself."""
FORM_TOKEN = "form_token"
LOGIN = "/console/login"
AGAIN = "again"
"""In the query of the login: the browser has gone on to here. It does so once, and in no circles."""
STATIC = "/static/"
FORM_BYTES_MAX = 8 << 20
"""A form holds one message at most, and names of those that were chosen."""
FORM_FIELDS_MAX = 2000

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not "no-referrer": browsers would send forms without their origin.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


GoOn = Callable[[Request, str, bool], Response]
"""Makes the page that goes on with an address, True: by itself, False: by a click."""


class Guard:
    """An ASGI application in front of another.

    ``scope["state"]`` gets the ``session``, the ``principal`` and, of a POST, its ``form``.
    """

    def __init__(
        self, app: App, access: Access, sessions: VisitorSessions, cookie: SessionCookie, clock: Clock, go_on: GoOn
    ) -> None:
        self._app = app
        self._access = access
        self._sessions = sessions
        self._cookie = cookie
        self._clock = clock
        self._go_on = go_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_static = scope["path"].startswith(STATIC)
        new: list[VisitorSession] = []

        request = Request(scope, receive)

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                cookies = ((b"set-cookie", self._cookie.text(request, each.id).encode()) for each in new)
                own = _headers(is_static, scope["scheme"])
                message["headers"] = [*message["headers"], *HEADERS, *own, *cookies]
            await send(message)

        refusal = None if is_static else await self._check(request, new)
        await (refusal or self._app)(scope, receive, send_guarded)

    async def _check(self, request: Request, new: list[VisitorSession]) -> Response | None:
        """Return an answer instead of the page; None: the request may pass."""
        now_ms = self._clock.now_ms()
        admitted = None if self._access.asks else self._access.admit(request.scope)
        if isinstance(admitted, AccessRefusal):
            return PlainTextResponse(admitted.text, admitted.status)
        session = self._sessions.find(self._cookie.find(request), now_ms)
        if admitted is None and session is not None and (admitted := self._let_in(session, request)) is None:
            self._sessions.end(session)
            session = None
        request.state.principal = admitted or NOBODY
        if session is None:
            answer = self._begin(request, now_ms, new, is_in=admitted is not None)
            if answer is not None:
                return answer
        else:
            request.state.session = session
        return None if request.method in SAFE_METHODS else await self._check_form(request, request.state.session)

    def _begin(self, request: Request, now_ms: int, new: list[VisitorSession], *, is_in: bool) -> Response | None:
        """Begin the visit of a browser that shows no session; return an answer instead of the page, or None."""
        is_foreign = foreign_page(dict(request.scope["headers"])) is not None
        is_of_provider = request.url.path.startswith(f"{LOGIN}/")
        cookie = self._cookie.find(request)
        # Where the cookie may have been kept back, there may be a session, which has to stay.
        may_set = not is_foreign and not is_of_provider
        session = self._sessions.begin(now_ms) if is_in and may_set else self._sessions.visit(cookie, now_ms)
        request.state.session = session
        if is_of_provider:
            return None
        if is_foreign and request.headers.get("sec-fetch-mode") == "navigate" and _is_page(request):
            return self._go_on(request, _login_address(request, again=True), not _goes_on(request))
        if not is_in and _may_be_foreign(request, cookie):
            return self._go_on(request, _login_address(request, again=True), True)
        if not is_in and request.url.path != LOGIN:
            return _to_login(request)
        if may_set and session.id != cookie:
            new.append(session)
        return None

    def _let_in(self, session: VisitorSession, request: Request) -> Principal | None:
        """Return who has logged in; None: nobody, or the token is not taken any more."""
        if session.secret is None:
            return None
        peer = peer_of(request.scope)
        if session.login is None:
            admitted = self._access.owner_of(session.secret, peer)
        else:
            admitted = self._access.owner_of_login(session.secret, session.login, peer)
        return None if isinstance(admitted, AccessRefusal) else admitted

    async def _check_form(self, request: Request, session: VisitorSession) -> Response | None:
        if foreign_page(dict(request.scope["headers"])) is not None:
            return PlainTextResponse("the form comes from another site; allowed: pages of this console", 403)
        form = await _read_form(request)
        if form is None:
            return PlainTextResponse(f"the form has too much in it; allowed: {FORM_BYTES_MAX} bytes of text", 413)
        if not session.allows(form.get(FORM_TOKEN, [""])[0]):
            url = self._cookie.url
            where = f" The console is at {url}." if url is not None else ""
            return PlainTextResponse(
                "The form is from before the console was restarted, or cookies are off. Nothing was changed: go back, "
                f"load the page again, and try again.{where}",
                403,
            )
        request.state.form = form
        return None


def _headers(is_static: bool, scheme: str) -> list[tuple[bytes, bytes]]:
    # A file's address has the hash of its content.
    kept = b"public, max-age=31536000, immutable" if is_static else b"no-store"
    return [(b"cache-control", kept), *([HSTS] if scheme == "https" else [])]


def _is_page(request: Request) -> bool:
    return request.method == "GET" and not _is_part(request)


def _is_part(request: Request) -> bool:
    return "hx-request" in request.headers or request.url.path.startswith("/console/data/")


def _goes_on(request: Request) -> bool:
    return request.url.path == LOGIN and AGAIN in request.query_params


def _may_be_foreign(request: Request, cookie: str | None) -> bool:
    """Return whether another site may have begun this, of which the browser says nothing.

    Browsers say it by TLS, and on this machine; not by http to another one.
    """
    says_nothing = cookie is None and "sec-fetch-site" not in request.headers and not _goes_on(request)
    return says_nothing and _is_page(request) and "text/html" in request.headers.get("accept", "")


def _to_login(request: Request) -> Response:
    if _is_part(request):
        # An open page whose session has ended is loaded anew, and then gets the login.
        return PlainTextResponse("log in", 401, headers={"HX-Refresh": "true"})
    return RedirectResponse(_login_address(request), 303)


def _login_address(request: Request, *, again: bool = False) -> str:
    """Return the address of the login, which leads on to the page that is asked for."""
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.url.path == LOGIN:
        target = request.query_params.get("next", "/")
    query = {"next": target} if request.method in SAFE_METHODS and target != "/" else {}
    query |= {AGAIN: "1"} if again else {}
    return f"{LOGIN}?{urlencode(query)}" if query else LOGIN


async def _read_form(request: Request) -> Mapping[str, list[str]] | None:
    """Read the fields of a form; None: it is too large, or not text."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            return None
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX)
    except ValueError:
        return None
    form: dict[str, list[str]] = {}
    for name, value in pairs:
        form.setdefault(name, []).append(value)
    return form
