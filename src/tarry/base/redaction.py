"""Text for logs and refusals, without tokens: one shown in the wrong place must not be in a log.

It is the second line: nothing that may be a credential is to be put into a text in the first place.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"tarry_[0-9A-Za-z]{12,}")
"""Also a part of a token, and one that is mistyped."""


def without_tokens(text: str) -> str:
    """Return a text with ``tarry_...`` in the place of what looks like a token."""
    return _TOKEN.sub("tarry_...", text) if "tarry_" in text else text
