"""Logging in at a provider: the browser is sent there, comes back with a code, and has a session.

The session is that of a login with a token: it holds the ID token, is asked of anew with each page, and ends with it.
The way back is a link of another site, with which the browser sends no cookie of ``SameSite=Strict``, so it answers
with a page that goes on by itself. Neither code nor token is in a page, in a log, or in an address that Tarry makes.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tarry.api.issuers import ProviderLogin
from tarry.base.errors import OverloadedError, TarryError, UnauthenticatedError
from tarry.fronts.http.console.attempts import ATTEMPT_MS, LoginAttempt
from tarry.fronts.http.console.cookies import cookie_name
from tarry.fronts.http.console.guard import LOGIN
from tarry.fronts.http.console.login import go_on_page, login_page
from tarry.fronts.http.console.page import Console, link, own_path
from tarry.fronts.http.foreign import AccessRefusal
from tarry.identity.code_login import CodeLogin

COOKIE = "tarry_login"
BEGIN = LOGIN + "/{provider}"
BACK = BEGIN + "/back"
_ERROR = re.compile(r"[a-z_]{1,64}")
_NOT_BEGUN = (
    "This login was not begun in this browser, was begun more than ten minutes ago, or has been used. Please begin "
    "again."
)


class SignInRefusedError(Exception):
    """A login that does not succeed: a status, a sentence for the visitor, a line for the log."""

    def __init__(self, status: int, text: str, why: str, *, is_noted: bool = False) -> None:
        """``is_noted``: the audit log has it already, or need not have it."""
        super().__init__(text)
        self.status, self.text, self.why, self.is_noted = status, text, why, is_noted


async def begin(console: Console, request: Request) -> Response:
    """Send the browser to the provider."""
    login = console.providers.logins.get(request.path_params["provider"])
    after = own_path(request.query_params.get("next", "/"))
    if login is None or not console.access.knows_identities or request.state.session.secret is not None:
        return RedirectResponse(link(LOGIN, next="" if after == "/" else after), 303)
    try:
        origin = _origin(console, request)
        attempt = console.providers.attempts.begin(login.name, after, console.now_ms)
        try:
            address = await login.address(_back(origin, login), attempt.state, attempt.nonce, attempt.verifier)
        except TarryError as error:
            raise _unanswered(login, error) from error
    except SignInRefusedError as refusal:
        return _refuse(console, request, refusal, after)
    response = RedirectResponse(address, 303)
    _set_cookie(response, origin, attempt.cookie, ATTEMPT_MS // 1000)
    return response


async def back(console: Console, request: Request) -> Response:
    """Begin a session for whom the provider sends back."""
    login = console.providers.logins.get(request.path_params["provider"])
    if login is None or not console.access.knows_identities:
        return RedirectResponse(LOGIN, 303)
    try:
        origin = _origin(console, request)
        attempt = _attempt(console, request, login, origin)
    except SignInRefusedError as refusal:
        return _refuse(console, request, refusal)
    try:
        response = await _sign_in(console, request, login, attempt, origin)
    except SignInRefusedError as refusal:
        response = _refuse(console, request, refusal, attempt.after)
    _set_cookie(response, origin, "", 0)  # it is good for one way back
    return response


async def _sign_in(
    console: Console, request: Request, login: CodeLogin, attempt: LoginAttempt, origin: str
) -> Response:
    await _check_answer(request, login)
    peer = console.guesses.peer_of(request)
    counted_ms = _count(console, peer)
    try:
        token = await login.redeem(request.query_params.get("code", ""), _back(origin, login), attempt.verifier, peer)
    except UnauthenticatedError as error:
        raise SignInRefusedError(403, f"{error}. Please begin again.", str(error)) from error
    except OverloadedError as error:
        console.guesses.give_back(peer, counted_ms)
        text = f"Too many logins at {login.name} are on their way. Please begin again in a moment."
        raise SignInRefusedError(503, text, str(error), is_noted=True) from error
    except TarryError as error:
        raise _unanswered(login, error) from error
    confirmed = ProviderLogin(login.issuer, login.client_id, attempt.nonce)
    admitted = console.access.owner_of_login(token, confirmed, peer)
    if isinstance(admitted, AccessRefusal):
        text = (
            f"{login.name} has let you in, and this broker does not: {admitted.text}. "
            "Log in in another way, or ask who runs this broker."
        )
        raise SignInRefusedError(403, text, admitted.text, is_noted=True)
    console.guesses.give_back(peer, counted_ms)
    session = console.sessions.begin(console.now_ms, token, confirmed)
    response = go_on_page(console, request, own_path(attempt.after), "Logged in", admitted.name)
    console.cookie.set(response, request, session.id)
    return response


def _count(console: Console, peer: str) -> int:
    """Count a code of a peer before the provider is asked, and return when that was.

    Many at a time would all be asked otherwise. Before this, nothing is counted: a page of another site could cause it,
    for its visitors to be kept out.

    Raises:
        SignInRefusedError: it has brought too many that let nobody in.
    """
    now_ms = console.now_ms
    if (wait_ms := console.guesses.wait_ms(peer, now_ms)) > 0:
        text = f"Too many logins were refused. Try again in {-(-wait_ms // 1000)} seconds."
        raise SignInRefusedError(429, text, "too many of its logins were refused", is_noted=True)
    console.guesses.count(peer, now_ms)
    return now_ms


def _attempt(console: Console, request: Request, login: CodeLogin, origin: str) -> LoginAttempt:
    """Return the login that the browser has begun, and that the provider answers.

    Raises:
        SignInRefusedError: there is no such one.
    """
    cookie = request.cookies.get(_cookie_of(origin))
    attempt = console.providers.attempts.find(cookie, login.name, console.now_ms)
    if attempt is None:
        raise SignInRefusedError(403, _NOT_BEGUN, "its browser has not begun one, or long ago")
    if not attempt.has_state(request.query_params.get("state", "")):
        raise SignInRefusedError(403, _NOT_BEGUN, "the state is of another one")
    return attempt


async def _check_answer(request: Request, login: CodeLogin) -> None:
    """Refuse an answer of another provider, and one that lets nobody in.

    Raises:
        SignInRefusedError: it is such a one.
    """
    given = request.query_params
    try:
        is_of_another = await login.is_of_another(given.get("iss"))
    except TarryError as error:
        raise _unanswered(login, error) from error
    if is_of_another:
        text = f"The answer is not {login.name}'s. Please begin again."
        raise SignInRefusedError(403, text, "the answer is of another provider (iss)")
    if "error" in given:
        why = given["error"] if _ERROR.fullmatch(given["error"]) else "an error that is none"
        text = f"{login.name} has not let you in: {why}."
        raise SignInRefusedError(403, text, f"the provider says {why}")


def _unanswered(login: CodeLogin, error: TarryError) -> SignInRefusedError:
    text = f"{login.name} does not answer as it should; the broker's log has more. Try again, or log in with a token."
    return SignInRefusedError(503, text, str(error), is_noted=True)


def _origin(console: Console, request: Request) -> str:
    origin = console.providers.origin(request)
    if origin is None:
        text = (
            "Logins at a provider lead back to this machine alone, unless the setting http_console_url says where to."
        )
        raise SignInRefusedError(403, text, "http_console_url is not set", is_noted=True)
    return origin


def _back(origin: str, login: CodeLogin) -> str:
    return origin + BACK.format(provider=login.name)


def _refuse(console: Console, request: Request, refusal: SignInRefusedError, after: str = "/") -> Response:
    peer = console.guesses.peer_of(request)
    console.providers.refused.say("a login to the console at a provider was refused to %s: %s", peer, refusal.why)
    if not refusal.is_noted:
        console.access.authenticator.note_refusal("other", peer)
    return login_page(console, request, refusal.status, after, refusal.text, has_form=False)


def _cookie_of(origin: str) -> str:
    return cookie_name(COOKIE, origin.startswith("https:"))


def _set_cookie(response: Response, origin: str, value: str, age_s: int) -> None:
    by_tls = origin.startswith("https:")
    # Lax: the way back is a link of the provider's site.
    response.set_cookie(
        _cookie_of(origin), value, max_age=age_s, path="/", httponly=True, samesite="lax", secure=by_tls
    )
