"""Finds out whose a request is: the one place of this front that reads credentials.

A request without a token is of whom its connection's certificate names.

A token comes in ``Authorization: Bearer …``, in ``X-Token``, or as the password of Basic authentication; in the query's
``token`` only where a client cannot send headers: event streams of browsers, and lmstfy's clients. Once the broker has
identities, each request shows one, on every address. Without identities there are two modes. In the mode "tokens",
requests show an access token for everything. In the mode "open", they need none; :mod:`.foreign` refuses what somebody
else may have had sent.
"""

from __future__ import annotations

import base64
from urllib.parse import parse_qsl

from tarry.api.issuers import ProviderLogin
from tarry.api.local import AnyBroker
from tarry.base.endpoint import parse_address
from tarry.base.errors import LoginReason, UnauthenticatedError
from tarry.base.exposure import is_loopback
from tarry.fronts.http.app import Scope
from tarry.fronts.http.exchange import Headers
from tarry.fronts.http.foreign import AccessRefusal, foreign_page, refusal_of_foreign_forms, refusal_of_foreigners
from tarry.fronts.kit.peer_proof import certificate_of
from tarry.identity.authenticator import Authenticator
from tarry.identity.principal import LOCAL, Principal

EVENTS = b"text/event-stream"
_NO_SECRET = "no token was shown; allowed: Authorization: Bearer TOKEN, of an identity or an access token"
_NEEDS_TOKEN = "an access token is needed: Authorization: Bearer SECRET; see tarry token create"
_IN_QUERY = (
    "the token is in the query, which ends up in logs; allowed: Authorization: Bearer TOKEN; in the query only of "
    "a GET with Accept: text/event-stream, and of lmstfy's API"
)


class Access:
    """Follows the broker's identities and tokens: a change holds at once. On the loop's thread."""

    def __init__(self, broker: AnyBroker, mode: str, authenticator: Authenticator | None = None) -> None:
        """``mode``: "open" or "tokens", while there are no identities; see :func:`mode_of`."""
        self._mode = mode
        self._broker = broker
        self.authenticator = authenticator or Authenticator(broker)
        self.identify = self.authenticator.tokens.identify
        """Returns the owner of an access token; None: no token has this secret."""

    @property
    def tokens(self) -> object:
        """All access tokens: another object after each change."""
        return self._broker.access_tokens

    @property
    def asks(self) -> bool:
        """True if each request has to show a token."""
        return self._mode == "tokens" or self.knows_identities

    @property
    def knows_identities(self) -> bool:
        """True if the broker has identities: then each caller has rights of its own."""
        return self.authenticator.asks

    def admit(self, scope: Scope, *, is_page: bool = False) -> Principal | AccessRefusal:
        """Return whose a request is, or why it is refused.

        ``is_page``: it asks for a page, to which other sites may link.
        """
        admitted = self._admitted(scope, is_page=is_page)
        if isinstance(admitted, Principal) and (trusted := scope.get("state", {}).get("trusted")) is not None:
            trusted()
        return admitted

    def _admitted(self, scope: Scope, *, is_page: bool) -> Principal | AccessRefusal:
        if not self.asks:
            return refusal_of_foreigners(scope, is_page=is_page) or LOCAL
        headers = scope["headers"]
        secret = secret_of(headers)
        if not secret and (in_query := secret_in(scope["query_string"])):
            if not _is_event_stream(scope):
                return self._unknown(_IN_QUERY, peer_of(scope), "other")
            secret = in_query
        if not secret and not shows_secret(headers):
            proof = scope.get("state", {}).get("principal")
            owner = self.owner_of_certificate(proof, headers, peer_of(scope))
            if owner is None:
                owner = self.anonymous(scope)
            if owner is not None:
                return owner
        if not secret:
            text = _NO_SECRET if self.knows_identities else _NEEDS_TOKEN
            return self._unknown(text, peer_of(scope), "none_shown")
        refused = refusal_of_foreign_forms(scope)
        return refused or self.owner_of(secret, peer_of(scope))

    def owner_of(self, secret: str, peer: str) -> Principal | AccessRefusal:
        """Return whose a secret is; without identities, it has to be an access token for everything.

        A refusal is noted, of the address ``peer``.
        """
        if self.knows_identities:
            try:
                return self.authenticator.by_token(secret, peer=peer)
            except UnauthenticatedError as error:
                return AccessRefusal(401, str(error), "unauthenticated")  # which is noted
        owner = self.identify(secret)
        if owner is None:
            return self._unknown(_NEEDS_TOKEN, peer, "not_known")
        if not owner.for_everything:
            namespaces = ", ".join(sorted(owner.tokens))
            return AccessRefusal(403, f"the access token is for {namespaces}; allowed: one for *", "forbidden")
        return owner.principal

    def owner_of_login(self, token: str, login: ProviderLogin, peer: str) -> Principal | AccessRefusal:
        """Return who has logged in at a provider, by the ID token of that login.

        A refusal is noted, of the address ``peer``.
        """
        if not self.knows_identities:
            return self._unknown("there are no identities; allowed: an access token for everything", peer, "other")
        try:
            return self.authenticator.by_login(token, login, peer=peer)
        except UnauthenticatedError as error:
            return AccessRefusal(401, str(error), "unauthenticated")  # which is noted

    def owner_of_certificate(self, proof: object, headers: Headers, peer: str) -> Principal | AccessRefusal | None:
        """Return whose a request without a token is, by its connection's certificate.

        None: there is none, or no identities that could have it.
        """
        names = certificate_of(proof)
        if names is None or not self.knows_identities:
            return None
        # A browser shows its certificate with whatever a page has it ask for; a GET may consume.
        foreign = foreign_page(dict(headers))
        if foreign is not None:
            return AccessRefusal(403, f"{foreign}; allowed with a certificate: pages of this front", "forbidden")
        try:
            return self.authenticator.by_certificate(names, peer)
        except UnauthenticatedError as error:
            return AccessRefusal(401, str(error), "unauthenticated")  # which is noted

    def anonymous(self, scope: Scope) -> Principal | AccessRefusal | None:
        """Return whose a request is that shows nothing at all; None: it has to show something.

        Any page that somebody looks at may make a browser send it.
        """
        if not self.authenticator.takes_nothing:
            return None
        return refusal_of_foreigners(scope, anonymous=True) or self.authenticator.by_nothing(peer_of(scope))

    def _unknown(self, text: str, peer: str, reason: LoginReason) -> AccessRefusal:
        self.authenticator.note_refusal(reason, peer)
        return AccessRefusal(401, text, "unauthenticated" if self.knows_identities else "unauthorized")


