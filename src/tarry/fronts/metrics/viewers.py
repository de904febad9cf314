"""Callers who may see the figures: everybody, until the broker has identities."""

from __future__ import annotations

from tarry.api.needs import Right
from tarry.base.errors import ForbiddenError, UnauthenticatedError
from tarry.fronts.http.access import secret_of, shows_secret
from tarry.fronts.http.exchange import HttpRequest, HttpResponse
from tarry.fronts.kit.peer_proof import certificate_of
from tarry.fronts.metrics.exposition import TEXT
from tarry.identity.authenticator import Authenticator


class Viewers:
    """Asks for the right to look at all topics. On the event loop's thread."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def refusal(self, request: HttpRequest) -> HttpResponse | None:
        """Return the answer to a request whose sender may not see the figures; None: it may."""
        if not self._authenticator.asks:
            request.trusted()
            return None
        secret, is_shown = secret_of(request.headers), shows_secret(request.headers)
        certificate = None if is_shown else certificate_of(request.principal)
        is_known = secret is not None or certificate is not None
        if not is_known and (is_shown or not self._authenticator.takes_nothing):
            self._authenticator.note_refusal("none_shown", request.host)
            return _answer(401, "no token was shown; allowed: Authorization: Bearer TOKEN, with the right look on *")
        try:
            self._authenticator.by_token(secret, certificate, peer=request.host).check(Right.LOOK, peer=request.host)
        except UnauthenticatedError as error:
            return _answer(401, str(error))
        except ForbiddenError as error:
            return _answer(403, str(error))
        request.trusted()
        return None


def _answer(status: int, text: str) -> HttpResponse:
    more = ((b"www-authenticate", b"Bearer"),) if status == 401 else ()
    return HttpResponse(status, text.encode() + b"\n", (*TEXT, *more))
