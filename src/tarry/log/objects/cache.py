"""The data directory of an owner whose logs are in a store: a cache, which a claim makes again."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tarry.base.errors import CorruptError, LockedError
from tarry.log.engine import Part
from tarry.log.file_engine import CACHE_FILE, DIRECTORIES, LOCK_FILE
from tarry.log.files import AppendFile, Files
from tarry.log.frame import LogKind
from tarry.log.objects.bases import BaseSource
from tarry.log.objects.content import HANDED_OVER, TRIMMED, BaseFile
from tarry.log.objects.kept_files import KeptFiles
from tarry.log.segment import list_segments, remove_segment, segment_path


class CacheDirectory:
    """The directory ``data``: ``name`` says whose cache it is, ``small`` has the small files in it.

    A claim empties it, and applies to it what it reads; then it gives the files of bases.
    """

    def __init__(self, files: Files, data: Path, small: KeptFiles, name: str) -> None:
        self._files, self._data, self._small, self._name = files, data, small, name
        self._last: tuple[Path, AppendFile] | None = None
        self._sizes: dict[tuple[LogKind, int], int] = {}

    def mark(self) -> None:
        """Say in the directory that it is a cache.

        Raises:
            LockedError: it is none, and has files.
        """
        there = sorted(path.name for path in self._data.iterdir() if path.name != LOCK_FILE)
        if there and CACHE_FILE not in there:
            raise LockedError(
                f"{self._data} is no cache of logs in an object store: it has {', '.join(there[:5])}, which would be "
                "deleted; allowed: a directory that is empty or not there"
            )
        self._files.replace(self._data / CACHE_FILE, f"{self._name}\n".encode())

    # -- what a claim reads: see Cache in history.py -------------------------------------------------------------------

    def clear(self) -> None:
        self.close()
        self._small.forget()
        for path in self._data.iterdir():
            if path.name in (LOCK_FILE, CACHE_FILE):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def restore(self, file: BaseFile, offset: int, content: bytes) -> None:
        path = self._data / file.path
        if offset == 0:
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            path.touch(mode=0o600 if file.is_kept else 0o640)
        with path.open("r+b") as opened:
            opened.seek(offset)
            opened.write(content)
        if file.is_kept:
            self._small.restore(file.path, path.read_bytes())

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
                remove_segment(self._files, self._path(part.kind, part.segment))

    def close(self) -> None:
        """Close the segment that is open: a claim has read all."""
        if self._last is not None:
            self._last[1].close()
            self._last = None

    def _write(self, part: Part) -> None:
        path = self._path(part.kind, part.segment)
        if self._last is None or self._last[0] != path:
            self.close()
            self._last = path, self._files.open_append(path)
        file = self._last[1]
        if file.size < part.position:
            raise CorruptError(f"{path}: the log goes on at {part.position}, and it has {file.size} bytes")
        if new := part.content[file.size - part.position :]:  # a base may have the beginning, or all of it
            file.write([new])

    def _trim(self, part: Part) -> None:
        self.close()
        for path in (self._data / DIRECTORIES[part.kind]).glob("*.log"):
            if int(path.stem) <= part.segment:
                remove_segment(self._files, path)

    def _path(self, kind: LogKind, segment: int) -> Path:
        return segment_path(self._data / DIRECTORIES[kind], segment)

    # -- what bases have -----------------------------------------------------------------------------------------------

    def note_size(self, kind: LogKind, segment: int, size: int) -> None:
        """Note how much of a segment is in rounds; the file may have more, of a write that failed."""
        self._sizes[kind, segment] = size

    def forget_sizes(self, kind: LogKind, segment: int) -> None:
        """Forget those of a segment that was trimmed, and of the ones before."""
        for each in [each for each in self._sizes if each[0] == kind and each[1] <= segment]:
            self._sizes.pop(each, None)

    def sources(self, files: Mapping[str, Path], trimmed: Mapping[LogKind, int]) -> list[BaseSource]:
        """Return the files of a base: segments that are not trimmed, small files, and ``files`` by path.

        Raises:
            OSError: one cannot be read.
        """
        sources = [segment for kind in DIRECTORIES for segment in self._segments(kind, trimmed.get(kind, 0))]
        for name, content in self._small.kept().items():
            if name not in files:
                sources.append(BaseSource.of(name, content))
        for name, path in files.items():
            sources.append(_file_source(name, path, path.stat().st_size, is_final=path.suffix == ".sst"))
        return sources

    def _segments(self, kind: LogKind, first: int) -> Iterator[BaseSource]:
        directory = self._data / DIRECTORIES[kind]
        segments = [each for each in list_segments(directory) if each >= first]
        for each in segments:
            path, size = segment_path(directory, each), self._sizes.get((kind, each))
            try:
                size = path.stat().st_size if size is None else size
            except FileNotFoundError:
                continue  # trimmed meanwhile
            is_final = each != segments[-1]
            yield _file_source(path.relative_to(self._data).as_posix(), path, size, is_final=is_final)
            index = segment_path(directory, each, ".idx")
            if is_final and index.exists():
                yield _file_source(index.relative_to(self._data).as_posix(), index, index.stat().st_size, is_final=True)


def _file_source(name: str, path: Path, size: int, *, is_final: bool) -> BaseSource:
    def read(at: int, size: int) -> bytes:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(size)

    return BaseSource(name, size, lambda at, size: asyncio.to_thread(read, at, size), is_final)
