"""The seam between the logs and the disk: tests replace it by a layer that fails and crashes."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tarry.base.descriptors import NONE_FREE, when_free
from tarry.base.errors import DiskFullError, FatalError, InvalidArgumentError, OverloadedError, TarryError
from tarry.base.histogram import Durations
from tarry.log.permissions import DENIED, denial

Buffer = bytes | bytearray | memoryview

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
TRY_AGAIN = (*DISK_FULL, *NONE_FREE)
"""Errors of a file system that pass: the write is repeated later, and nothing is broken."""
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS)
"""Errors of a link that do not say that a copy would fail, too."""
FREE_CHECK_S = 0.2
"""Maximum age of a known :meth:`Files.free_bytes`: asking takes longer than the rest of a small batch."""
_IOV_MAX = 512


def link_or_not(source: Path, target: Path) -> bool:
    """Give a file another name; False: it cannot have one there, and has to be copied. Raises OSError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return False
    return True


def not_now(error: OSError, place: Path, consequence: str) -> TarryError:
    """Return the error for a caller whose write at ``place`` failed with one of :data:`TRY_AGAIN`.

    It says what is lacking, and the ``consequence``; the caller may try again.
    """
    if error.errno in DISK_FULL:
        return DiskFullError(f"the disk of {place} is full ({error.strerror}): {consequence}; try again")
    return OverloadedError(
        f"no file can be opened in {place}, for no descriptor is free ({error.strerror}): {consequence}; try again"
    )


def passing_error(error: Exception, place: Path) -> OSError | None:
    """Return an error of :data:`TRY_AGAIN` that a library, such as a database, reports in words alone.

    None: ``error`` is no such error.
    """
    number = next((each for each in TRY_AGAIN if os.strerror(each) in str(error)), None)
    return None if number is None else OSError(number, os.strerror(number), str(place))


def start_failure(error: OSError, directory: Path) -> Exception:
    """Return the error to show when a broker could not open ``directory``: the file, and the reason.

    ``error`` itself where it is neither the disk's, nor passing, nor of a right or a directory that is missing.
    """
    place = str(error.filename or directory)
    if error.errno in DISK_FULL:
        return DiskFullError(
            f"{place} cannot be written, and the broker cannot start without it: {error.strerror}. "
            "Nothing was lost or changed; make some room on this disk, and start again"
        )
    if error.errno == errno.EROFS:
        return FatalError(
            f"{place} cannot be written: {error.strerror}. A broker writes in its directory; mount its file system "
            "read-write, and start again. `tarry verify` and `tarry dump` read without writing"
        )
    if error.errno == errno.EIO:
        return FatalError(f"{place}: {error.strerror}; start again when the disk is sound")
    if error.errno in DENIED and "allowed:" not in str(error.strerror):
        return denial(Path(place), error.errno)
    if isinstance(error, FileExistsError | NotADirectoryError):
        return InvalidArgumentError(
            f"{place} is, or is in, a file; allowed: a directory, or a path where one can be made"
        )
    return error


class AppendFile(Protocol):
    """A file that grows at its end. Not thread-safe: one owner."""

    @property
    def size(self) -> int:
        """Bytes written so far."""
        ...

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append all of ``buffers``.

        Raises OSError; the file may then hold a part, which :meth:`truncate` takes back.
        """
        ...

    def sync(self) -> None:
        """Return when everything written is durable.

        An OSError is fatal: what the disk holds is unknown from then on.
        """
        ...

    def begin_sync(self) -> Callable[[], None]:
        """Begin to make durable what is written now; return what waits for that, as :meth:`sync`.

        Any thread may call what is returned. Where a sync is a call of the system, all of it is done there.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        ...

    def close(self) -> None:
        """Close without syncing."""
        ...


class OverwriteFile(Protocol):
    """A small file of a fixed size that is written over in place. Not thread-safe: one owner."""

    def write(self, at: int, content: Buffer) -> None:
        """Overwrite the bytes at ``at``, within the file's size; durable on return.

        It needs no free space. Raises OSError.
        """
        ...

    def close(self) -> None: ...


class Closeable(Protocol):
    """Something open that can be closed."""

    def close(self) -> None: ...


class Files(Protocol):
    """The operations whose failure or loss the logs must survive."""

    def open_append(self, path: Path) -> AppendFile:
        """Open or create a file for appending, its name durable in its directory."""
        ...

    def replace(self, path: Path, content: bytes) -> None:
        """Replace a small file atomically and durably."""
        ...

    def open_overwrite(self, path: Path) -> OverwriteFile:
        """Open a file that is there for writing in place."""
        ...

    def remove(self, path: Path) -> None:
        """Delete a file; one that is already gone is fine."""
        ...

    def free_bytes(self, path: Path) -> int:
        """Free bytes of the file system that holds ``path``, for an unprivileged user."""
        ...

    def adopt(self, database: Closeable, directory: Path) -> None:
        """Note that this process has opened a database in that directory.

        For files that stand for a process of their own: when they crash, what the database has open ends, too.
        """
        ...


class OsAppendFile:
    """An :class:`AppendFile` on the operating system."""

    def __init__(self, path: Path, syncs_us: Durations | None = None) -> None:
        self._fd = -1
        self._path = path
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
            try:
                done = os.writev(self._fd, views[:_IOV_MAX])
            except OSError as error:
                error.filename = str(self._path)
                raise
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

    def begin_sync(self) -> Callable[[], None]:
        return self.sync

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


class OsOverwriteFile:
    """An :class:`OverwriteFile` on the operating system."""

    def __init__(self, path: Path) -> None:
        self._fd = -1
        self._fd = when_free(lambda: os.open(path, os.O_WRONLY | os.O_CLOEXEC))

    def write(self, at: int, content: Buffer) -> None:
        left = memoryview(content)
        while left:
            done = os.pwrite(self._fd, left, at)
            left, at = left[done:], at + done
        os.fdatasync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()  # an opening that failed half-way leaves nobody who could


class OsFiles:
    """:class:`Files` on the operating system."""

    @cached_property
    def syncs_us(self) -> Durations:
        """Durations of the syncs, in microseconds."""
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
        with removed_on_failure(temporary):
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

    def open_overwrite(self, path: Path) -> OverwriteFile:
        return OsOverwriteFile(path)

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


@contextmanager
def removed_on_failure(path: Path) -> Iterator[None]:
    """Remove a new file if writing it fails, so that no part of it takes room; the error names the file."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable (a created or renamed file is not, before this)."""
    fd = when_free(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
