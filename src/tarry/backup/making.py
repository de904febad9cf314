"""Makes a backup of a serving broker in a directory of the same machine.

The broker holds its files as they are at one moment; this copies them, checks the copy as ``tarry verify`` does, and
writes the manifest last. So a backup that is whole is sound, whatever was killed when. The disk of the backup may be
full, or fail: the broker writes nothing there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tarry.api.calls import Calls
from tarry.backup.checking import check_copy
from tarry.backup.files import no_room, refuse_within, sync_directories
from tarry.backup.held_copy import PATIENCE_S, copy_held, held_files
from tarry.backup.manifest import BackupManifest
from tarry.base.errors import InvalidArgumentError, LockedError, TarryError
from tarry.base.version import VERSION
from tarry.log.file_engine import BACKUP_FILE, BEGUN_FILE
from tarry.log.files import sync_directory
from tarry.log.permissions import denial
from tarry.store.place import Place
from tarry.verify.check import Pace


def make_backup(
    broker: Calls, directory: Path, pace: Pace = lambda _: None, patience_s: float = PATIENCE_S
) -> BackupManifest:
    """Make a backup of ``broker`` in a directory: new, empty, or with a backup that was interrupted.

    Everything that was acknowledged before is in it. ``pace`` is called with numbers of bytes read.

    Raises:
        InvalidArgumentError: the directory has something else, or is in one of a broker's; or the broker's logs are in
            an object store.
        LockedError: another backup is being made there. UnavailableError: the broker's files cannot be read here.
        CorruptError: a file of the broker is damaged; there is no backup then. DiskFullError: there is no room.
        OverloadedError: another backup of this broker is under way. NotFoundError: the broker has stopped meanwhile.
    """
    try:
        with _begun(directory):
            with held_files(broker, patience_s) as held:
                files = copy_held(held, broker, directory, pace)
            check_copy(directory, pace)
            store = held.store if Place.of(held.store).local is None else None
            manifest = BackupManifest(held.at_ms, VERSION, store, held.store_version, files)
            sync_directories(directory)
            manifest.write(directory)
    except PermissionError as error:
        # One of the broker's files says itself whose it is.
        if Path(str(error.filename)).is_relative_to(directory):
            raise denial(directory) from error
        raise
    except OSError as error:
        raise no_room(error, directory, "there is no backup; the broker is not concerned. Make some room") from error
    (directory / BEGUN_FILE).unlink(missing_ok=True)
    sync_directory(directory)
    return manifest


@contextmanager
def _begun(directory: Path) -> Iterator[None]:
    """Hold the place of a backup, emptied of one that was interrupted."""
    refuse_within(directory)
    is_new = not directory.exists()
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    there = {path.name for path in directory.iterdir()}
    _check_not_whole(directory)
    if there and BEGUN_FILE not in there:
        raise InvalidArgumentError(
            f"{directory} has {', '.join(sorted(there)[:5])}, which is no backup; allowed: a directory that is new or "
            "empty, or has a backup that was interrupted"
        )
    marker = os.open(directory / BEGUN_FILE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o640)
    try:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LockedError(f"another backup is being made in {directory}; allowed: one at a time") from error
        _check_not_whole(directory)  # again: whoever had it locked may have made one since
        sync_directory(directory)
        _clear(directory)
        try:
            yield
        except (TarryError, OSError):
            _clear(directory)  # it takes room, and is of no use
            (directory / BEGUN_FILE).unlink(missing_ok=True)
            if is_new:
                with suppress(OSError):
                    directory.rmdir()
            raise
    finally:
        os.close(marker)


def _check_not_whole(directory: Path) -> None:
    if (directory / BACKUP_FILE).exists():
        raise InvalidArgumentError(
            f"{directory} has a whole backup already; allowed: a directory that is new or empty, or has a backup that "
            "was interrupted"
        )


def _clear(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != BEGUN_FILE:
            path.unlink()
