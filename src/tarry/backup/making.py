"""Makes a backup of a serving broker in a directory of the same machine.

The broker holds its files as they are at one moment; this copies them, checks the copy as ``tarry verify`` does, and
writes the manifest last. So a backup that is whole is sound, whatever was killed when. The disk of the backup may be
full, or fail: the broker writes nothing there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tarry.api.backups import HeldFiles
from tarry.api.calls import Calls
from tarry.backup.checking import STORE, check_copy
from tarry.backup.files import copy_file, files_below, link_file, no_room, refuse_within, sync_directories
from tarry.backup.manifest import BackupManifest, FileMark
from tarry.backup.store_files import check_store, copy_store
from tarry.base.errors import (
    InvalidArgumentError,
    LockedError,
    NotFoundError,
    OverloadedError,
    TarryError,
    UnavailableError,
)
from tarry.base.version import VERSION
from tarry.log.file_engine import BACKUP_FILE, BEGUN_FILE, LOCK_FILE
from tarry.log.files import sync_directory
from tarry.store.place import Place
from tarry.verify.check import Pace

PATIENCE_S = 40.0
"""Longest wait for another backup's hold to end.

That of one that was killed lasts for half a minute.
"""


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
            with _held(broker, patience_s) as held:
                names = _names_in(held, broker)
                files = _copy(held, names, directory, pace)
            check_copy(directory, pace)
            store = held.store if Place.of(held.store).local is None else None
            manifest = BackupManifest(held.at_ms, VERSION, store, held.store_version, files)
            sync_directories(directory)
            manifest.write(directory)
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


@contextmanager
def _held(broker: Calls, patience_s: float) -> Iterator[HeldFiles]:
    """Have the broker hold its files meanwhile."""
    held, over = _begin(broker, patience_s), threading.Event()

    def extend() -> None:
        while not over.wait(held.held_ms / 4000):
            with suppress(TarryError):  # the end tells
                broker.extend_backup(held.backup)

    extending = threading.Thread(target=extend, name="tarry-backup", daemon=True)
    extending.start()
    try:
        if not Path(held.directory).is_dir():
            raise UnavailableError(
                f"the broker's files in {held.data} cannot be read here; allowed: on the broker's machine, as its user "
                "or as root"
            )
        yield held
    finally:
        over.set()
        extending.join()
        with suppress(TarryError):  # what was copied is whole: a hold that ended has no files
            broker.end_backup(held.backup)


def _begin(broker: Calls, patience_s: float) -> HeldFiles:
    until_s = time.monotonic() + patience_s
    while True:
        try:
            return broker.begin_backup()
        except OverloadedError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(min(0.5, patience_s))


def _names_in(held: HeldFiles, broker: Calls) -> Sequence[str]:
    """Return the files that are held, all of them.

    Raises:
        NotFoundError: they are held no longer.
    """
    names = list(files_below(Path(held.directory)))
    try:
        # A hold that ended before, while this stood still, has none or a part of them: that would look like a copy of
        # an empty broker. One that ends later is noticed by the file that is missing.
        broker.extend_backup(held.backup)
    except NotFoundError as error:
        raise _over(held) from error
    return names


def _over(held: HeldFiles) -> NotFoundError:
    return NotFoundError(
        f"the broker holds the files of backup {held.backup} no longer: it has stopped, or this command stood still "
        f"for more than {held.held_ms / 1000:g} s; begin it again"
    )


def _copy(held: HeldFiles, names: Sequence[str], directory: Path, pace: Pace) -> dict[str, FileMark]:
    source = Path(held.directory)
    files: dict[str, FileMark] = {}
    try:
        for name in names:
            if (size := held.lengths.get(name)) is not None:
                files[name] = copy_file(source / name, directory / name, pace, size)
            else:
                files[name] = link_file(source / name, directory / name, pace)
    except FileNotFoundError as error:
        if source.exists():
            raise
        raise _over(held) from error
    if Place.of(held.store).local is None:
        check_store(held.store, held.store_version)
    else:
        stored = copy_store(held.store, held.store_version, directory / STORE, pace, link=True)
        files |= {f"{STORE}/{name}": mark for name, mark in stored.items()}
    (directory / LOCK_FILE).touch(mode=0o640)  # by which tarry verify knows a data directory
    return files
