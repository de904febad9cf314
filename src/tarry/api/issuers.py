"""Providers of identities elsewhere (OIDC), whose signed tokens a broker takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tarry.base.errors import InvalidArgumentError

CLAIM_CHARS_MAX = 1000


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A token that was verified."""

    claims: Mapping[str, Any]
    expires_ms: int
    """It is refused from then on."""

    def has(self, claim: str) -> bool:
        """Return whether it has a claim, as ``NAME=VALUE``: the claim is that text, or a list with it."""
        name, _, value = claim.partition("=")
        found = self.claims.get(name)
        return found == value if isinstance(found, str) else isinstance(found, list) and value in found


class TokenIssuer(Protocol):
    """A provider. Any thread."""

    url: str
    """Its name, which its tokens have as ``iss``."""

    def look(self) -> object:
        """Return its keys as they are now: another object after each change."""
        ...

    def verify(self, token: str) -> VerifiedToken:
        """Return a token that it has signed, for this broker, and that is good now.

        Raises:
            UnauthenticatedError: it is not.
        """
        ...


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
