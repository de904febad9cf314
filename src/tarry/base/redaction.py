"""Text for logs and refusals, without tokens: one shown in the wrong place must not be in a log.

It is the second line: nothing that may be a credential is to be put into a text in the first place.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"tarry_[0-9A-Za-z]{12,}")
"""Also a part of a token, and one that is mistyped."""

_JWT = re.compile(r"eyJ[-_0-9A-Za-z]{8,}(\.[-_0-9A-Za-z]*){0,2}")
"""A JSON Web Token, or its beginning: it begins with ``{"`` in base64."""


def without_tokens(text: str) -> str:
    """Return a text with ``tarry_...`` or ``eyJ...`` in the place of what looks like a token."""
    if "tarry_" in text:
        text = _TOKEN.sub("tarry_...", text)
    return _JWT.sub("eyJ...", text) if "eyJ" in text else text
