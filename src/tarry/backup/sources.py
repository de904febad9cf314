"""Backups that are read: in a directory, or in object storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from tarry.backup.bucket import Bucket
from tarry.backup.manifest import BackupManifest, interrupted, no_backup
from tarry.log.file_engine import BACKUP_FILE
from tarry.store.place import local_path

FILES = "files-"
"""Beginning of the name of a directory with the files of a backup, in object storage."""


class BackupSource(Protocol):
    """A backup to be read."""

    files_at_once: int
    """So many files are best read at the same time."""

    def manifest(self) -> BackupManifest:
        """Return what it says of itself.

        Raises:
            NotFoundError: there is none. CorruptError: it was interrupted, or its manifest is damaged.
        """
        ...

    def path(self, name: str) -> str:
        """Return where a file of it is, for people."""
        ...

    def open(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Open a file, to be read once from its beginning. Raises FileNotFoundError."""
        ...

    def mode(self, name: str) -> int:
        """Return the mode that a copy of a file gets. Raises FileNotFoundError."""
        ...


def source_of(place: Path | str) -> BackupSource:
    """Return the backup at a path or URI; nothing is read yet.

    Raises:
        InvalidArgumentError: a scheme that is none.
    """
    path = place if isinstance(place, Path) else local_path(place)
    return DirectoryBackup(path) if path is not None else ObjectBackup(Bucket(str(place)))


class DirectoryBackup:
    """A backup in a directory."""

    files_at_once = 1

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._modes: dict[str, int] = {}

    def manifest(self) -> BackupManifest:
        manifest = BackupManifest.read(self._directory)
        self._modes = dict(manifest.modes)
        return manifest

    def path(self, name: str) -> str:
        return str(self._directory / name)

    def open(self, name: str) -> AbstractContextManager[IO[bytes]]:
        return (self._directory / name).open("rb")

    def mode(self, name: str) -> int:
        own = (self._directory / name).stat().st_mode & 0o777
        return self._modes.get(name, own)  # one that came from object storage has lost them


class ObjectBackup:
    """A backup in object storage."""

    files_at_once = 4

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._manifest: BackupManifest | None = None
        self._sizes: dict[str, int] = {}

    def manifest(self) -> BackupManifest:
        content = self._bucket.get(BACKUP_FILE)
        if content is None:
            has_files = any(each.startswith(FILES) for each in self._bucket.names().directories)
            raise interrupted(self._bucket.uri) if has_files else no_backup(self._bucket.uri)
        self._manifest = manifest = BackupManifest.parse(content, f"{self._bucket.uri}/{BACKUP_FILE}")
        self._sizes = self._bucket.sizes(manifest.objects or "")
        return manifest

    def path(self, name: str) -> str:
        return f"{self._bucket.uri}/{self._name(name)}"

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        if name not in self._sizes:
            raise FileNotFoundError(self.path(name))
        file: Any = _Chunks(self._bucket.read(self._name(name), self._sizes[name]))
        yield file

    def mode(self, name: str) -> int:
        return self._known().mode(name)

    def _known(self) -> BackupManifest:
        return self._manifest or self.manifest()

    def _name(self, name: str) -> str:
        objects = self._known().objects
        return name if objects is None else f"{objects}/{name}"


class _Chunks:
    """Reads pieces as they come, of any size."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read(self, _: int = -1) -> bytes:
        return next(self._chunks, b"")
