"""Attributes of CloudEvents as headers of HTTP, in the binary content mode.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md, 3.1.3: a header is
``ce-NAME``. Its value is printable ASCII without spaces, double quotes and percent signs; those, and all else, are
percent-encoded as UTF-8. Of a receiver it is asked that it takes a value in double quotes, too.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from tarry.base.errors import InvalidMessageError

PREFIX = "ce-"
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def encoded_attribute(value: str) -> str:
    """Return an attribute as the value of a header."""
    return quote(value, safe=_SAFE, errors="replace")


def decoded_attribute(name: str, value: str) -> str:
    """Return the attribute that a header's value is.

    Raises:
        InvalidMessageError: it is not UTF-8.
    """
    quoted = _QUOTED.fullmatch(value)
    text = value if quoted is None else _ESCAPED.sub(r"\1", quoted[1])
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise InvalidMessageError(f"{PREFIX}{name} is {value[:80]!r}; allowed: UTF-8, percent-encoded") from None
