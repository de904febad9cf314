"""Providers of identities elsewhere (OIDC), whose signed tokens a broker takes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tarry.base.errors import InvalidArgumentError

CLAIM_CHARS_MAX = 1000
_OF_ONE_TOKEN = frozenset(("iss", "aud", "jti", "nonce", "sid", "at_hash", "c_hash", "s_hash", "azp"))
"""Claims that say nothing of who holds a token, or may not be granted."""
TOKEN_CHARS_MAX = 16 << 10


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A token that was verified."""

    claims: Mapping[str, Any]
    expires_ms: int
    """It is refused from then on."""
    issuer: str
    """The provider that has signed it."""

    @property
    def grantable(self) -> Sequence[str]:
        """Claims by which an identity may be known, as ``NAME=VALUE``; its subject and its groups come first."""
        named = sorted(self.claims.items(), key=lambda each: (each[0] != "sub", each[0] != "groups"))
        return [
            f"{name}={value}"
            for name, values in named
            if name not in _OF_ONE_TOKEN
            for value in (values if isinstance(values, list) else [values])
            if isinstance(value, str) and value
        ]

    @property
    def details(self) -> dict[str, str]:
        """Its provider and its subject, for the audit log."""
        return details_of(self.issuer, self.claims)

    def has(self, claim: str) -> bool:
        """Return whether it has a claim, as ``NAME=VALUE``: the claim is that text, or a list with it."""
        name, _, value = claim.partition("=")
        found = self.claims.get(name)
        return found == value if isinstance(found, str) else isinstance(found, list) and value in found


@dataclass(frozen=True, slots=True)
class ProviderLogin:
    """A login at a provider, which an ID token has to be of."""

    issuer: str
    client: str
    """Name at the provider of the client at which it began; the token's audience."""
    nonce: str
    """Random text that this login alone has."""


class TokenIssuer(Protocol):
    """A provider. Any thread."""

    url: str
    """Its name, which its tokens have as ``iss``."""

    def look(self) -> object:
        """Return its keys as they are now: another object after each change."""
        ...

    def verify(self, token: str, login: ProviderLogin | None = None) -> VerifiedToken:
        """Return a token that it has signed, for this broker, and that is good now.

        ``login``: it has to be the ID token of this login instead, for its client.

        Raises:
            UnauthenticatedError: it is not.
        """
        ...


def issuer_of(token: str, issuers: Sequence[TokenIssuer]) -> TokenIssuer | None:
    """Return the provider that a token names, which is to verify it; None: there is no such one."""
    if len(issuers) == 1:
        return issuers[0]
    named = named_issuer(token)
    return next((each for each in issuers if each.url == named), None)


def named_issuer(token: str) -> object:
    """Return what a token that was not verified has as ``iss``; None: it has none, or cannot be read."""
    if len(token) > TOKEN_CHARS_MAX:
        return None
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, IndexError, RecursionError):
        return None
    return claims.get("iss") if isinstance(claims, dict) else None


def details_of(issuer: str, claims: Mapping[str, Any]) -> dict[str, str]:
    """Return the provider and the subject of a token that it has signed, for the audit log."""
    subject = claims.get("sub")
    return {"issuer": issuer, **({"sub": subject} if isinstance(subject, str) else {})}


def is_jwt(token: str) -> bool:
    """Return whether a text has the form of a JSON Web Token, of whichever provider."""
    return token.startswith("eyJ") and token.count(".") == 2


def check_claim(claim: str) -> None:
    """Check a claim by which an identity is known.

    Raises:
        InvalidArgumentError: it is none.
    """
    name, _, value = claim.partition("=")
    if not (name and value and claim.isprintable() and len(claim) <= CLAIM_CHARS_MAX) or name in ("iss", "aud"):
        raise InvalidArgumentError(
            f"claim {claim!r:.300}; allowed: NAME=VALUE, as groups=tarry-billing, but not of iss and aud"
        )
