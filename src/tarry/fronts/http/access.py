"""Access tokens, and the requests that an open front trusts.

A secret comes in ``Authorization: Bearer …``, in ``X-Token``, as the password of Basic authentication, or (lmstfy's
way) as the query's ``token``. In the mode "open", requests checked by :meth:`Access.refusal` need no token. There, two
things are dangerous. A browser: any page that somebody looks at may make it send requests to this machine. A proxy:
everybody would seem to come from this machine. So a request that a proxy says it forwards is refused, the ``Host`` must
be a name of this machine (else the page's name server could point to it), and a request that changes something may only
come from a page of this front.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from tarry.api.local import AnyBroker
from tarry.base.endpoint import parse_address
from tarry.base.exposure import is_loopback
from tarry.fronts.http.app import Scope
from tarry.fronts.kit.tokens import Identity, KnownTokens

_FORWARDED = b"x-forwarded-"
_FORWARDING = frozenset(
    (
        *(b"forwarded", b"x-forwarded", b"via", b"cdn-loop", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip"),
        *(b"client-ip", b"true-client-ip", b"cf-connecting-ip", b"fly-client-ip", b"fastly-client-ip"),
        *(b"x-azure-clientip", b"x-azure-socketip", b"x-envoy-external-address", b"x-original-host", b"x-original-url"),
    )
)
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """The reason why a request is refused: an HTTP status and a text for people."""

    status: int
    text: str


class Access:
    """Follows the broker's tokens: a change holds for the next request. On the event loop's thread."""

    def __init__(self, broker: AnyBroker, mode: str) -> None:
        """``mode``: "open" or "tokens"; see :func:`mode_of`."""
        self.mode = mode
        self._broker = broker
        self.identify = KnownTokens(broker).identify
        """Returns the identity behind a secret; None: no token has it."""

    @property
    def tokens(self) -> object:
        """All tokens: another object after each change."""
        return self._broker.access_tokens

    def check(self, scope: Scope) -> Identity | None:
        """Return the sender of a request; None: it shows no secret, or an unknown one."""
        secret = secret_of(scope)
        return None if not secret else self.identify(secret)

    def refusal(self, scope: Scope) -> AccessRefusal | None:
        """Return the reason why a request may not do everything; None: it may."""
        if self.mode == "open":
            return _refusal_of_foreigners(scope)
        identity = self.check(scope)
        if identity is None:
            return AccessRefusal(401, "an access token is needed: Authorization: Bearer SECRET; see tarry token create")
        if not identity.for_everything:
            return AccessRefusal(
                403, f"the access token is for {', '.join(sorted(identity.tokens))}; allowed: one for *"
            )
        return None


def mode_of(setting: str, address: str) -> str:
    """Return the mode that the setting ``http_access`` means for a front at an address.

    "auto" is "open" on an address that only this machine reaches, and "tokens" elsewhere.
    """
    return setting if setting != "auto" else ("open" if is_loopback(parse_address(address)[0]) else "tokens")


def secret_of(scope: Scope) -> str | None:
    """Return the secret that a request shows; None: it shows none."""
    headers = dict(scope["headers"])
    shown: bytes = headers.get(b"x-token", b"")
    if not shown:
        kind, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        shown = bearer.strip() if kind.lower() == b"bearer" else _password(bearer) if kind.lower() == b"basic" else b""
    if shown:
        return shown.decode("latin-1")
    query = scope["query_string"]
    return dict(parse_qsl(query.decode("latin-1"))).get("token") if b"token=" in query else None


def _password(basic: bytes) -> bytes:
    """Return the password of Basic authentication, whatever the user name; empty: it is none."""
    try:
        return base64.b64decode(basic.strip(), validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _refusal_of_foreigners(scope: Scope) -> AccessRefusal | None:
    if (forwarding := _forwarding(scope["headers"])) is not None:
        return AccessRefusal(
            403,
            f"the request was forwarded ({forwarding}), so whoever reaches the proxy would be taken for this machine; "
            "allowed: requests without it, or the setting http_access=tokens, and an access token",
        )
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"").decode("latin-1")
    if not is_loopback(_name_of(host)):
        return AccessRefusal(
            403, f"Host is {host!r:.80}; allowed without access tokens: a name or address of this machine"
        )
    if scope["method"] in SAFE_METHODS or (foreign := foreign_page(headers)) is None:
        return None
    return AccessRefusal(403, f"{foreign}; allowed without access tokens: pages of this front")


def foreign_page(headers: Mapping[bytes, bytes]) -> str | None:
    """Return by what a browser shows that a request comes from a page of another site; None: it does not."""
    if b"origin" in headers:
        origin = headers[b"origin"].decode("latin-1")
        is_own = urlsplit(origin).netloc == headers.get(b"host", b"").decode("latin-1")
        return None if is_own else f"Origin is {origin!r:.80}"
    if headers.get(b"sec-fetch-site", b"same-origin") in (b"same-origin", b"none"):
        return None
    return "the request comes from a foreign page"


def _forwarding(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the header by which a proxy says that it forwards a request; None: there is none."""
    for name, _ in headers:
        if name in _FORWARDING or name.startswith(_FORWARDED):
            return name.decode("latin-1")
    return None


def _name_of(host: str) -> str:
    # "name", "name:port", "[::1]:port"
    return host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
