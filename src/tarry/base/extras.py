"""Parts of Tarry that need more packages: each names its extra, and how to install it."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra."""
    # Not by the name alone: no index of packages has Tarry.
    return f"pip install '.[{extra}]' in a checkout of Tarry"


def missing_extra(what: str, extra: str, error: ImportError, otherwise: str = "") -> str:
    """Return the text of an error: ``what`` needs an extra, to which the failed import belongs.

    ``otherwise``: what can be done without it.
    """
    lacking = f"the module {error.name!r} is not installed" if error.name else str(error)
    instead = f", or {otherwise}" if otherwise else ""
    return f"{what} needs the extra {extra!r}: {lacking}; allowed: {how_to_install(extra)}{instead}"
