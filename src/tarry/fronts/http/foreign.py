"""Requests that somebody else has a browser or a proxy send: refused where no token is shown.

Any page that somebody looks at may make a browser send requests to this machine. Whoever comes by a proxy would seem to
be at its address. So a request that a proxy says it forwards is refused, the ``Host`` must be a name of this machine
(else the page's name server could point to it), and a request that changes something may only come from a page of this
front.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from tarry.base.exposure import is_loopback, is_number
from tarry.fronts.http.app import Scope

_FORWARDED = b"x-forwarded-"
_FORWARDING = frozenset(
    (
        *(b"forwarded", b"x-forwarded", b"via", b"cdn-loop", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip"),
        *(b"client-ip", b"true-client-ip", b"cf-connecting-ip", b"fly-client-ip", b"fastly-client-ip"),
        *(b"x-azure-clientip", b"x-azure-socketip", b"x-envoy-external-address", b"x-original-host", b"x-original-url"),
    )
)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[-.0-9A-Za-z]+)(:[0-9]+)?")
_BROWSERS = b"mozilla/"
"""Beginning of each browser's User-Agent; of no library that lmstfy's clients use."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """The reason why a request is refused: an HTTP status, a stable code, and a text for people."""

    status: int
    text: str
    code: str


def refusal_of_foreigners(scope: Scope, *, anonymous: bool = False) -> AccessRefusal | None:
    """Refuse what a proxy forwards, or what a page of another site may have a browser send.

    Of who is ``anonymous`` also its GET, which may consume, and what may be such a page's though it says nothing.
    A name of another machine in ``Host`` may be that of a page whose name server points here; a number is not.
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
    foreign = None if is_safe else foreign_page(headers) or (_unsaid_page(headers) if anonymous else None)
    if foreign is None:
        return None
    return AccessRefusal(403, f"{foreign}; allowed without access tokens: pages of this front", "forbidden")


def refusal_of_foreign_forms(scope: Scope) -> AccessRefusal | None:
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
        return None if _is_own(origin, headers) else f"Origin is {origin!r:.80}"
    if headers.get(b"sec-fetch-site", b"same-origin") in (b"same-origin", b"none"):
        return None
    return "the request comes from a foreign page"


def _unsaid_page(headers: Mapping[bytes, bytes]) -> str | None:
    """Return by what a request may be a foreign page's though it does not say so; None: it may not.

    Browsers say it by Sec-Fetch-Site only to addresses that they trust: by TLS, or of their own machine. To others, a
    GET has no Origin either, and a page can leave out Referer, but not change User-Agent without asking first.
    """
    if b"referer" in headers:
        referer = headers[b"referer"].decode("latin-1")
        if not _is_own(referer, headers):
            return f"Referer is {referer!r:.80}"
    is_said = b"origin" in headers or b"sec-fetch-site" in headers
    agent = headers.get(b"user-agent", b"").strip()
    if is_said or not agent.lower().startswith(_BROWSERS):
        return None
    return (
        f"a browser (User-Agent {agent.decode('latin-1')!r:.40}) does not say from what page the request comes, as "
        "happens without TLS"
    )


def _is_own(url: str, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a page is of this front."""
    try:
        return urlsplit(url).netloc == headers.get(b"host", b"").decode("latin-1")
    except ValueError:
        return False


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
