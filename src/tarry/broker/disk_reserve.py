"""A file that only reserves room for a start on a full disk: opening the registry of names needs some.

RocksDB writes the content of its log into a table when it is opened, which fails if no byte is free. Without names no
message can be cancelled, and none with a key delivered. So some of the room below which producers are refused is kept
in a file, and is released before the next start on a full disk. The file is made again when there is room. If a crash
comes while it is made, or between its removal and the opening, it is too small or missing: then, too, it is made again.
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
"""Twice the size of the registry's buffers (:data:`tarry.names.database.BUFFER_BYTES`).

If ``disk_free_bytes_min`` is less, that is the size instead: no file if it is 0.
"""


class DiskReserve:
    """The reserve file. One thread at a time."""

    def __init__(self, files: Files, config: Config) -> None:
        self._files = files
        self._directory = config.data
        self._path = config.data / "reserve"
        self._size = min(RESERVE_BYTES, config.disk_free_bytes_min)
        self._free_bytes_min = config.disk_free_bytes_min
        self._is_kept = False

    def give_back(self) -> None:
        """If the disk is full, release the room, before anything is written."""
        if self._path.exists() and self._files.free_bytes(self._directory) < self._size:
            log.warning("the disk of %s is full: the room that %s kept is used to start", self._directory, self._path)
            self._files.remove(self._path)

    def keep(self) -> None:
        """Make the file, if it is missing and the disk has room for it beside the room kept from producers."""
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
        # Others took the room first, or the file system cannot allocate: nothing depends on it now.
        log.warning("%s cannot be made: %s", path, error)
        with suppress(OSError):
            path.unlink()
        return False
    return True
