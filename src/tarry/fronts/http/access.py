"""Finds out whose a request is: the one place of this front that reads credentials.

A request without a token is of whom its connection's certificate names.

A token comes in ``Authorization: Bearer …``, in ``X-Token``, or as the password of Basic authentication; in the query's
``token`` only where a client cannot send headers: event streams of browsers, and lmstfy's clients. Once the broker has
identities, each request shows one, on every address. Without identities there are two modes. In the mode "tokens",
requests show an access token for everything. In the mode "open", they need none, and two things are dangerous. A
browser: any page that somebody looks at may make it send requests to this machine. A proxy: everybody would seem to
come from this machine. So a request that a proxy says it forwards is refused, the ``Host`` must be a name of this
machine (else the page's name server could point to it), and a request that changes something may only come from a page
of this front.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from tarry.api.issuers import ProviderLogin
from tarry.api.local import AnyBroker
from tarry.base.endpoint import parse_address
from tarry.base.errors import LoginReason, UnauthenticatedError
from tarry.base.exposure import is_loopback, is_number
from tarry.fronts.http.app import Scope
from tarry.fronts.http.exchange import Headers
from tarry.fronts.kit.peer_proof import certificate_of
from tarry.identity.authenticator import Authenticator
from tarry.identity.principal import LOCAL, Principal

_FORWARDED = b"x-forwarded-"
_FORWARDING = frozenset(
    (
        *(b"forwarded", b"x-forwarded", b"via", b"cdn-loop", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip"),
        *(b"client-ip", b"true-client-ip", b"cf-connecting-ip", b"fly-client-ip", b"fastly-client-ip"),
        *(b"x-azure-clientip", b"x-azure-socketip", b"x-envoy-external-address", b"x-original-host", b"x-original-url"),
    )
)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[-.0-9A-Za-z]+)(:[0-9]+)?")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


EVENTS = b"text/event-stream"
_NO_SECRET = "no token was shown; allowed: Authorization: Bearer TOKEN, of an identity or an access token"
_NEEDS_TOKEN = "an access token is needed: Authorization: Bearer SECRET; see tarry token create"
_IN_QUERY = (
    "the token is in the query, which ends up in logs; allowed: Authorization: Bearer TOKEN; in the query only of "
    "a GET with Accept: text/event-stream, and of lmstfy's API"
)


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """The reason why a request is refused: an HTTP status, a stable code, and a text for people."""

    status: int
    text: str
    code: str


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

    def admit(self, scope: Scope) -> Principal | AccessRefusal:
        """Return whose a request is, or why it is refused."""
        admitted = self._admitted(scope)
        if isinstance(admitted, Principal) and (trusted := scope.get("state", {}).get("trusted")) is not None:
            trusted()
        return admitted

    def _admitted(self, scope: Scope) -> Principal | AccessRefusal:
        if not self.asks:
            return _refusal_of_foreigners(scope) or LOCAL
        headers = scope["headers"]
        secret = secret_of(headers)
        if not secret and (in_query := secret_in(scope["query_string"])):
            if not _is_event_stream(scope):
                return self._unknown(_IN_QUERY, peer_of(scope), "other")
            secret = in_query
        if not secret and not shows_secret(headers):
            proof = scope.get("state", {}).get("principal")
            owner = self.owner_of_certificate(proof, headers, peer_of(scope))
            if owner is not None:
                return owner
        if not secret and not shows_secret(headers):
            anonymous = self.anonymous(scope)
            if anonymous is not None:
                return anonymous
        if not secret:
            text = _NO_SECRET if self.knows_identities else _NEEDS_TOKEN
            return self._unknown(text, peer_of(scope), "none_shown")
        refused = _refusal_of_foreign_forms(scope)
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
        return _refusal_of_foreigners(scope, anonymous=True) or self.authenticator.by_nothing(peer_of(scope))

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


def shows_secret(headers: Headers) -> bool:
    """Return whether a request's headers show a credential, of whichever kind."""
    return any(name in (b"authorization", b"x-token") and value for name, value in headers)


def secret_in(query: bytes) -> str | None:
    """Return the secret in a query; None: there is none."""
    return dict(parse_qsl(query.decode("latin-1"))).get("token") if b"token=" in query else None


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


def _refusal_of_foreigners(scope: Scope, *, anonymous: bool = False) -> AccessRefusal | None:
    """Refuse what a proxy forwards, or what a page of another site may have a browser send.

    Of who is ``anonymous`` also its GET, which may consume. A name of another machine in ``Host`` may be that of a page
    whose name server points here; a number is not.
    """
    if (forwarding := _forwarding(scope["headers"])) is not None:
        return AccessRefusal(
            403,
            f"the request was forwarded ({forwarding}), so whoever reaches the proxy would be taken for this machine; "
            "allowed: requests without it, or the setting http_access=tokens, and an access token",
            "forbidden",
        )
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"").decode("latin-1")
    name = _name_of(host)
    if not is_loopback(name) and not (anonymous and is_number(name)):
        return AccessRefusal(
            403, f"Host is {host!r:.80}; allowed without access tokens: a name or address of this machine", "forbidden"
        )
    is_safe = scope["method"] in SAFE_METHODS and not anonymous
    if is_safe or (foreign := foreign_page(headers)) is None:
        return None
    return AccessRefusal(403, f"{foreign}; allowed without access tokens: pages of this front", "forbidden")


def _refusal_of_foreign_forms(scope: Scope) -> AccessRefusal | None:
    """Refuse what another site's page has a browser send with a password that the browser has kept."""
    headers = dict(scope["headers"])
    if scope["method"] in SAFE_METHODS or not headers.get(b"authorization", b"").lower().startswith(b"basic "):
        return None
    foreign = foreign_page(headers)
    return None if foreign is None else AccessRefusal(403, f"{foreign}; allowed: pages of this front", "forbidden")


def foreign_page(headers: Mapping[bytes, bytes]) -> str | None:
    """Return by what a browser shows that a request comes from a page of another site; None: it does not."""
    if b"origin" in headers:
        origin = headers[b"origin"].decode("latin-1")
        is_own = urlsplit(origin).netloc == headers.get(b"host", b"").decode("latin-1")
        return None if is_own else f"Origin is {origin!r:.80}"
    if headers.get(b"sec-fetch-site", b"same-origin") in (b"same-origin", b"none"):
        return None
    return "the request comes from a foreign page"


def own_origin(scope: Scope) -> str | None:
    """Return this front's origin for a browser of this machine; None: it may be another machine's.

    Nobody else's ``Host`` is believed: whoever reaches a front by a network, or by a proxy, can write what it likes.
    """
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    if _forwarding(scope["headers"]) is not None or not _HOST.fullmatch(host) or not is_loopback(_name_of(host)):
        return None
    return f"{scope['scheme']}://{host}"


def _forwarding(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the header by which a proxy says that it forwards a request; None: there is none."""
    for name, _ in headers:
        if name in _FORWARDING or name.startswith(_FORWARDED):
            return name.decode("latin-1")
    return None


def _name_of(host: str) -> str:
    # "name", "name:port", "[::1]:port"
    return host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
