"""A disk that a power failure takes away: what was synced stays, and of everything else anything may be left.

Every ``fsync`` of this process is seen, be it of the logs, of the store's files or of a directory. A file keeps the
bytes that were there at its last one; of what was written since, nothing, all, a beginning, or some pages, the others
zero. A directory keeps the names of its last one: files that were made since may be missing, and those that were
replaced or deleted since be the former ones again. That happens in order, as file systems with a journal have it: where
the second of two deletions (by the order of the names) was kept, the first was, too. But of directories in
:data:`UNORDERED` any names may be lost, as POSIX has it.

Embedded databases sync by themselves, unseen. Of RocksDB, what ``Registry.sync`` has written stays, and the end of its
log may go; SQLite has everything on the disk after each commit.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tarry.names import Registry
from tests.faults import FaultyFiles

PAGE_BYTES = 512
"""The least that a disk writes as a whole."""
SQLITE = "jobs.db"
UNORDERED = ("intake",)
"""Names of directories whose deletions a crash may keep in another order."""


class PowerDisk(FaultyFiles):
    """The disk below ``root``; ``spare`` is a directory beside it, where what may come back is kept.

    Each sync is a step at which :attr:`crash_at` can crash, as each write is. While ``reads_until_error`` is not None,
    reads count it down to an error.
    """

    def __init__(self, root: Path, spare: Path) -> None:
        super().__init__()
        self._root, self._spare = root, spare
        self._sizes: dict[int, int] = {}
        """By inode: how much of a file is durable."""
        self._names: dict[Path, dict[str, int]] = {}
        """By directory: which names are durable, and of which inodes."""
        self.reads_until_error: int | None = None
        for directory in (root, spare):
            directory.mkdir(parents=True, exist_ok=True)
        self.settle()

    @contextmanager
    def attached(self, rng: random.Random | None = None) -> Iterator[PowerDisk]:
        """While it is, syncs and reads of this process are seen, and files are named by ``rng``, so that everything has
        the same name again.
        """
        originals: list[tuple[Any, str, Any]] = []

        def replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
            originals.append((owner, name, getattr(owner, name)))
            setattr(owner, name, wrap(originals[-1][2]))

        for name in ("fsync", "fdatasync"):
            replace(os, name, self._sync)
        replace(os, "pread", self._read)
        replace(pq.ParquetFile, "read_row_group", self._read_group)
        if rng is not None:
            replace(uuid, "uuid4", lambda _: lambda: uuid.UUID(int=rng.getrandbits(128), version=4))
        replace(Registry, "sync", self._sync_registry)
        try:
            yield self
        finally:
            for owner, name, original in originals:
                setattr(owner, name, original)

    # -- what is seen ------------------------------------------------------------------------------------------------

    def _sync(self, original: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            path = _path_of(fd)
            if self._root not in (path, *path.parents):
                return original(fd)
            self.step(f"before fsync {path.name}")
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
                for entry in os.scandir(path):
                    self._keep_spare(Path(entry.path), entry.inode())
            else:
                state = os.fstat(fd)
                self._sizes[state.st_ino] = state.st_size
                self._keep_spare(path, state.st_ino)
            return self.step(f"after fsync {path.name}")

        return sync

    def _read(self, original: Callable[[int, int, int], bytes]) -> Callable[[int, int, int], bytes]:
        def read(fd: int, size: int, offset: int) -> bytes:
            if self.reads_until_error is not None and self._root in _path_of(fd).parents:
                self._count_read(_path_of(fd))
            return original(fd, size, offset)

        return read

    def _read_group(self, original: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
        def read_row_group(file: pq.ParquetFile, *arguments: Any, **more: Any) -> pa.Table:
            if self.reads_until_error is not None:
                self._count_read(self._root / "store")
            return original(file, *arguments, **more)

        return read_row_group

    def _count_read(self, path: Path) -> None:
        assert self.reads_until_error is not None
        self.reads_until_error -= 1
        if self.reads_until_error < 0:
            raise OSError(errno.EIO, "input/output error (injected)", str(path))

    def _sync_registry(self, original: Callable[[Registry], None]) -> Callable[[Registry], None]:
        def sync(registry: Registry) -> None:
            self.step("before sync of the registry")
            original(registry)
            for directory in self._directories:
                for path in directory.glob("*.log"):
                    self._sizes[path.stat().st_ino] = path.stat().st_size
            self.step("after sync of the registry")

        return sync

    def _keep_spare(self, path: Path, inode: int) -> None:
        spare = self._spare / str(inode)
        if path.is_file() and not spare.exists():
            os.link(path, spare)  # its number is not used again, and it can come back

    # -- crashes -----------------------------------------------------------------------------------------------------

    def close_all(self) -> None:
        """The process is gone. RocksDB would write down more in closing than a killed process does: what is on the disk
        now is put back.
        """
        copies = [(path, path.with_name(f".copy-{path.name}")) for path in self._directories if path.is_dir()]
        sizes: dict[Path, int] = {}
        for directory, copy in copies:
            logs = _copied_at_rest(directory, copy)
            sizes |= {directory / name: self._sizes.get(inode, 0) for name, inode in logs.items()}
        super().close_all()
        for directory, copy in copies:
            shutil.rmtree(directory)
            copy.rename(directory)
        for path, size in sizes.items():
            self._sizes[path.stat().st_ino] = size
        if copies:
            parent = {name: (self._root / name).stat().st_ino for name in (d.name for d, _ in copies)}
            durable = self._names.get(self._root, {})
            durable.update({name: inode for name, inode in parent.items() if name in durable})

    def lose_unsynced(self, rng: random.Random) -> None:
        """Cut the power. What is left is on the disk."""
        self.crash_at = None
        self._lose_in(self._root, rng)
        self.settle()

    def settle(self) -> None:
        """All that is there now is durable."""
        self._sizes, self._names, self._directories = {}, {}, set()
        for spare in self._spare.iterdir():
            spare.unlink()
        for path, directories, files in os.walk(self._root):
            here = Path(path)
            self._names[here] = {name: (here / name).stat().st_ino for name in (*directories, *files)}
            for name in files:
                state = (here / name).stat()
                self._sizes[state.st_ino] = state.st_size
                self._keep_spare(here / name, state.st_ino)

    def _lose_in(self, directory: Path, rng: random.Random) -> None:
        if directory in self._directories:
            for path in sorted(directory.glob("*.log")):
                self._lose_end(path, rng)
            return
        durable = self._names.get(directory, {})
        present = {entry.name: entry.inode() for entry in os.scandir(directory) if not entry.name.startswith(SQLITE)}
        durable = {name: inode for name, inode in durable.items() if not name.startswith(SQLITE)}
        changed = sorted(name for name in {*durable, *present} if durable.get(name) != present.get(name))
        for kind in ([n for n in changed if n in durable], [n for n in changed if n not in durable]):
            lost = kind[rng.randint(0, len(kind)) :]
            if directory.name in UNORDERED:
                lost = [name for name in kind if rng.random() < 0.5]
            for name in lost:
                self._undo(directory / name, durable.get(name))
        for path in sorted(directory.iterdir()):
            if path.is_dir():
                self._lose_in(path, rng)
            else:
                self._lose_end(path, rng)

    def _undo(self, path: Path, former: int | None) -> None:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if former is not None and (self._spare / str(former)).exists():
            os.link(self._spare / str(former), path)

    def _lose_end(self, path: Path, rng: random.Random) -> None:
        state = path.stat()
        if path.name.startswith(SQLITE):
            return
        durable, written = min(self._sizes.get(state.st_ino, 0), state.st_size), state.st_size
        if durable == written:
            return
        how = rng.choice(["nothing", "all", "beginning", "pages"])
        with path.open("r+b") as file:
            if how == "nothing":
                file.truncate(durable)
            elif how == "beginning":
                file.truncate(rng.randint(durable, written))
            elif how == "pages":
                for start in range(durable, written, PAGE_BYTES):
                    if rng.random() < 0.5:
                        file.seek(start)
                        file.write(bytes(min(PAGE_BYTES, written - start)))


def _copied_at_rest(directory: Path, copy: Path) -> dict[str, int]:
    """Copy a database that merges its files behind our back, as it is at one moment; its logs, by name, with the inodes
    of the originals.
    """
    while True:
        before = _state_of(directory)
        with suppress(FileNotFoundError, shutil.Error):  # a file was deleted meanwhile
            shutil.copytree(directory, copy)
            if _state_of(directory) == before:
                return {name: inode for name, (inode, *_) in before.items() if name.endswith(".log")}
        shutil.rmtree(copy, ignore_errors=True)


def _state_of(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, size and last change of each file."""
    while True:
        with suppress(FileNotFoundError):
            states = {path.name: path.stat() for path in directory.iterdir()}
            return {name: (state.st_ino, state.st_size, state.st_mtime_ns) for name, state in states.items()}


def _path_of(fd: int) -> Path:
    return Path(str(Path(f"/proc/self/fd/{fd}").readlink()).removesuffix(" (deleted)"))
