"""Logging in with a token, and out again."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tarry.fronts.http.access import AccessRefusal
from tarry.fronts.http.console.guard import LOGIN, cookie_of
from tarry.fronts.http.console.page import Console, field


async def show(console: Console, request: Request) -> Response:
    """Return the login form, or a redirect if the visitor is let in already."""
    if not console.access.asks or request.state.session.secret is not None:
        return RedirectResponse("/", 303)
    return _form(console, request, 200, request.query_params.get("next", "/"), None)


async def log_in(console: Console, request: Request) -> Response:
    """Begin another session for a visitor who shows a token; the former name is worth nothing then."""
    secret, after = field(request, "secret").strip(), field(request, "next")
    now_ms = console.now_ms
    # Before guesses are counted: others behind the same address must not be able to keep out who has a token.
    admitted = console.access.owner_of(secret, console.guesses.peer_of(request))
    if isinstance(admitted, AccessRefusal):
        return _refused(console, request, after, admitted)
    console.sessions.end(request.state.session)
    session = console.sessions.begin(now_ms, secret)
    # A path of this console only: never another site.
    is_ours = after.startswith("/") and not after.startswith("//") and "\\" not in after
    response = RedirectResponse(after if is_ours else "/", 303)
    by_tls = request.url.scheme == "https"
    response.set_cookie(
        cookie_of(request.url.scheme), session.id, path="/", httponly=True, samesite="strict", secure=by_tls
    )
    return response


def _refused(console: Console, request: Request, after: str, refusal: AccessRefusal) -> Response:
    peer, now_ms = console.guesses.peer_of(request), console.now_ms
    if (wait_ms := console.guesses.wait_ms(peer, now_ms)) > 0:
        wait_s = -(-wait_ms // 1000)
        answer = _form(console, request, 429, after, f"Too many tokens were wrong. Try again in {wait_s} seconds.")
        answer.headers["retry-after"] = str(wait_s)
        return answer
    console.guesses.note(peer, now_ms)
    is_narrow = refusal.status == 403
    text = "This token is for one namespace; the console needs one for *." if is_narrow else "No such token."
    return _form(console, request, 403, after, text)


async def log_out(console: Console, request: Request) -> Response:
    """End the session."""
    console.sessions.end(request.state.session)
    return RedirectResponse(LOGIN, 303)


def _form(console: Console, request: Request, status: int, after: str, error: str | None) -> Response:
    values = {"next": after, "error": error, "of_identity": console.access.knows_identities}
    return console.render(request, "login.html.j2", status, title="Log in", **values)
