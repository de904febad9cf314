"""What the logs ask of the disk, in one small seam: tests put a layer that fails and crashes in its place."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tarry.base.descriptors import NONE_FREE, when_free
from tarry.base.errors import DiskFullError, OverloadedError, TarryError
from tarry.base.histogram import Durations

Buffer = bytes | bytearray | memoryview

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
TRY_AGAIN = (*DISK_FULL, *NONE_FREE)
"""Errors of a file system that pass: what could not be written is written later, and nothing is broken."""
_IOV_MAX = 512


def not_now(error: OSError, place: Path, consequence: str) -> TarryError:
    """What to answer where an error of :data:`TRY_AGAIN` kept something from being written at ``place``: what is
    lacking, and the ``consequence``. Both are to be tried again.
    """
    if error.errno in DISK_FULL:
        return DiskFullError(f"the disk of {place} is full ({error.strerror}): {consequence}; try again")
    return OverloadedError(
        f"no file can be opened in {place}, for no descriptor is free ({error.strerror}): {consequence}; try again"
    )


class AppendFile(Protocol):
    """A file that grows at its end. Not thread-safe: one owner."""

    @property
    def size(self) -> int:
        """Bytes written so far."""
        ...

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append all of ``buffers``. Raises OSError; the file may then hold a part, which :meth:`truncate` takes
        back.
        """
        ...

    def sync(self) -> None:
        """Return when everything written is durable. An OSError is fatal: what the disk holds is unknown from then
        on.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        ...

    def close(self) -> None:
        """Close without syncing."""
        ...


class Closeable(Protocol):
    """What is open and can be closed."""

    def close(self) -> None: ...


class Files(Protocol):
    """The operations whose failure or loss the logs must survive."""

    def open_append(self, path: Path) -> AppendFile:
        """Open or create a file for appending, its name durable in its directory."""
        ...

    def replace(self, path: Path, content: bytes) -> None:
        """Replace a small file atomically and durably."""
        ...

    def remove(self, path: Path) -> None:
        """Delete a file; one that is already gone is fine."""
        ...

    def free_bytes(self, path: Path) -> int:
        """Free bytes of the file system that holds ``path``, for an unprivileged user."""
        ...

    def adopt(self, database: Closeable, directory: Path) -> None:
        """Told that this process has opened a database in that directory. For files that stand for a process of their
        own: when they crash, what the database has open ends, too.
        """
        ...


class OsAppendFile:
    """An :class:`AppendFile` on the operating system."""

    def __init__(self, path: Path, syncs_us: Durations | None = None) -> None:
        self._fd = -1
        self._syncs_us = syncs_us
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._fd = when_free(lambda: os.open(path, flags, 0o640))
        self._size = os.fstat(self._fd).st_size

    @property
    def size(self) -> int:
        return self._size

    def write(self, buffers: Sequence[Buffer]) -> None:
        views = [memoryview(b).cast("B") for b in buffers]
        while views:
            done = os.writev(self._fd, views[:_IOV_MAX])
            self._size += done
            while views and done >= len(views[0]):
                done -= len(views.pop(0))
            if done:
                views[0] = views[0][done:]

    def sync(self) -> None:
        began = time.perf_counter_ns()
        os.fdatasync(self._fd)
        if self._syncs_us is not None:
            self._syncs_us.note((time.perf_counter_ns() - began) // 1000)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # An opening that failed half-way (damage, a full disk) leaves nobody who could close.
        self.close()


class OsFiles:
    """:class:`Files` on the operating system."""

    @cached_property
    def syncs_us(self) -> Durations:
        """How long each sync took, in microseconds."""
        return Durations()

    def open_append(self, path: Path) -> AppendFile:
        make_directory(path.parent)
        file = OsAppendFile(path, self.syncs_us)
        try:
            sync_directory(path.parent)
        except OSError:
            file.close()
            if file.size == 0:
                path.unlink(missing_ok=True)  # an empty file would be taken for the last segment
            raise
        return file

    def replace(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(path.name + ".new")
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
        fd = when_free(lambda: os.open(temporary, flags, 0o640))
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(fd, left) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
        sync_directory(path.parent)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def adopt(self, database: Closeable, directory: Path) -> None:
        pass

    def free_bytes(self, path: Path) -> int:
        state = os.statvfs(path)
        return state.f_bavail * state.f_frsize


def make_directory(path: Path) -> None:
    """Make a directory where there is none, its name durable in the one above."""
    if not path.is_dir():
        path.mkdir(mode=0o750, parents=True, exist_ok=True)
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable (a created or renamed file is not, before this)."""
    fd = when_free(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
