"""Text that is safe for a terminal, whoever wrote it.

Characters that would steer it, hide, or turn the text around them are written as Python's ``repr`` does.
"""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """``text``, its characters that cannot be printed as ``\\x1b`` and the like; those of ``keep`` stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def shown(value: object, most: int = 80) -> str:
    """Return a value for an error text: quoted, and cut if it is long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
