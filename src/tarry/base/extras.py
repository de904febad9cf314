"""Parts of Tarry that need more packages: each names its extra, and how to install it."""

from __future__ import annotations

from tarry.base.errors import NativeOnlyError


def install(*requirements: str) -> str:
    """Return the command that installs distributions of Tarry."""
    # Not by the names alone: no index of packages has Tarry.
    words = " ".join(f"'{each}'" if "[" in each else each for each in requirements)
    return f"pip install --find-links dist {words} (dist: the directory of Tarry's wheels)"


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra."""
    return install(f"tarry[{extra}]")


NATIVE = "tarry-client[native]"
"""The requirement that a client of the native link is installed by."""


def needs_native(what: str, address: str) -> NativeOnlyError:
    """Return the error that ``what`` needs the native link, and that a client of this address speaks HTTP."""
    return NativeOnlyError(
        f"{address} is an address of HTTP, which has no way {what}; allowed: an address of the native link, "
        f"HOST:PORT, with {install(NATIVE)}"
    )


def needs_arrow(what: str) -> NativeOnlyError:
    """Return the error that the answer to ``what`` is Arrow's, which a client without pyarrow cannot read."""
    return NativeOnlyError(f"the answer to {what} is Arrow's, and pyarrow is not installed; allowed: {install(NATIVE)}")


def native_missing(address: object, error: ImportError) -> NativeOnlyError:
    """Return the error: an address is of the native link, which needs what is not installed."""
    return NativeOnlyError(
        f"the address {address!r:.300} is of the native link: the module {error.name!r} is not installed; "
        f"allowed: {install(NATIVE)}, or http://HOST:PORT, an address of the broker's HTTP front"
    )


def not_installed(what: str, error: ImportError) -> str:
    """Return the text of an error: ``what`` needs a module that could not be imported.

    One of Tarry's, or another's.
    """
    name = error.name or ""
    requirement = "tarry" if name.startswith("tarry.") else NATIVE
    return f"{what} needs the module {name!r}, which is not installed; allowed: {install(requirement)}"


def missing_extra(what: str, extra: str, error: ImportError, otherwise: str = "") -> str:
    """Return the text of an error: ``what`` needs an extra, to which the failed import belongs.

    ``otherwise``: what can be done without it.
    """
    lacking = f"the module {error.name!r} is not installed" if error.name else str(error)
    instead = f", or {otherwise}" if otherwise else ""
    return f"{what} needs the extra {extra!r}: {lacking}; allowed: {how_to_install(extra)}{instead}"
