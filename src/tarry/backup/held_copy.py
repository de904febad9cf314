"""Copies of a broker's held files, whose hold is extended meanwhile."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tarry.api.backups import HeldFiles
from tarry.api.calls import Calls
from tarry.backup.checking import STORE
from tarry.backup.files import copy_file, files_below, link_file
from tarry.backup.manifest import FileMark
from tarry.backup.store_files import check_store, copy_store
from tarry.base.errors import NotFoundError, OverloadedError, TarryError, UnavailableError
from tarry.log.file_engine import LOCK_FILE
from tarry.log.permissions import denial
from tarry.store.place import Place
from tarry.verify.check import Pace

PATIENCE_S = 40.0
"""Longest wait for another backup's hold to end.

That of one that was killed lasts for half a minute.
"""


@contextmanager
def held_files(broker: Calls, patience_s: float = PATIENCE_S) -> Iterator[HeldFiles]:
    """Have the broker hold its files meanwhile.

    Raises:
        OverloadedError: another backup is under way, and was for ``patience_s`` seconds. InvalidArgumentError: the
            broker's logs are in an object store. UnavailableError: its files are not on this machine.
            PermissionError: they are another user's.
    """
    held, over = _begin(broker, patience_s), threading.Event()

    def extend() -> None:
        while not over.wait(held.held_ms / 4000):
            with suppress(TarryError):  # the end tells
                broker.extend_backup(held.backup)

    extending = threading.Thread(target=extend, name="tarry-backup", daemon=True)
    extending.start()
    try:
        _check_readable(held)
        yield held
    finally:
        over.set()
        extending.join()
        with suppress(TarryError):  # what was copied is whole: a hold that ended has no files
            broker.end_backup(held.backup)


def _check_readable(held: HeldFiles) -> None:
    """Check it by a listing: a walk through a directory that may not be read finds it empty."""
    try:
        os.scandir(held.directory).close()
    except PermissionError as error:
        raise denial(Path(held.data), allowed="tarry backup as the user of the broker, or as root") from error
    except OSError as error:
        raise UnavailableError(
            f"the broker's files in {held.data} cannot be read here; allowed: on the broker's machine, as its user or "
            "as root"
        ) from error


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
        raise over(held) from error
    return names


def over(held: HeldFiles) -> NotFoundError:
    """Return the error that a hold has ended before its files were copied."""
    return NotFoundError(
        f"the broker holds the files of backup {held.backup} no longer: it has stopped, or this command stood still "
        f"for more than {held.held_ms / 1000:g} s; begin it again"
    )


def copy_held(held: HeldFiles, broker: Calls, directory: Path, pace: Pace) -> dict[str, FileMark]:
    """Copy all that is held to ``directory``, and the store where it is local.

    By hard links where that can be.

    Raises:
        NotFoundError: the files are held no longer; or the store's version is not there any more. OSError: there is no
            room. CorruptError: a file is shorter than it had been.
    """
    source, names = Path(held.directory), _names_in(held, broker)
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
        raise over(held) from error
    if Place.of(held.store).local is None:
        check_store(held.store, held.store_version)
    else:
        stored = copy_store(held.store, held.store_version, directory / STORE, pace, link=True)
        files |= {f"{STORE}/{name}": mark for name, mark in stored.items()}
    (directory / LOCK_FILE).touch(mode=0o640)  # by which tarry verify knows a data directory
    return files
