"""Providers of identities (OIDC) in the settings: names, places of keys, logins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from tarry.base.errors import InvalidArgumentError
from tarry.base.exposure import is_loopback

URL_CHARS_MAX = 2000
_PRINTABLE = re.compile(r"[!-~]+")
_NAME = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,63}")
SCOPE = "openid"
"""Scope without which a provider says nothing of whoever logs in."""
_DISCOVERY = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class IssuerSettings:
    """One provider. Keys come from a file, or from a URL, or from the one that the provider publishes."""

    name: str
    """Its name for people."""
    issuer: str
    audience: str
    keys_file: str | None = None
    keys_url: str | None = None
    client_id: str | None = None
    """Name of the console at the provider; None: nobody logs in to the console by it."""
    client_secret_file: str | None = None
    scopes: str = SCOPE
    """Words that say what the provider is asked for at such a login."""

    def __post_init__(self) -> None:
        """Check them.

        Raises:
            InvalidArgumentError: they contradict each other, or a URL or the name is none.
        """
        if not _NAME.fullmatch(self.name):
            raise InvalidArgumentError(
                f"a provider has the name {self.name!r:.300}; allowed: 1 to 64 of letters, digits, and - _ . after the "
                "first"
            )
        if self.keys_file is not None and self.keys_url is not None:
            raise InvalidArgumentError(
                f"the provider {self.issuer!r:.300} has the keys file {self.keys_file!r:.300} and the keys URL "
                f"{self.keys_url!r:.300}; allowed: one of them, or none if the provider publishes where they are"
            )
        if self.keys_file is None:
            named = "the URL of its keys" if self.keys_url else "the provider, whose keys have no file or URL,"
            check_provider_url(self.keys_url or self.issuer, named)
        self._check_login()

    def _check_login(self) -> None:
        if self.client_id is not None:
            check_provider_url(self.issuer, "the provider, at which people log in (client_id),")
        elif self.client_secret_file is not None:
            raise InvalidArgumentError(
                f"the provider {self.name} has the client secret's file {self.client_secret_file!r:.300}, and no "
                "client_id; allowed: both, client_id alone, or neither"
            )
        if SCOPE not in self.scopes.split() or not self.scopes.isprintable():
            raise InvalidArgumentError(
                f"the provider {self.name} has the scopes {self.scopes!r:.300}; allowed: words with spaces between "
                f'them, "{SCOPE}" among them'
            )

    @property
    def discovery_url(self) -> str:
        """The URL at which the provider publishes what it offers (OpenID Connect Discovery)."""
        return self.issuer.rstrip("/") + _DISCOVERY


def name_of(issuer: str) -> str:
    """Return the name of a provider that was given none: its host."""
    try:
        host = urlsplit(issuer).hostname or ""
    except ValueError:
        host = ""
    return host if _NAME.fullmatch(host) else "provider"


def check_provider_url(url: str, name: str) -> str:
    """Return a URL of a provider: by TLS, or on this machine.

    Raises:
        InvalidArgumentError: it is none.
    """
    wanted = "allowed: https://HOST..., http:// of this machine alone, without a user and a fragment"
    refused = InvalidArgumentError(f"{name} is {url!r:.300}; {wanted}")
    if len(url) > URL_CHARS_MAX or not _PRINTABLE.fullmatch(url) or "\\" in url or "#" in url:
        raise refused
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refused from None
    if not host or port == 0 or "@" in parts.netloc or "%" in parts.netloc:
        raise refused
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise refused
    return url
