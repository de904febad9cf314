"""Access tokens: the credentials of callers of the HTTP front.

A broker keeps the SHA-256 of a secret, never the secret.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

from tarry.base.errors import InvalidArgumentError

EVERYTHING = "*"
"""The namespace of a token that is for all namespaces, and for what has none."""
SECRET_CHARS_MIN, SECRET_CHARS_MAX = 20, 255
DESCRIPTION_CHARS_MAX = 255

_NAMESPACE = re.compile(r"[-_A-Za-z0-9]{1,255}")
_SECRET = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token, as it is kept; as it is listed, without its digest (:func:`shown`)."""

    id: str
    """Names the token and tells nothing of its secret."""
    namespace: str
    """The namespace that the token is for; "*": everything."""
    description: str
    created_ms: int
    digest: str
    """SHA-256 of the secret, in hexadecimal; empty in answers to clients."""
    reads_max: int = 0
    """Messages may be asked for so often in ``interval_ms``; 0: any number of times."""
    writes_max: int = 0
    """Messages may be scheduled so often in ``interval_ms``; 0: any number of times."""
    interval_ms: int = 0


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """A token that was just made, with its secret, which is shown only now."""

    id: str
    secret: str
    namespace: str
    description: str


def shown(token: AccessToken) -> AccessToken:
    """Return a token as clients are shown it, without its digest.

    By that, a secret that people made up could be guessed.
    """
    return replace(token, digest="")


def digest_of(secret: str) -> str:
    """SHA-256 of a secret, in hexadecimal. A caller's may have any characters."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def token_id(namespace: str, secret: str) -> str:
    """Return the ``id`` of the token of a namespace that has this secret."""
    return digest_of(f"{namespace}/{secret}")[:16]


def check_namespace(namespace: str) -> None:
    """Check a namespace.

    Raises:
        InvalidArgumentError: it is no namespace.
    """
    if namespace != EVERYTHING and not _NAMESPACE.fullmatch(namespace):
        raise InvalidArgumentError(
            f"namespace is {namespace!r:.300}; allowed: 1 to 255 of letters, digits, - and _, or * for everything"
        )


def check_secret(secret: str) -> None:
    """Check a secret.

    Raises:
        InvalidArgumentError: it may not be a secret. The text does not repeat it.
    """
    if not SECRET_CHARS_MIN <= len(secret) <= SECRET_CHARS_MAX or not _SECRET.fullmatch(secret):
        raise InvalidArgumentError(
            f"the secret has {len(secret)} characters; allowed: {SECRET_CHARS_MIN} to {SECRET_CHARS_MAX} of ASCII, "
            "without spaces and control characters"
        )


def check_description(description: str) -> None:
    """Check a description.

    Raises:
        InvalidArgumentError: it is too long, or no line of text.
    """
    if len(description) > DESCRIPTION_CHARS_MAX or not description.isprintable():
        raise InvalidArgumentError(
            f"description is {description!r:.300}; allowed: up to {DESCRIPTION_CHARS_MAX} printable characters"
        )
