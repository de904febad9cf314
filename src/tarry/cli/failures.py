"""The reason for which a broker in this process has failed, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarry.base.errors import CorruptError, FatalError, OwnershipLostError, TarryError


def failure_of(status: Mapping[str, Any]) -> TarryError:
    """Return the error of a broker whose status says that it has failed."""
    if status["fatal_code"] == CorruptError.code:
        how = "copy the data directory, then see 'When a file is damaged' in docs/operations.md"
        return CorruptError(f"{status['fatal']}; the broker has stopped, and lost nothing else: {how}")
    if status["fatal_code"] == OwnershipLostError.code:
        return OwnershipLostError(f"{status['fatal']}; see docs/high-availability.md")
    how = "start again when the disk is sound"
    return FatalError(f"{status['fatal']}; what was acknowledged is on disk: {how}")