def mode_of(setting: str, address: str) -> str:
    """Return the mode that the setting ``http_access`` means for a front at an address.

    "auto" is "open" on an address that only this machine reaches, and "tokens" elsewhere.
    """
    return setting if setting != "auto" else ("open" if is_loopback(parse_address(address)[0]) else "tokens")


def secret_of(headers: Headers) -> str | None:
    """Return the secret that a request's headers show; None: they show none."""
    given = dict(headers)
    shown: bytes = given.get(b"x-token", b"")
    if not shown:
        kind, _, bearer = given.get(b"authorization", b"").partition(b" ")
        shown = bearer.strip() if kind.lower() == b"bearer" else _password(bearer) if kind.lower() == b"basic" else b""
    return shown.decode("latin-1") if shown else None


def bearer_of(headers: Headers) -> str:
    """Return the token of ``Authorization: Bearer``; empty: there is none."""
    for name, value in headers:
        if name == b"authorization":
            kind, _, token = value.partition(b" ")
            return token.strip().decode("latin-1") if kind.lower() == b"bearer" else ""
    return ""


def shows_secret(headers: Headers) -> bool:
    """Return whether a request's headers show a credential, of whichever kind."""
    return any(name in (b"authorization", b"x-token") and value for name, value in headers)


def secret_in(query: bytes) -> str | None:
    """Return the secret in a query; None: there is none."""
    return dict(parse_qsl(query.decode("latin-1"))).get("token") if may_have_secret(query) else None


def may_have_secret(query: bytes) -> bool:
    """Return whether a query may have a token: quick, and not always right. Names may be encoded, too."""
    return b"token=" in query or b"%" in query


def peer_of(scope: Scope) -> str:
    """Return the client's address without its port; empty: it comes by a Unix socket."""
    return (scope.get("client") or ("",))[0]


def _is_event_stream(scope: Scope) -> bool:
    return scope["method"] == "GET" and EVENTS in dict(scope["headers"]).get(b"accept", b"").lower()


def _password(basic: bytes) -> bytes:
    """Return the password of Basic authentication, whatever the user name; empty: it is none."""
    try:
        return base64.b64decode(basic.strip(), validate=True).partition(b":")[2]
    except ValueError:
        return b""
