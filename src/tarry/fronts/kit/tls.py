"""TLS for servers, from a certificate file and its key file."""

from __future__ import annotations

import ssl

from tarry.base.errors import InvalidArgumentError


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return a TLS context for a server, for TLS 1.2 or newer.

    Raises:
        InvalidArgumentError: the files are no certificate and its key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgumentError(
            f"{certificate!r} and {key!r} are no certificate and its private key, in PEM: {error}"
        ) from error
    return context
