"""Makes a data directory of a backup, which stays as it is.

Until all is there and sound, a file in the directory says that it is being made, and no broker opens it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tarry.backup.acknowledged import GroupChange, take_back
from tarry.backup.checking import STORE, check_copy
from tarry.backup.files import copy_content, no_room, refuse_within, sync_directories
from tarry.backup.manifest import BackupManifest, FileMark
from tarry.backup.sources import BackupSource, source_of
from tarry.backup.store_files import check_store, copy_store
from tarry.base.errors import CorruptError, InvalidArgumentError, TarryError
from tarry.log.file_engine import BACKUP_FILE, LOCK_FILE, RESTORING_FILE, hold_directory
from tarry.log.files import OsFiles, sync_directory
from tarry.log.permissions import DISK_DIRECTORY
from tarry.verify.check import Pace

_ALLOWED_BESIDE = (DISK_DIRECTORY, LOCK_FILE)
"""Names in an empty file system, or left by a restore that was refused."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The manifest of a restored backup, and the groups of which acknowledgements were taken back."""

    manifest: BackupManifest
    changes: Sequence[GroupChange]


def restore(
    backup: Path | str,
    data: Path,
    *,
    acknowledged_until_ms: int | None = None,
    groups: Sequence[tuple[str, str]] = (),
    pace: Pace = lambda _: None,
) -> Restored:
    """Make the data directory ``data``, which is new or empty, of the backup at a path or URI.

    ``acknowledged_until_ms``: see :func:`tarry.backup.acknowledged.take_back`; of ``groups`` (topic, name), or of all.

    Raises:
        UnavailableError: object storage gives no answer.
        NotFoundError: ``backup`` is none; a group is not in it; its store's version is not there any more.
        CorruptError: it is not whole, or damaged; nothing is left in ``data``.
        InvalidArgumentError: ``data`` has files, or is in a directory of a broker or a backup.
        LockedError: a broker uses ``data``. DiskFullError: there is no room.
    """
    source = source_of(backup)
    manifest = source.manifest()
    if manifest.store is not None:
        check_store(manifest.store, manifest.store_version)
    refuse_within(data)
    _check_empty(data)
    try:
        lock = hold_directory(data)
        try:
            return _restore(manifest, source, data, acknowledged_until_ms, groups, pace)
        finally:
            lock.release()
    except OSError as error:
        raise no_room(error, data, "nothing was restored. Make some room") from error


def _check_empty(data: Path) -> None:
    there = {path.name for path in data.iterdir()} if data.exists() else set()
    others = there.difference(_ALLOWED_BESIDE)
    if others and RESTORING_FILE not in there:
        raise InvalidArgumentError(
            f"{data} has {', '.join(sorted(others)[:5])}; allowed: a directory that is new or empty, or that a restore "
            "was interrupted in"
        )


def _restore(
    manifest: BackupManifest,
    backup: BackupSource,
    data: Path,
    until_ms: int | None,
    groups: Sequence[tuple[str, str]],
    pace: Pace,
) -> Restored:
    OsFiles().replace(data / RESTORING_FILE, f"of {backup.path(BACKUP_FILE)}\n".encode())
    try:
        _clear(data)
        with ThreadPoolExecutor(backup.files_at_once, thread_name_prefix="tarry-restore") as threads:
            copies = [threads.submit(_copy, backup, data, *each, pace) for each in manifest.files.items()]
            try:
                for copied in copies:
                    copied.result()
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        if manifest.store is not None:
            copy_store(manifest.store, manifest.store_version, data / STORE, pace, link=False)
        check_copy(data, pace)
        changes = [] if until_ms is None else take_back(data, until_ms, groups)
        sync_directories(data)
    except (TarryError, OSError):
        _clear(data)
        (data / RESTORING_FILE).unlink(missing_ok=True)
        raise
    (data / RESTORING_FILE).unlink()
    sync_directory(data)
    return Restored(manifest, changes)


def _copy(backup: BackupSource, data: Path, name: str, mark: FileMark, pace: Pace) -> None:
    place = backup.path(name)
    try:
        with backup.open(name) as file:
            copied = copy_content(file, data / name, pace, mode=backup.mode(name))
    except FileNotFoundError as error:
        if not data.exists():
            raise
        raise CorruptError(f"{place} is missing; the backup had it") from error
    if (what := mark.differs(copied)) is not None:
        raise CorruptError(f"{place} is damaged: {what}; allowed: a backup as it was made")


def _clear(data: Path) -> None:
    for path in data.iterdir():
        if path.name in (RESTORING_FILE, *_ALLOWED_BESIDE):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
