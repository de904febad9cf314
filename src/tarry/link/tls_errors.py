"""Errors of TLS in words for people: what was wrong, and what is allowed."""

from __future__ import annotations

import os
import ssl
from typing import Protocol

from tarry.link.tls import ClientTls

_EXPIRED, _NOT_YET = 10, 9
_NOT_TRUSTED = (2, 18, 19, 20, 21)
_OTHER_NAME = (62, 64)
"""Results of checking a certificate, by OpenSSL's numbers (x509_vfy.h)."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")
_OF_CERTIFICATES = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
"""Parts of alerts' names that tell a client to show a certificate, or another one."""

_ENDED = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, EOFError)
"""Errors of a connection that the other side has closed."""


class Where(Protocol):
    """A broker's address, as :class:`tarry.link.address.BrokerAddress` is one."""

    @property
    def text(self) -> str:
        """The address for people."""
        ...

    @property
    def tls(self) -> ClientTls | None:
        """None: without TLS."""
        ...

    @property
    def server_name(self) -> str:
        """The name that the broker's certificate must have."""
        ...


def said(error: Exception | None, where: Where) -> str:
    """Say why there is no connection.

    ``error``: of connecting, or of an end before the broker's greeting.
    """
    if where.tls is None:
        return _of_the_system(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _unverified(error, where)
    if isinstance(error, ssl.SSLError):
        return _failed(error, where)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if type(error) in _ENDED:
        return f"the connection ended before the broker's greeting{_perhaps(where)}"
    return _of_the_system(error)


def is_final(error: BaseException | None) -> bool:
    """Return whether an error of connecting says that one side's TLS is not what the other takes."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)


def is_without_tls(error: BaseException | None) -> bool:
    """Return whether an error of a handshake says that the other side does not speak TLS."""
    return isinstance(error, ssl.SSLError) and error.reason in _NO_TLS


def _of_the_system(error: Exception | None) -> str:
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:  # asyncio has another text for it
        return os.strerror(number)
    return str(getattr(error, "strerror", None) or error)


def _unverified(error: ssl.SSLCertVerificationError, where: Where) -> str:
    code, tls = error.verify_code, where.tls
    if code == _EXPIRED:
        return "the broker's certificate has expired; allowed: one that has not (setting tls_certificate)"
    if code == _NOT_YET:
        return "the broker's certificate is not valid yet; allowed: one that is, if this machine's clock is right"
    if code in _OTHER_NAME:
        return (
            f"the broker's certificate is not for {where.server_name!r}; allowed: an address by a name that it has, or "
            "that name as ClientTls(server_name=...)"
        )
    if code in _NOT_TRUSTED:
        ca = None if tls is None else tls.ca
        trusted = "the system's authorities" if ca is None else f"an authority of {ca!r}"
        return (
            f"the broker's certificate is not signed by {trusted}; allowed: the file of who signed it, or of itself if "
            "it is self-signed, as TARRY_CA, tls_ca or ClientTls(ca=...)"
        )
    return f"the broker's certificate is refused ({error.verify_message}); allowed: a valid one"


def _failed(error: ssl.SSLError, where: Where) -> str:
    reason = error.reason or ""
    if is_without_tls(error):
        return f"the port does not speak TLS; allowed: {where.text.removeprefix('tls://')}, or a port that has TLS"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return f"the connection ended before the broker's greeting{_perhaps(where)}"
    if "ALERT" in reason and any(part in reason for part in _OF_CERTIFICATES):
        return _certificate(where)
    if "PROTOCOL_VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
        return "the port speaks an older TLS; allowed: 1.2 or newer"
    return f"TLS failed ({reason.lower().replace('_', ' ') or 'no reason is known'}); allowed: a broker's port in TLS"


def _perhaps(where: Where) -> str:
    return f", as with a broker that asks for certificates (tls_client_ca): {_certificate(where)}"


def _certificate(where: Where) -> str:
    tls = where.tls
    if tls is None or tls.certificate is None:
        return (
            "the client shows no certificate; allowed: one that an authority of the broker has signed, with its key, "
            "as TARRY_CERTIFICATE and TARRY_KEY, tls_certificate and tls_key, or ClientTls(certificate=..., key=...)"
        )
    return f"the broker does not take {tls.certificate!r}; allowed: a valid one that its authorities have signed"
