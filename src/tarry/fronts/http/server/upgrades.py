"""Offers to change to another protocol, as HTTP/2, which are passed over (RFC 9110, section 7.8).

Clients make them by themselves, as Java's HttpClient does with the first request of a connection. The parser takes what
follows such a request's headers for the other protocol's. So the head is written anew without the offer.
"""

from __future__ import annotations

import httptools

from tarry.fronts.http.exchange import Headers

_OFFER = frozenset((b"upgrade", b"http2-settings"))


def without_offer(parser: httptools.HttpRequestParser, target: bytes, headers: Headers) -> bytes:
    """Return the head of a request, which ``parser`` has just read, without the offer."""
    version = parser.get_http_version().encode()
    lines = [b"%b %b HTTP/%b\r\n" % (parser.get_method(), target, version)]
    for name, value in headers:
        if name == b"connection":
            value = b", ".join(each for each in map(bytes.strip, value.split(b",")) if each.lower() not in _OFFER)
        if name not in _OFFER:
            lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join((*lines, b"\r\n"))
