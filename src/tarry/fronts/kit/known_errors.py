"""Errors as clients are told of them: a refusal as it is, a bug as no more than that there is one."""

from __future__ import annotations

import logging

from tarry.base.errors import TarryError

log = logging.getLogger(__name__)

INTERNAL = "internal error; see the broker's log"


def known(error: BaseException, text: str = INTERNAL) -> TarryError:
    """Return the error itself, or, where it is a bug, log it and return one of that text."""
    if isinstance(error, TarryError):
        return error
    log.error("a call failed", exc_info=error)
    return TarryError(text)
