"""Identities: who may be known to a broker, by which credentials, with which rights.

A broker keeps the SHA-256 of a token, never the token.
"""

from __future__ import annotations

import binascii
import re
import secrets
from dataclasses import dataclass
from typing import Literal

from tarry.base.errors import InvalidArgumentError

CredentialKind = Literal["token"]

NAME = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,99}")
TOKEN_PREFIX = "tarry_"
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_CHARS, _SUM_CHARS = 32, 6
_TOKEN = re.compile(rf"{TOKEN_PREFIX}[0-9A-Za-z]{{{_RANDOM_CHARS + _SUM_CHARS}}}")


@dataclass(frozen=True, slots=True)
class Credential:
    """A way in which an identity shows who it is, as it is kept and listed."""

    id: str
    """Names the credential, and tells nothing of its secret."""
    kind: CredentialKind
    description: str
    created_ms: int
    expires_ms: int | None
    """It is refused from then on; None: never."""
    digest: str
    """SHA-256 of the token, in hexadecimal."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who may be known: a service, a team, a person."""

    name: str
    grants: list[str]
    """Lines of rights; see ``docs/identity.md``."""
    description: str
    created_ms: int
    credentials: list[Credential]


@dataclass(frozen=True, slots=True)
class IssuedCredential:
    """A credential that was just made, with its secret, which is shown only now."""

    id: str
    identity: str
    secret: str
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class WhoIs:
    """The identity of a caller, and its rights."""

    identity: str
    grants: list[str]
    credential: str | None
    """Id of the credential that was shown; None: nobody is asked."""


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """An answer to the question whether an identity may do something."""

    identity: str
    allowed: bool


def new_token() -> str:
    """Return a new secret: 190 random bits, and a checksum that tells a mistyped one.

    Its form is that of GitHub's tokens, which secret scanners know: https://github.blog/2021-04-05-behind-githubs-new-authentication-token-formats/
    """
    drawn = "".join(secrets.choice(_DIGITS) for _ in range(_RANDOM_CHARS))
    return TOKEN_PREFIX + drawn + _sum_of(drawn)


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
