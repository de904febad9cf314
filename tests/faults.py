"""A file layer that crashes at a chosen step and then forgets what was not fsynced, as a power failure does.

``kill -9`` keeps what was written; only this shows whether every acknowledgement waited for its fsync.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tarry.log.files import AppendFile, Buffer, Closeable, OsAppendFile, OsFiles, OsOverwriteFile, OverwriteFile
from tarry.queue.room import PLENTY_BYTES

MEMORY = Path("/dev/shm")


def fast_directory() -> Path:
    """A new directory in memory, where there is such a place: what a sync does is injected anyway."""
    try:
        return Path(tempfile.mkdtemp(prefix="tarry-test-", dir=MEMORY))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="tarry-test-"))


class Crash(BaseException):
    """The process is gone. Not an Exception, so that nothing in the broker can catch and answer it."""


class FaultyFiles(OsFiles):
    """Counts steps (each write, sync, replace and remove is two: before and after) and crashes at step ``crash_at``.

    ``full`` makes writes fail after a part, with ``full_number`` (ENOSPC), ``full_directory`` those to files in
    directories of that name alone; ``broken_sync`` makes fsync fail with EIO.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.crash_at: int | None = None
        self.full = False
        self.full_number = errno.ENOSPC
        self.full_directory = ""
        self.broken_sync = False
        self.durable: dict[Path, int] = {}
        self.overwritten: dict[Path, tuple[int, bytes]] = {}
        """What was written over and is not synced: where, and the former bytes."""
        self.done: list[str] = []
        self._open: list[FaultyAppendFile | FaultyOverwriteFile] = []
        self._databases: list[Closeable] = []
        self._directories: set[Path] = set()

    def step(self, what: str) -> None:
        self.steps += 1
        self.done.append(what)
        if self.crash_at is not None and self.steps >= self.crash_at:
            self.crash_at = None
            raise Crash(what)

    def open_append(self, path: Path) -> AppendFile:
        file = FaultyAppendFile(self, path, super().open_append(path))
        self.durable.setdefault(path, file.size)
        self._open.append(file)
        return file

    def open_overwrite(self, path: Path) -> OverwriteFile:
        file = FaultyOverwriteFile(self, path)
        self._open.append(file)
        return file

    def close_all(self) -> None:
        """The process is gone, and its open files with it."""
        for thing in [*self._open, *self._databases]:
            thing.close()
        self._open.clear()
        self._databases.clear()

    def adopt(self, database: Closeable, directory: Path) -> None:
        self._databases.append(database)
        self._directories.add(directory)

    def replace(self, path: Path, content: bytes) -> None:
        self.step(f"before replace {path.name}")
        super().replace(path, content)
        self.step(f"after replace {path.name}")

    def remove(self, path: Path) -> None:
        self.step(f"before remove {path.name}")
        super().remove(path)
        self.durable.pop(path, None)
        self.step(f"after remove {path.name}")

    def lose_unsynced(self, rng: random.Random) -> None:
        """Power failure: of what was not synced, each file keeps nothing, all, or a random part of the beginning. A
        database may be gone altogether.
        """
        self.crash_at = None
        for directory in self._directories:
            if rng.choice([True, False]):
                shutil.rmtree(directory, ignore_errors=True)
        for path, (at, former) in self.overwritten.items():
            if rng.choice([True, False]):
                with path.open("r+b") as file:
                    file.seek(at)
                    file.write(former)
        self.overwritten.clear()
        for path, size in self.durable.items():
            if path.exists() and path.stat().st_size > size:
                written = path.stat().st_size
                keep = rng.choice([size, written, rng.randint(size, written)])
                with path.open("r+b") as file:
                    file.truncate(keep)


