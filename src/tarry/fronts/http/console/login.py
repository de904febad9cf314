"""Logging in with a token for everything, and out again."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tarry.fronts.http.console.guard import COOKIE, LOGIN
from tarry.fronts.http.console.guesses import peer_of
from tarry.fronts.http.console.page import Console, field


async def show(console: Console, request: Request) -> Response:
    """Return the login form, or a redirect if the visitor is let in already."""
    if console.access.mode == "open" or request.state.session.secret is not None:
        return RedirectResponse("/", 303)
    return console.render(
        request, "login.html.j2", title="Log in", next=request.query_params.get("next", "/"), error=None
    )


async def log_in(console: Console, request: Request) -> Response:
    """Begin another session for a visitor who shows a token; the former name is worth nothing then."""
    secret, after = field(request, "secret").strip(), field(request, "next")
    peer, now_ms = peer_of(request), console.now_ms
    if (wait_ms := console.guesses.wait_ms(peer, now_ms)) > 0:
        wait_s = -(-wait_ms // 1000)
        text = f"Too many tokens were wrong. Try again in {wait_s} seconds."
        answer = console.render(request, "login.html.j2", 429, title="Log in", next=after, error=text)
        answer.headers["retry-after"] = str(wait_s)
        return answer
    identity = console.access.identify(secret) if secret else None
    if identity is None or not identity.for_everything:
        console.guesses.note(peer, now_ms)
        text = "No such token." if identity is None else "This token is for one namespace; the console needs one for *."
        return console.render(request, "login.html.j2", 403, title="Log in", next=after, error=text)
    console.sessions.end(request.state.session)
    session = console.sessions.begin(now_ms, secret)
    # A path of this console only: never another site.
    is_ours = after.startswith("/") and not after.startswith("//") and "\\" not in after
    response = RedirectResponse(after if is_ours else "/", 303)
    by_tls = request.url.scheme == "https"
    response.set_cookie(COOKIE, session.id, path="/", httponly=True, samesite="strict", secure=by_tls)
    return response


async def log_out(console: Console, request: Request) -> Response:
    """End the session."""
    console.sessions.end(request.state.session)
    return RedirectResponse(LOGIN, 303)
