"""TLS of the side that connects: whom it trusts, and what it shows.

The broker's certificate is always checked. A certificate that a broker has made itself is trusted by giving it as
``ca``.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.base.file_changes import stamp_of

VARIABLES = {"ca": "TARRY_CA", "certificate": "TARRY_CERTIFICATE", "key": "TARRY_KEY"}
"""Environment variables, by field.

``TARRY_TLS_CERTIFICATE`` and ``TARRY_TLS_KEY`` are settings of a broker.
"""
CONTEXTS_MAX = 16
"""Contexts that a process keeps: to read the system's authorities takes 20 ms and more."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """PEM files of a client, and the name that the broker's certificate must have. TLS 1.2 or newer."""

    ca: str | None = None
    """Authorities, one of which must have signed the broker's certificate; None: the system's."""
    certificate: str | None = None
    """Certificate that is shown to a broker which asks for one (mTLS)."""
    key: str | None = None
    """Its private key, which is not encrypted."""
    server_name: str | None = None
    """Name that the broker's certificate must have; None: the host of the address."""

    def __post_init__(self) -> None:
        """Check what is given.

        Raises:
            InvalidArgumentError: there is a certificate without its key, or a key without its certificate.
        """
        if (self.certificate is None) != (self.key is None):
            raise InvalidArgumentError(
                f"the client's certificate is {self.certificate!r}, its key {self.key!r}; allowed: both or neither"
            )

    @classmethod
    def of(cls, given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> ClientTls:
        """Return TLS by these fields, and by the environment's variables for those that are not given.

        Raises:
            InvalidArgumentError: see :class:`ClientTls`.
        """
        environment = os.environ if environment is None else environment
        has_own = "certificate" in given or "key" in given  # the variables' other half would not fit
        known = {
            name: environment[variable]
            for name, variable in VARIABLES.items()
            if environment.get(variable) and (name == "ca" or not has_own)
        }
        return cls(**{**known, **given})

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection; files that have changed are read again.

        Raises:
            InvalidArgumentError: a file is not what it should be.
        """
        paths = (self.ca, self.certificate, self.key)
        return _context(*paths, tuple(stamp_of(path) for path in paths if path is not None))

    def context_now(self) -> ssl.SSLContext:
        """Return the same, where the files were checked before.

        Raises:
            UnavailableError: a file is not what it should be; it may be that it is being replaced.
        """
        try:
            return self.context()
        except InvalidArgumentError as error:
            raise UnavailableError(str(error)) from error


@lru_cache(CONTEXTS_MAX)
def _context(
    ca: str | None, certificate: str | None, key: str | None, stamps: tuple[tuple[int, ...], ...]
) -> ssl.SSLContext:
    return client_context(ca, certificate, key)


def client_context(ca: str | None, certificate: str | None, key: str | None, named: str = "ca") -> ssl.SSLContext:
    """Return a context of these files; ``named``: what a user calls the first.

    Raises:
        InvalidArgumentError: a file is not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(ca)
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(f"{named} {ca!r} has no certificates, in PEM: {error}") from error
    if certificate is not None and key is not None:
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(
                f"{certificate!r} and {key!r} are no certificate and its private key, in PEM: {error}"
            ) from error
    return context


def _no_password() -> str:
    # Else OpenSSL would ask for it at the terminal.
    raise ValueError("the key is encrypted; allowed: one that is not")
