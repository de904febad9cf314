"""Logging in with a token, and out again."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tarry.fronts.http.console.guard import LOGIN
from tarry.fronts.http.console.page import Console, field, link, own_path
from tarry.fronts.http.foreign import AccessRefusal


async def show(console: Console, request: Request) -> Response:
    """Return the login form, or a redirect to where it leads if the visitor is let in already."""
    after = request.query_params.get("next", "/")
    if not console.access.asks or request.state.session.secret is not None:
        return RedirectResponse(own_path(after), 303)
    return login_page(console, request, 200, after, None)


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
    response = RedirectResponse(own_path(after), 303)  # never another site
    console.cookie.set(response, request, session.id)
    return response


def _refused(console: Console, request: Request, after: str, refusal: AccessRefusal) -> Response:
    peer, now_ms = console.guesses.peer_of(request), console.now_ms
    if (wait_ms := console.guesses.wait_ms(peer, now_ms)) > 0:
        wait_s = -(-wait_ms // 1000)
        answer = login_page(console, request, 429, after, f"Too many tokens were wrong. Try again in {wait_s} seconds.")
        answer.headers["retry-after"] = str(wait_s)
        return answer
    console.guesses.note(peer, now_ms)
    is_narrow = refusal.status == 403
    text = "This token is for one namespace; the console needs one for *." if is_narrow else "No such token."
    return login_page(console, request, 403, after, text)


async def log_out(console: Console, request: Request) -> Response:
    """End the session.

    A browser that keeps pages to go back to drops them with the cookie.
    """
    console.sessions.end(request.state.session)
    response = RedirectResponse(LOGIN, 303)
    console.cookie.remove(response, request)
    return response


def login_page(
    console: Console, request: Request, status: int, after: str, error: str | None, *, has_form: bool = True
) -> Response:
    """Return the page to log in, which goes on with the page ``after``.

    ``has_form``: False where the browser has not sent its cookie, without which no form is taken.
    """
    is_of_identity = console.access.knows_identities
    further = own_path(after)
    asked = "" if further == "/" else further
    providers = [(name, link(at, next=asked)) for name, at in console.providers.beginnings]
    values = {
        "next": after,
        "error": error,
        "of_identity": is_of_identity,
        "has_form": has_form,
        "providers": providers if is_of_identity else [],
        "with_token": link(LOGIN, next=asked),
    }
    title = "Log in" if error is None else "Not logged in"
    return console.render(request, "login.html.j2", status, title=title, **values)


def go_on_page(
    console: Console,
    request: Request,
    further: str,
    title: str = "Opening the console",
    name: str | None = None,
    *,
    by_itself: bool = True,
) -> Response:
    """Return the page that goes on with an address of the console, as of its own site: with all cookies.

    ``name``: who has just logged in; None: a link of another site leads here. ``by_itself``: False, by a click.
    """
    return console.render(request, "go_on.html.j2", title=title, name=name, next=further, by_itself=by_itself)
