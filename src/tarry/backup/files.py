"""Copies of single files, durable, with their checksums; or hard links, of files that are final."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from tarry.backup.manifest import FileMark
from tarry.base.errors import CorruptError, DiskFullError, InvalidArgumentError
from tarry.broker.directory import ID_FILE
from tarry.log.files import DISK_FULL, link_or_not, sync_directory
from tarry.verify.check import CHUNK_BYTES, Pace

LOG = "_delta_log"
"""Directory of a store's entries."""


def no_room(error: OSError, place: Path, consequence: str) -> OSError | DiskFullError:
    """Return the error to show when writing at ``place`` failed: for a full disk one that says so."""
    if error.errno not in DISK_FULL:
        return error
    return DiskFullError(f"the disk of {place} is full ({error.strerror}): {consequence}")


def refuse_within(directory: Path) -> None:
    """Check that ``directory``, which is to be made, is not in a data directory, a backup, or a store.

    These are deleted from, by a broker or by people who think of them as one thing.

    Raises:
        InvalidArgumentError: it is, also by a symbolic link.
    """
    for parent in directory.resolve().parents:
        if (parent / ID_FILE).exists() or (parent / LOG).exists():
            raise InvalidArgumentError(
                f"{directory} is in {parent}, which has the files of a broker or of a backup; allowed: a directory "
                "outside of it"
            )


def link_file(source: Path, target: Path, pace: Pace) -> FileMark:
    """Link a file that never changes again, or copy it where it cannot be linked.

    Durable on return, but for its name.

    Raises:
        OSError: it cannot be read, or there is no room.
    """
    target.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    if not link_or_not(source, target):
        return copy_file(source, target, pace)
    with target.open("rb") as file:
        mark = mark_of(file, pace)
        os.fsync(file.fileno())
    return mark


def copy_file(source: Path, target: Path, pace: Pace, size: int | None = None) -> FileMark:
    """Copy a file, or its first ``size`` bytes, with its mode; durable on return but for its name.

    Raises:
        OSError: it cannot be read, or there is no room. CorruptError: it has fewer bytes.
    """
    with source.open("rb") as file:
        mark = copy_content(file, target, pace, size, mode=os.fstat(file.fileno()).st_mode & 0o777)
    if size is not None and mark.size != size:
        raise CorruptError(f"{source} has {mark.size} bytes; {size} had been durable")
    return mark


def copy_content(file: IO[bytes], target: Path, pace: Pace, size: int | None = None, mode: int = 0o640) -> FileMark:
    """Write what ``file`` has, or its first ``size`` bytes, to a new file.

    Durable on return, but for its name.
    """
    target.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    crc = written = 0
    target.touch(mode=0o600, exist_ok=False)
    with target.open("wb") as out:
        while chunk := file.read(CHUNK_BYTES if size is None else min(CHUNK_BYTES, size - written)):
            out.write(chunk)
            crc, written = zlib.crc32(chunk, crc), written + len(chunk)
            pace(len(chunk))
        out.flush()
        os.fchmod(out.fileno(), mode)
        os.fsync(out.fileno())
    return FileMark(written, crc)


def mark_of(file: IO[bytes], pace: Pace) -> FileMark:
    """Return size and checksum of what a file has from here on. Raises OSError."""
    crc = size = 0
    while chunk := file.read(CHUNK_BYTES):
        crc, size = zlib.crc32(chunk, crc), size + len(chunk)
        pace(len(chunk))
    return FileMark(size, crc)


def sync_directories(root: Path) -> None:
    """Make the names of all that is in a directory durable, and its own."""
    for directory, _, _ in os.walk(root, topdown=False):
        sync_directory(Path(directory))
    with suppress(OSError):  # it may be of somebody else
        sync_directory(root.absolute().parent)


def files_below(root: Path) -> Iterable[str]:
    """Yield the files in a directory, as sorted paths in it."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
