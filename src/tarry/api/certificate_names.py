"""Names in client certificates, by which an identity may be known.

A name is written with its kind in front, so that none is taken for one of another kind: ``URI:spiffe://example/billing``
and ``DNS:billing.example`` are alternative names of the subject (SAN); ``CN:billing`` is its common name, which counts
in certificates without alternative names alone.
"""

from __future__ import annotations

import re

from tarry.base.errors import InvalidArgumentError

URI, DNS, COMMON_NAME = "URI:", "DNS:", "CN:"
NAME_CHARS_MAX = 2048
"""SPIFFE's limit on a URI."""
_URI = re.compile(r"[A-Za-z][-+.A-Za-z0-9]*:[!-~]+")
_LABEL = r"[A-Za-z0-9_](?:[-_A-Za-z0-9]{0,61}[A-Za-z0-9_])?"
_DNS = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")


def checked_name(text: str) -> str:
    """Return a name with its kind in front.

    Of a text without one: it is a URI with ``://`` in it, and a DNS name otherwise.

    Raises:
        InvalidArgumentError: it is none.
    """
    kind = next((each for each in (URI, DNS, COMMON_NAME) if text.startswith(each)), None)
    value = text if kind is None else text.removeprefix(kind)
    if kind is None:
        kind = URI if "://" in value else DNS
    if len(value) <= NAME_CHARS_MAX:
        if kind == URI and _URI.fullmatch(value):
            return kind + value
        if kind == DNS and _DNS.fullmatch(value):
            return kind + value.lower()
        if kind == COMMON_NAME and value and value.isprintable():
            return kind + value
    raise InvalidArgumentError(
        f"san {text!r:.300}; allowed: a URI, as spiffe://example/billing; a DNS name without '*'; "
        f"or CN: and the common name of a certificate that has neither"
    )
