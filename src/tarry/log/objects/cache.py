"""The data directory of an owner whose logs are in a store: a cache, which a claim makes again."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tarry.base.errors import CorruptError, LockedError
from tarry.log.engine import Part
from tarry.log.file_engine import CACHE_FILE, DIRECTORIES, LOCAL_FILES
from tarry.log.files import AppendFile, Files
from tarry.log.frame import LogKind
from tarry.log.objects.bases import BaseSource
from tarry.log.objects.content import HANDED_OVER, TRIMMED, BaseFile
from tarry.log.objects.kept_files import KeptFiles, inside
from tarry.log.segment import list_segments, remove_segment, segment_path


class CacheDirectory:
    """The directory ``data``: ``name`` says whose cache it is, ``small`` has the small files in it.

    A claim empties it, and applies to it what it reads; then it gives the files of bases.
    """

    def __init__(self, files: Files, data: Path, small: KeptFiles, name: str) -> None:
        self._files, self._data, self._small, self._name = files, data, small, name
        self._open: dict[LogKind, tuple[Path, AppendFile]] = {}
        """The segment of each log that was written last.

        A round has parts of several, and to open one takes an fsync.
        """
        self._gaps: dict[tuple[LogKind, int], str] = {}
        self._lock = threading.Lock()
        self._sizes: dict[tuple[LogKind, int], int] = {}
        """Bytes of each segment that are in rounds; its file may have more, of a write that failed."""

    def mark(self) -> None:
        """Say in the directory that it is a cache.

        Raises:
            LockedError: it is none, and has files.
        """
        there = sorted(
            path.name for path in self._data.iterdir() if path.name == CACHE_FILE or path.name not in LOCAL_FILES
        )
        if there and CACHE_FILE not in there:
            raise LockedError(
                f"{self._data} is no cache of logs in an object store: it has {', '.join(there[:5])}, which would be "
                "deleted; allowed: a directory that is empty or not there. What a directory has cannot be brought into "
                "logs in a store: see 'From a data directory' in docs/high-availability.md"
            )
        self._files.replace(self._data / CACHE_FILE, f"{self._name}\n".encode())

    # -- what a claim reads: see Cache in reading.py -------------------------------------------------------------------

    def clear(self) -> None:
        self.close()
        self._gaps.clear()
        self._small.forget()
        for path in self._data.iterdir():
            if path.name in LOCAL_FILES:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def restore(self, file: BaseFile, offset: int, content: bytes) -> None:
        path = inside(self._data, file.path)
        if offset == 0:
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.touch(mode=0o600 if file.is_kept else 0o640)
        with path.open("r+b") as opened:
            opened.seek(offset)
            opened.write(content)
        if file.is_kept:
            self._small.restore(file.path, path.read_bytes())

    def needs(self, file: BaseFile) -> bool:
        path = inside(self._data, file.path)
        if path.parent.parent != self._data or path.parent.name not in DIRECTORIES.values():
            return not file.is_kept
        return path.suffix == ".idx" and path.with_suffix(".log").exists()  # its segment may be trimmed meanwhile

    def remove(self, path: str) -> None:
        inside(self._data, path).unlink(missing_ok=True)

    def apply(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if part.kind is LogKind.FILES:
                if part.position != HANDED_OVER:
                    self._small.apply(part)
            elif part.position == TRIMMED:
                self._trim(part)
            elif part.content:
                self._write(part)
            else:
                self.close()
                self._gaps.pop((part.kind, part.segment), None)
                remove_segment(self._files, self._path(part.kind, part.segment))

    def finish(self) -> None:
        """Note what is there: a claim has read all. Raises CorruptError: a segment has a gap."""
        self.close()
        for gap in self._gaps.values():
            raise CorruptError(gap)
        for kind, name in DIRECTORIES.items():
            for segment in list_segments(self._data / name):
                self._sizes[kind, segment] = self._path(kind, segment).stat().st_size

    def close(self) -> None:
        """Close the segments that are open."""
        while self._open:
            self._open.popitem()[1][1].close()

    def _opened(self, part: Part) -> tuple[Path, AppendFile]:
        path, last = self._path(part.kind, part.segment), self._open.get(part.kind)
        if last is not None and last[0] == path:
            return last
        if last is not None:
            del self._open[part.kind]
            last[1].close()
        self._open[part.kind] = opened = path, self._files.open_append(path)
        return opened

    def _write(self, part: Part) -> None:
        path, file = self._opened(part)
        if file.size < part.position:
            # A base lacks what was trimmed or taken back while it was put; then a round behind this one says so.
            gap = f"{path}: the log goes on at {part.position}, and it has {file.size} bytes"
            self._gaps.setdefault((part.kind, part.segment), gap)
        elif new := part.content[file.size - part.position :]:  # a base may have the beginning, or all of it
            file.write([new])

    def _trim(self, part: Part) -> None:
        self.close()
        self._gaps = {at: gap for at, gap in self._gaps.items() if at[0] != part.kind or at[1] > part.segment}
        for path in (self._data / DIRECTORIES[part.kind]).glob("*.log"):
            if int(path.stem) <= part.segment:
                remove_segment(self._files, path)

    def _path(self, kind: LogKind, segment: int) -> Path:
        return segment_path(self._data / DIRECTORIES[kind], segment)

    # -- what bases have -----------------------------------------------------------------------------------------------

    def add(self, part: Part, add: Callable[[Part], None]) -> None:
        """Add a part to a round, and note what it changes: a base that begins meanwhile has both or neither."""
        with self._lock:
            if part.position == TRIMMED:
                self._sizes = {
                    at: size for at, size in self._sizes.items() if at[0] != part.kind or at[1] > part.segment
                }
            elif part.content:
                self._sizes[part.kind, part.segment] = part.end.position
            else:
                self._sizes.pop((part.kind, part.segment), None)
            add(part)

    def sources(self, files: Mapping[str, Path]) -> list[BaseSource]:
        """Return the files of a base: segments that are not trimmed, small files, and ``files`` by path.

        Raises:
            OSError: one cannot be read.
        """
        with self._lock:
            sizes = sorted(self._sizes.items())
        last = {kind: segment for (kind, segment), _ in sizes}
        sources: list[BaseSource] = []
        for (kind, segment), size in sizes:
            sources += self._segment(kind, segment, size, is_final=segment != last[kind])
        for name, content in self._small.kept().items():
            if name not in files:
                sources.append(BaseSource.of(name, content))
        for name, path in files.items():
            sources.append(_file_source(name, path, path.stat().st_size, is_final=path.suffix == ".sst"))
        return sources

    def _segment(self, kind: LogKind, segment: int, size: int, *, is_final: bool) -> Iterator[BaseSource]:
        def is_gone() -> bool:
            """Return whether it was trimmed or taken back, and perhaps begun again."""
            with self._lock:
                return self._sizes.get((kind, segment), -1) < size

        path, index = self._path(kind, segment), segment_path(self._data / DIRECTORIES[kind], segment, ".idx")
        yield self._source(path, size, is_final, is_gone)
        with suppress(FileNotFoundError):
            if is_final:
                yield self._source(index, index.stat().st_size, is_final, is_gone)

    def _source(self, path: Path, size: int, is_final: bool, is_gone: Callable[[], bool]) -> BaseSource:
        name = path.relative_to(self._data).as_posix()
        return _file_source(name, path, size, is_final=is_final)._replace(is_gone=is_gone)


def _file_source(name: str, path: Path, size: int, *, is_final: bool) -> BaseSource:
    def read(at: int, size: int) -> bytes:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(size)

    return BaseSource(name, size, lambda at, size: asyncio.to_thread(read, at, size), is_final)
