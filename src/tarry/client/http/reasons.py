"""Errors of connections in words for people.

urllib3 wraps what happened, and says it as Python would.
"""

from __future__ import annotations

import ssl
from http.client import BadStatusLine
from typing import NamedTuple

from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from tarry.client.http.address import HttpAddress
from tarry.link.tls import ClientTls
from tarry.link.tls_errors import is_without_tls, said

_NOT_CONNECTED = (ConnectTimeoutError, NewConnectionError, NameResolutionError)
_TLS_ALERT = "\x15\x03"
"""Beginning of an alert, the answer of a port that takes TLS alone to a request without it."""


class _Where(NamedTuple):
    """Place of a broker, as :mod:`tarry.link.tls_errors` asks for it."""

    text: str
    tls: ClientTls | None
    server_name: str


def reason_of(error: BaseException, address: HttpAddress, tls: ClientTls | None) -> str:
    """Say why there is no answer, and what is allowed instead where that is known.

    ``tls``: what the connection was made with, where the address is of https.
    """
    inner = _innermost(error)
    if isinstance(inner, TimeoutError):
        return "no answer in time"
    if is_without_tls(inner):
        return f"the port does not speak TLS; allowed: http://{address.place}, or a port that has TLS"
    if isinstance(inner, BadStatusLine):
        return _foreign(inner, address)
    if isinstance(inner, ssl.SSLError | OSError):
        server_name = (tls.server_name if tls is not None else None) or address.host
        return said(inner, _Where(address.text, tls if address.is_tls else None, server_name))
    return str(inner)


def is_unsent(error: BaseException) -> bool:
    """Return whether no request has left: there was no connection, or its handshake failed."""
    inner = _innermost(error)
    return isinstance(error, _NOT_CONNECTED) or isinstance(inner, ssl.SSLCertVerificationError) or is_without_tls(inner)


def _innermost(error: BaseException) -> BaseException:
    for inner in (*error.args, error.__cause__):
        if isinstance(inner, BaseException):
            return _innermost(inner)
    return error


def _foreign(error: BadStatusLine, address: HttpAddress) -> str:
    if isinstance(error, ConnectionError):  # RemoteDisconnected, which is both
        return "the connection ended before the answer"
    beginning = str(getattr(error, "line", ""))
    if beginning.startswith(_TLS_ALERT):
        return f"the port speaks TLS; allowed: https://{address.place}, or a port without TLS"
    return f"what answers does not speak HTTP: it begins with {beginning!r:.60}; allowed: the port of the setting http"
