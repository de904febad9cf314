"""Authentication of TCP links: a secret that both sides have in a file, and TLS.

The secret does not go over the wire. The broker sends a number that it has never sent before, and the gateway answers
with a code (HMAC-SHA-256) that only an owner of the secret can make of it. Against somebody who sits between the two
and passes everything on, TLS helps: the gateway checks the broker's certificate.
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
from tarry.fronts.gateway.settings import GatewaySettings
from tarry.fronts.kit.tls_settings import PortTls, both_or_neither, port_tls, shared_files, with_certificate
from tarry.link.tls import ClientTls, client_context

SECRET_BYTES_MIN = 16
_PURPOSE = b"tarry gateway 1\0"


@dataclass(frozen=True, slots=True)
class Trust:
    """The credentials of one side.

    ``secret``: None asks for none; ``files``, of a gateway: None is plain TCP.
    """

    secret: bytes | None = None
    files: ClientTls | None = None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """A gateway's context for a new connection; files that have changed are read again. None: without TLS.

        Raises:
            UnavailableError: a file is not what it should be; it may be that it is being replaced.
        """
        return None if self.files is None else self.files.context_now()

    @classmethod
    def of_broker(cls, settings: GatewaySettings, address: str, tls: PortTls) -> Trust:
        """Return the broker's credentials for gateways that connect to an address by TCP, from its settings.

        Without a secret, gateways are known by their certificates, for which TLS has to ask.

        Raises:
            InvalidArgumentError: there is no secret, or a file is not what it should be.
        """
        secret = read_secret(settings.gateway_secret)
        if secret is None and (tls.files is None or tls.files.client_ca is None):
            raise InvalidArgumentError(
                f"gateway is {address!r} and gateway_secret is not given: whoever connected there could do "
                "everything; allowed: gateway_secret=FILE, with what openssl rand -hex 32 makes; tls_client_ca, and "
                "identities of gateways with certificates; or gateway=unix:PATH"
            )
        return cls(secret)

    @classmethod
    def of_gateway(cls, settings: Mapping[str, Any]) -> Trust:
        """Return a gateway's credentials: its secret, the authorities it trusts, and its certificate.

        Raises:
            InvalidArgumentError: a file is not what it should be.
        """
        authorities = settings.get("gateway_tls_ca")
        own = both_or_neither("tls", settings.get("tls_certificate"), settings.get("tls_key"))
        # A broker that asks for a certificate is shown the gateway's own.
        certificate, key = own or (None, None)
        secret = read_secret(settings.get("gateway_secret"))
        if authorities is None:
            return cls(secret)
        client_context(authorities, certificate, key, "gateway_tls_ca")  # refuses files that are none, by their setting
        return cls(secret, ClientTls(authorities, certificate, key))

    def proof(self, nonce: bytes) -> bytes:
        """Return the proof, for this nonce, of owning the secret.

        Raises:
            InvalidArgumentError: there is none here.
        """
        if self.secret is None:
            raise InvalidArgumentError("the broker asks for its secret; needed: --set gateway_secret=FILE")
        return hmac.digest(self.secret, _PURPOSE + nonce, "sha256")

    def check(self, nonce: bytes, proof: bytes) -> None:
        """Refuse a wrong proof.

        Raises:
            InvalidArgumentError: the proof was not made with this secret.
        """
        if not hmac.compare_digest(self.proof(nonce), proof):
            raise InvalidArgumentError("a gateway has another secret; allowed: that of the broker's gateway_secret")


def gateway_tls(config: Config) -> PortTls:
    """Return the broker's TLS for gateways by TCP: by their own settings, or else those of all ports.

    Raises:
        InvalidArgumentError: the settings contradict each other.
    """
    settings = GatewaySettings.of(config)
    own = both_or_neither("gateway_tls", settings.gateway_tls_certificate, settings.gateway_tls_key)
    if own is None:
        return port_tls(config, "gateway")
    return PortTls(with_certificate(shared_files(config), *own))


def read_secret(name: str | None) -> bytes | None:
    """Return the secret in a file, without white space around it; None without a file.

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
        # The content of the file is not repeated: it would be in the log.
        raise InvalidArgumentError(
            f"gateway_secret {name!r} has {len(secret)} bytes; allowed: {SECRET_BYTES_MIN} or more, "
            "such as openssl rand -hex 32 makes"
        )
    return secret
