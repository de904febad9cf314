"""Unreadable parts of the store: row groups or whole files, and their messages, as far as known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tarry.base.errors import CorruptError
from tarry.base.types import Int64s, Key, at_or_after, before
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place

KEYS = ("due_ms", "seq")


@dataclass(frozen=True, slots=True)
class Damaged:
    """Row group ``number`` of a file, or all of the file if that is -1: ``rows`` messages.

    ``keys``: due times and seqs of the requested ones of these messages; None if these columns cannot be read either.
    """

    path: str
    number: int
    rows: int
    keys: tuple[Int64s, Int64s] | None
    error: CorruptError


OnDamage = Callable[[Damaged], None]


def find_damaged(
    place: Place, path: str, number: int, file_rows: int, after: Key, until: Key, error: CorruptError
) -> Damaged:
    """Return all that is known of a row group that could not be read for ``error``.

    ``number`` -1: of the file.
    """
    if number < 0:
        return Damaged(path, number, file_rows, None, error)
    rows, keys = file_rows, None
    try:
        rows = groups(place, path)[number].rows
        # Each column has checksums of its own, and most of a file is bodies.
        due, seq = (column.to_numpy() for column in read_group(place, path, number, KEYS).columns)
        wanted = at_or_after(due, seq, after) & before(due, seq, until)
        keys = due[wanted], seq[wanted]
    except CorruptError:
        pass
    return Damaged(path, number, rows, keys, CorruptError(f"{error} (row group {number}, {rows} messages)"))


def state_of(place: Place, path: str) -> tuple[int, ...]:
    """Return a state that changes when a file is put back, or changed; empty if there is no file.

    Whatever times a copy keeps, it has another inode, or was changed at another time. In an object store the time and
    size must do.
    """
    try:
        if place.local is not None:
            found = Path(place.path(path)).stat()
            return found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size
        info = place.filesystem.get_file_info(place.path(path))
        return int(info.mtime_ns or 0), int(info.size or 0)
    except OSError:
        return ()
