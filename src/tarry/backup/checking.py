"""Checks of copies: of a data directory, as by ``tarry verify``, and of a backup by its manifest."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tarry.backup.files import mark_of
from tarry.backup.manifest import BackupManifest, FileMark
from tarry.backup.sources import BackupSource
from tarry.base.errors import CorruptError, NotFoundError
from tarry.broker.verification import plan_checks
from tarry.log.file_engine import BACKUP_FILE, BEGUN_FILE, RESTORING_FILE
from tarry.verify import Check, Finding
from tarry.verify.check import Pace, Results

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


def manifest_of(directory: Path) -> BackupManifest | None:
    """Return the manifest of a backup; None: the directory is none.

    Raises:
        CorruptError: it is a backup that was interrupted, or a directory that was not restored to the end.
    """
    if (directory / RESTORING_FILE).exists():
        raise CorruptError(
            f"{directory} was not restored to the end, or is being restored; allowed: a whole one. The same tarry "
            "restore again begins it anew"
        )
    if not any((directory / name).exists() for name in (BACKUP_FILE, BEGUN_FILE)):
        return None
    try:
        return BackupManifest.read(directory)
    except NotFoundError:  # it was finished just now, and moved
        return None


def manifest_checks(backup: BackupSource, manifest: BackupManifest) -> Iterator[Check]:
    """Yield a check of each file of a backup: whether it is as the manifest says, and there at all."""
    for name, mark in manifest.files.items():
        yield Check(BACKUP_FILE, backup.path(name), mark.size, partial(_compare, backup, name, mark))


def _compare(backup: BackupSource, name: str, mark: FileMark, pace: Pace) -> Results:
    try:
        with backup.open(name) as file:
            what = mark.differs(mark_of(file, pace))
    except FileNotFoundError:
        what = "it is missing; the backup had it"
    if what is not None:
        advice = "take another copy of it, or another one"
        yield Finding(backup.path(name), None, what, "Nothing is restored of this backup.", advice)
