"""A file that only takes room, for a start on a full disk: names cannot be opened without some.

RocksDB writes what its log holds into a table when it is opened, which without a free byte fails; and without names no
message is cancelled, and none with a key delivered. So some of the room below which producers are refused is kept in a
file, and given back before the next start on a disk that is full. It is made again when there is room. A crash while it
is made, or between its end and the opening, leaves it too small or not there: it is made again then, too.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from tarry.base.config import Config
from tarry.log.files import Files

log = logging.getLogger(__name__)

RESERVE_BYTES = 32 << 20
"""Twice what the buffers of names come to (:data:`tarry.names.database.BUFFER_BYTES`), or ``disk_free_bytes_min`` where
that is less; so none where it is 0.
"""


class DiskReserve:
    """One thread at a time."""

    def __init__(self, files: Files, config: Config) -> None:
        self._files = files
        self._directory = config.data
        self._path = config.data / "reserve"
        self._size = min(RESERVE_BYTES, config.disk_free_bytes_min)
        self._free_bytes_min = config.disk_free_bytes_min
        self._is_kept = False

    def give_back(self) -> None:
        """Where the disk is full, make the room free: before anything is written."""
        if self._path.exists() and self._files.free_bytes(self._directory) < self._size:
            log.warning("the disk of %s is full: the room that %s kept is used to start", self._directory, self._path)
            self._files.remove(self._path)

    def keep(self) -> None:
        """Make it, where it is not there and the disk has room for it beside what producers may not take."""
        if self._is_kept or not self._size:
            return
        if _size_of(self._path) == self._size:
            self._is_kept = True
        elif self._files.free_bytes(self._directory) >= self._size + self._free_bytes_min:
            self._is_kept = _make(self._path, self._size)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _make(path: Path, size: int) -> bool:
    try:
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)
    except OSError as error:
        # Others were quicker to take the room, or the file system has no such thing: nothing depends on it now.
        log.warning("%s cannot be made: %s", path, error)
        with suppress(OSError):
            path.unlink()
        return False
    return True
