"""TLS of requests to others: whom it trusts."""

from __future__ import annotations

import ssl

from tarry.base.errors import InvalidArgumentError


def client_context(ca_file: str | None, setting: str) -> ssl.SSLContext:
    """Return a context that trusts the system's authorities, and those of a file that a setting names.

    Raises:
        InvalidArgumentError: the file has no authorities.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ValueError) as error:  # ValueError: a path that is none
            raise InvalidArgumentError(
                f"{setting} {ca_file}: {_why(error)}; allowed: a PEM file of certificates"
            ) from error
    return context


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "it has no certificate, or a broken one"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
