"""Base64 for URLs, faster than the library's: it is made once or twice a message."""

from __future__ import annotations

import binascii

_URLSAFE = bytes.maketrans(b"+/", b"-_")


def base64url(data: bytes) -> str:
    """Encode ``data`` by RFC 4648, section 5, with padding."""
    return binascii.b2a_base64(data, newline=False).translate(_URLSAFE).decode("ascii")
