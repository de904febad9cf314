"""Checks of a copy of a data directory, those of ``tarry verify``."""

from __future__ import annotations

from pathlib import Path

from tarry.base.errors import CorruptError
from tarry.broker.verification import plan_checks
from tarry.verify import Finding
from tarry.verify.check import Pace

STORE = "store"
"""Directory of the store in a copy."""
_FINDINGS_MAX = 10


def check_copy(directory: Path, pace: Pace) -> None:
    """Check every file of a copy, and of the store in it.

    Raises:
        CorruptError: some are damaged; with what was found.
    """
    store = directory / STORE
    checks = plan_checks(directory, str(store) if store.exists() else None)
    findings = [each for check in checks for each in check.results(pace) if isinstance(each, Finding)]
    if findings:
        told = "; ".join(str(each) for each in findings[:_FINDINGS_MAX])
        raise CorruptError(f"{len(findings)} damaged: {told}")
