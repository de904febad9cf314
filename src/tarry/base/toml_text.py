"""Values written as TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def quoted(text: str) -> str:
    """Return a text as a string of TOML."""
    # JSON's strings are TOML's, but for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def inline_table(fields: Mapping[str, str]) -> str:
    """Return a table of one line, of values that are TOML already."""
    given = [f"{name if _BARE.fullmatch(name) else quoted(name)} = {value}" for name, value in fields.items()]
    return f"{{ {', '.join(given)} }}" if given else "{}"
