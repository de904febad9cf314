"""Checks before every page: security headers, access, and the origin and token of forms.

Where no token is asked for, the console trusts this machine (:meth:`Access.admit`). Else a browser logs in, by the
token of an identity; without identities, by an access token for everything. A request that changes something needs, in
all cases, an origin that is this front's own and the token of its session.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from tarry.base.clock import Clock
from tarry.fronts.http.access import SAFE_METHODS, Access, AccessRefusal, foreign_page, peer_of
from tarry.fronts.http.app import App, Receive, Scope, Send
from tarry.fronts.http.console.sessions import VisitorSession, VisitorSessions
from tarry.identity.principal import NOBODY, Principal

COOKIE = "tarry_console"
HSTS = (b"strict-transport-security", b"max-age=31536000")
"""By TLS: browsers come by TLS alone from then on (RFC 6797)."""


def cookie_of(scheme: str) -> str:
    """Return the name of the cookie; by TLS one that no other host can set (RFC 6265bis, section 4.1.3.2)."""
    return f"__Host-{COOKIE}" if scheme == "https" else COOKIE


def session_cookie(id: str, scheme: str) -> str:
    """Return the header's value that sets the cookie of a session."""
    return f"{cookie_of(scheme)}={id}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if scheme == 'https' else ''}"


FORM_TOKEN = "form_token"
LOGIN = "/console/login"
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


class Guard:
    """An ASGI application in front of another.

    ``scope["state"]`` gets the ``session``, the ``principal`` and, of a POST, its ``form``.
    """

    def __init__(self, app: App, access: Access, sessions: VisitorSessions, clock: Clock) -> None:
        self._app = app
        self._access = access
        self._sessions = sessions
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_static = scope["path"].startswith(STATIC)
        new: list[VisitorSession] = []

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS, *_headers(is_static, new, scope["scheme"])]
            await send(message)

        request = Request(scope, receive)
        refusal = None if is_static else await self._check(request, new)
        await (refusal or self._app)(scope, receive, send_guarded)

    async def _check(self, request: Request, new: list[VisitorSession]) -> Response | None:
        """Return an answer instead of the page; None: the request may pass."""
        now_ms = self._clock.now_ms()
        admitted = None if self._access.asks else self._access.admit(request.scope)
        if isinstance(admitted, AccessRefusal):
            return PlainTextResponse(admitted.text, admitted.status)
        name = cookie_of(request.url.scheme)
        session = self._sessions.find(request.cookies.get(name), now_ms)
        if admitted is not None:
            if session is None:
                session = self._sessions.begin(now_ms)
                new.append(session)
        elif session is None or (admitted := self._let_in(session, request)) is None:
            if session is not None:
                self._sessions.end(session)
            is_of_provider = request.url.path.startswith(f"{LOGIN}/")
            if request.url.path != LOGIN and not is_of_provider:
                return _to_login(request)
            session = self._sessions.visit(request.cookies.get(name), now_ms)
            # A provider's way back comes without cookies of one site: there may be a session, which has to stay.
            if session.id != request.cookies.get(name) and not is_of_provider:
                new.append(session)
        request.state.principal = admitted or NOBODY
        request.state.session = session
        return None if request.method in SAFE_METHODS else await self._check_form(request, session)

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
            return PlainTextResponse(
                "The form is from before the console was restarted, or cookies are off. Nothing was changed: go back, "
                "load the page again, and try again.",
                403,
            )
        request.state.form = form
        return None


def _headers(is_static: bool, new: list[VisitorSession], scheme: str) -> list[tuple[bytes, bytes]]:
    # A file's address has the hash of its content.
    kept = b"public, max-age=31536000, immutable" if is_static else b"no-store"
    cookies = [session_cookie(each.id, scheme).encode() for each in new]
    own = [HSTS] if scheme == "https" else []
    return [(b"cache-control", kept), *own, *((b"set-cookie", cookie) for cookie in cookies)]


def _to_login(request: Request) -> Response:
    if request.headers.get("hx-request") or request.url.path.startswith("/console/data/"):
        # An open page whose session has ended is loaded anew, and then gets the login.
        return PlainTextResponse("log in", 401, headers={"HX-Refresh": "true"})
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    after = "" if request.method not in SAFE_METHODS or target == "/" else f"?next={quote(target, safe='')}"
    return RedirectResponse(LOGIN + after, 303)


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
