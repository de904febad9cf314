"""Identities: who may be known to a broker, by which credentials, with which rights.

A broker keeps the SHA-256 of a token, never the token; of a certificate, a name that is in it. The secret of an access
key it needs itself, to check signatures: that is kept sealed (:mod:`tarry.broker.access_secrets`), and is in nothing
that is listed.
"""

from __future__ import annotations

import binascii
import re
import secrets
from dataclasses import dataclass, field, replace
from typing import Literal

from tarry.base.errors import InvalidArgumentError

CredentialKind = Literal["token", "access_key", "certificate", "jwt"]
ANONYMOUS: Literal["anonymous"] = "anonymous"
"""Name of the identity of whoever shows no credential, where there is one of that name."""

NAME = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,99}")
TOKEN_PREFIX = "tarry_"
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_CHARS, _SUM_CHARS = 32, 6
ACCESS_KEY = re.compile(r"[A-Za-z0-9][-_.:@A-Za-z0-9]{0,99}")
_SECRET = re.compile(r"[!-~]{8,256}")
_TOKEN = re.compile(rf"{TOKEN_PREFIX}[0-9A-Za-z]{{{_RANDOM_CHARS + _SUM_CHARS}}}")


@dataclass(frozen=True, slots=True)
class Credential:
    """A way in which an identity shows who it is, as it is kept; see :func:`shown`."""

    id: str
    """Names the credential, and tells nothing of its secret."""
    kind: CredentialKind | Literal["anonymous"]
    """"anonymous": it shows none; that of the identity of that name, which is kept nowhere."""
    description: str
    created_ms: int
    expires_ms: int | None
    """It is refused from then on; None: never."""
    digest: str = ""
    """SHA-256 of the token, in hexadecimal; empty for other kinds, and in answers to clients."""
    access_key: str | None = None
    """Name of an access key, which only one credential of a broker has."""
    san: str | None = None
    """Name in a client's certificate, with its kind: ``URI:…``, ``DNS:…`` or ``CN:…``.

    Only one credential of a broker has it.
    """
    issuer: str | None = None
    """Provider of the JSON Web Tokens by which the identity is known."""
    claim: str | None = None
    """Claim in these tokens, as ``groups=tarry-billing``; of one provider, only one credential has it."""
    last_used: str | None = None
    """Day of its last use, as "2026-11-26" in UTC, in answers to clients; None: none is known."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who may be known: a service, a team, a person."""

    name: str
    grants: list[str]
    """Lines of rights; see ``docs/identity.md``."""
    description: str
    created_ms: int
    credentials: list[Credential]
    quotas: dict[str, int] = field(default_factory=dict)
    """Limits by name; see :mod:`tarry.api.quotas`."""


@dataclass(frozen=True, slots=True)
class IssuedCredential:
    """A credential that was just made, with its secret, which is shown only now."""

    id: str
    identity: str
    secret: str
    """Empty for a certificate and a claim: others have made them."""
    expires_ms: int | None
    access_key: str | None = None
    """Name of the access key that the secret belongs to; None: the secret is a token."""
    san: str | None = None
    """Name in the certificate; None: it is another credential."""
    issuer: str | None = None
    claim: str | None = None
    """Provider of JSON Web Tokens, and the claim in them; None: it is another credential."""


@dataclass(frozen=True, slots=True)
class WhoIs:
    """The identity of a caller, and its rights."""

    identity: str
    grants: list[str]
    credential: str | None
    """Id of the credential that was shown; None: nobody is asked."""
    quotas: dict[str, int] = field(default_factory=dict)
    """Its limits by name; see :mod:`tarry.api.quotas`."""


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """An answer to the question whether an identity may do something."""

    identity: str
    allowed: bool


def shown(identity: Identity) -> Identity:
    """Return an identity as clients are shown it, without the digests of its credentials."""
    return replace(identity, credentials=[replace(each, digest="") for each in identity.credentials])


def new_token() -> str:
    """Return a new secret: 190 random bits, and a checksum that tells a mistyped one.

    Its form is that of GitHub's tokens, which secret scanners know: https://github.blog/2021-04-05-behind-githubs-new-authentication-token-formats/
    """
    drawn = "".join(secrets.choice(_DIGITS) for _ in range(_RANDOM_CHARS))
    return TOKEN_PREFIX + drawn + _sum_of(drawn)


def new_access_key() -> str:
    """Return a name for an access key that nobody has."""
    return "AK" + "".join(secrets.choice(_DIGITS) for _ in range(18))


def new_secret() -> str:
    """Return a new secret of an access key: 238 random bits."""
    return "".join(secrets.choice(_DIGITS) for _ in range(40))


def check_access_key(name: str, secret: str) -> None:
    """Check the name and the secret of an access key; the secret is not repeated.

    Raises:
        InvalidArgumentError: they are none.
    """
    if not ACCESS_KEY.fullmatch(name):
        raise InvalidArgumentError(
            f"access key {name!r:.300}; allowed: 1 to 100 of letters, digits, and - _ . : @ after the first"
        )
    if not _SECRET.fullmatch(secret):
        raise InvalidArgumentError(
            f"the access key's secret has {len(secret)} characters; allowed: 8 to 256 of ASCII without blanks"
        )


def is_token(text: str) -> bool:
    """Return whether a text has the form of a token, its checksum included."""
    if not _TOKEN.fullmatch(text):
        return False
    return _sum_of(text[len(TOKEN_PREFIX) : -_SUM_CHARS]) == text[-_SUM_CHARS:]


def _sum_of(drawn: str) -> str:
    number, digits = binascii.crc32(drawn.encode()), ""
    for _ in range(_SUM_CHARS):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


def check_name(name: str) -> None:
    """Check the name of an identity.

    Raises:
        InvalidArgumentError: it is none.
    """
    if not NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"identity {name!r:.300}; allowed: 1 to 100 of letters, digits, and - _ . after the first"
        )
