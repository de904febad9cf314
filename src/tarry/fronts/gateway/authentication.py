"""Why the two sides of a link by TCP trust each other: a secret that both have in a file, and TLS.

The secret does not go over the wire. The broker sends a number that it has never sent before, and the gateway answers
with a code (HMAC-SHA-256) that only who has the secret can make of it. Against somebody who sits between the two and
passes everything on, TLS helps: the gateway looks at the broker's certificate.
"""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError
from tarry.fronts.kit.tls import TlsFiles

SECRET_BYTES_MIN = 16
NONCE_BYTES = 32
_PURPOSE = b"tarry gateway 1\0"


@dataclass(frozen=True, slots=True)
class Trust:
    """Of one side. ``secret``: None asks for none; ``tls``, of a gateway: None is plain TCP."""

    secret: bytes | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def of_broker(cls, config: Config, address: str) -> Trust:
        """What gateways that come to an address by TCP have to show and see, by the broker's settings.

        Raises:
            InvalidArgumentError: there is no secret, or a file is not what it should be.
        """
        secret = read_secret(config.gateway_secret)
        if secret is None:
            raise InvalidArgumentError(
                f"gateway is {address!r} and gateway_secret is not given: whoever connected there could do "
                "everything; allowed: gateway_secret=FILE, with what openssl rand -hex 32 makes, or gateway=unix:PATH"
            )
        return cls(secret)

    @classmethod
    def of_gateway(cls, settings: Mapping[str, Any]) -> Trust:
        """What a gateway shows, and whom it believes.

        Raises:
            InvalidArgumentError: a file is not what it should be.
        """
        authorities = settings.get("gateway_tls_ca")
        return cls(read_secret(settings.get("gateway_secret")), None if authorities is None else _client(authorities))

    def proof(self, nonce: bytes) -> bytes:
        """What shows, for this nonce, that one has the secret.

        Raises:
            InvalidArgumentError: there is none here.
        """
        if self.secret is None:
            raise InvalidArgumentError("the broker asks for its secret; needed: --set gateway_secret=FILE")
        return hmac.digest(self.secret, _PURPOSE + nonce, "sha256")

    def check(self, nonce: bytes, proof: bytes) -> None:
        """
        Raises:
            InvalidArgumentError: that is no proof.
        """
        if not hmac.compare_digest(self.proof(nonce), proof):
            raise InvalidArgumentError("a gateway has another secret; allowed: that of the broker's gateway_secret")


def tls_files(config: Config) -> TlsFiles | None:
    """Return the broker's certificate and key; None: plain TCP.

    Raises:
        InvalidArgumentError: only one of the two is given.
    """
    certificate, key = config.gateway_tls_certificate, config.gateway_tls_key
    if (certificate is None) != (key is None):
        raise InvalidArgumentError(
            f"gateway_tls_certificate is {certificate!r}, gateway_tls_key {key!r}; allowed: both or neither"
        )
    return None if certificate is None or key is None else TlsFiles(certificate, key)


def read_secret(name: str | None) -> bytes | None:
    """The secret in a file, without white space around it; None without a file.

    Raises:
        InvalidArgumentError: it cannot be read, or is too short.
    """
    if name is None:
        return None
    try:
        secret = Path(name).read_bytes().strip()
    except OSError as error:
        raise InvalidArgumentError(f"gateway_secret {name!r}: {error.strerror or error}") from error
    if len(secret) < SECRET_BYTES_MIN:
        # What is in the file is not repeated: it would be in the log.
        raise InvalidArgumentError(
            f"gateway_secret {name!r} has {len(secret)} bytes; allowed: {SECRET_BYTES_MIN} or more, "
            "such as openssl rand -hex 32 makes"
        )
    return secret


def _client(authorities: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(authorities)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgumentError(f"gateway_tls_ca {authorities!r} has no certificates, in PEM: {error}") from error
    return context