class FaultyAppendFile:
    """See :class:`FaultyFiles`."""

    def __init__(self, files: FaultyFiles, path: Path, inner: AppendFile) -> None:
        assert isinstance(inner, OsAppendFile)
        self._files, self._path, self._inner = files, path, inner

    @property
    def size(self) -> int:
        return self._inner.size

    def write(self, buffers: Sequence[Buffer]) -> None:
        name = f"{self._path.parent.name}/{self._path.name}"
        self._files.step(f"before write {name}")
        if self._files.full or self._path.parent.name == self._files.full_directory:
            self._inner.write([b"".join(bytes(b) for b in buffers)[:37]])
            raise OSError(self._files.full_number, f"{os.strerror(self._files.full_number)} (injected)")
        self._inner.write(buffers)
        self._files.step(f"after write {name}")

    def sync(self) -> None:
        name = f"{self._path.parent.name}/{self._path.name}"
        self._files.step(f"before sync {name}")
        if self._files.broken_sync:
            raise OSError(errno.EIO, "input/output error (injected)")
        self._inner.sync()
        self._files.durable[self._path] = self._inner.size
        self._files.step(f"after sync {name}")

    def begin_sync(self) -> Callable[[], None]:
        return self.sync

    def truncate(self, size: int) -> None:
        self._inner.truncate(size)
        self._files.durable[self._path] = min(self._files.durable.get(self._path, 0), size)

    def close(self) -> None:
        self._inner.close()


class FaultyOverwriteFile:
    """See :class:`FaultyFiles`. What is written lies within one sector, which a disk writes as a whole: a power failure
    before the sync leaves the former bytes or the new ones.
    """

    def __init__(self, files: FaultyFiles, path: Path) -> None:
        self._files, self._path, self._inner = files, path, OsOverwriteFile(path)

    def write(self, at: int, content: Buffer) -> None:
        self._files.step(f"before write over {self._path.name}")
        if self._files.broken_sync:
            raise OSError(errno.EIO, "input/output error (injected)")
        with self._path.open("r+b") as file:
            file.seek(at)
            former = file.read(len(content))
            self._files.overwritten[self._path] = (at, former)
            file.seek(at)
            file.write(bytes(content))
        self._files.step(f"before sync {self._path.name}")
        self._inner.write(at, content)
        del self._files.overwritten[self._path]
        self._files.step(f"after write over {self._path.name}")

    def close(self) -> None:
        self._inner.close()


class LimitedFiles(OsFiles):
    """A disk, for ``directory`` alone, that has room for so many bytes more from :meth:`limit` on.

    A write that does not fit fails after as much as fits.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        # Less than what a log takes for plenty, so that it sees each limit at once.
        self._end_bytes = PLENTY_BYTES // 2

    def limit(self, free_bytes: int) -> None:
        self._end_bytes = self._used() + free_bytes

    def _used(self) -> int:
        used = 0
        for path in self._directory.rglob("*"):
            with suppress(FileNotFoundError):
                used += path.stat().st_size
        return used

    def free_bytes(self, path: Path) -> int:
        return max(0, self._end_bytes - self._used())

    def open_append(self, path: Path) -> AppendFile:
        return LimitedAppendFile(self, path, super().open_append(path))

    def replace(self, path: Path, content: bytes) -> None:
        if self.free_bytes(path) < len(content):
            raise OSError(errno.ENOSPC, "No space left on device (injected)", str(path))
        super().replace(path, content)


class LimitedAppendFile:
    """See :class:`LimitedFiles`."""

    def __init__(self, files: LimitedFiles, path: Path, inner: AppendFile) -> None:
        self._files, self._path, self._inner = files, path, inner

    @property
    def size(self) -> int:
        return self._inner.size

    def write(self, buffers: Sequence[Buffer]) -> None:
        content = b"".join(bytes(b) for b in buffers)
        free = self._files.free_bytes(self._path)
        self._inner.write([content[:free]])
        if free < len(content):
            raise OSError(errno.ENOSPC, "No space left on device (injected)", str(self._path))

    def sync(self) -> None:
        self._inner.sync()

    def begin_sync(self) -> Callable[[], None]:
        return self.sync

    def truncate(self, size: int) -> None:
        self._inner.truncate(size)

    def close(self) -> None:
        self._inner.close()
