"""What Tarry can do only with more packages: each such part names its extra, and how to get it."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """The command that brings an extra."""
    # Not by the name alone: no index of packages has Tarry.
    return f"pip install '.[{extra}]' in a checkout of Tarry"


def missing_extra(what: str, extra: str, error: ImportError, otherwise: str = "") -> str:
    """The text of an error: ``what`` needs an extra, of which the import that failed is a part; ``otherwise``: what can
    be done without.
    """
    lacking = f"the module {error.name!r} is not installed" if error.name else str(error)
    instead = f", or {otherwise}" if otherwise else ""
    return f"{what} needs the extra {extra!r}: {lacking}; allowed: {how_to_install(extra)}{instead}"
