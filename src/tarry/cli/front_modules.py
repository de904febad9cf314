"""Fronts whose modules may not be installed: what to install, where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tarry.base.errors import NotFoundError


@contextmanager
def named_extra(setting: str, front: str) -> Iterator[None]:
    """Say what to install, where a front lacks a module.

    Raises:
        NotFoundError: it lacks one.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise NotFoundError(
            f"the {front} front needs the module {error.name!r}, which is not installed; "
            f"allowed: pip install 'tarry[{front.lower()}]', or no {setting} address"
        ) from error
