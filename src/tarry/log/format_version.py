"""The text for a file whose format this program does not read: a newer one's, or a damaged one."""

from __future__ import annotations

from collections.abc import Sequence

from tarry.base.version import VERSION


def is_newer(found: object, readable: Sequence[int]) -> bool:
    """Return whether a version was given to a format after this program was released."""
    return isinstance(found, int) and not isinstance(found, bool) and found > max(readable)


def newer_format(what: str, found: object, readable: Sequence[int]) -> str:
    """Return the refusal of ``what``, which a newer program has written."""
    return (
        f"{what} is of format version {found}, which a newer Tarry wrote; this one, {VERSION}, reads "
        f"{told(readable)}. Nothing was changed. Install the release that wrote it, or a newer one; or go back to a "
        "backup from before the upgrade"
    )


def told(versions: Sequence[int]) -> str:
    """Return versions as people read them."""
    low, high = min(versions), max(versions)
    return f"version {low}" if low == high else f"versions {low} to {high}"
