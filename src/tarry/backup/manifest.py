"""The manifest of a backup, ``backup.json``. It is written last: without it, a backup is not whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tarry.base.errors import CorruptError, NotFoundError
from tarry.log.file_engine import BACKUP_FILE, BEGUN_FILE
from tarry.log.files import OsFiles
from tarry.log.json_file import json_bytes, parse_json, read_json, write_json

VERSION = 1
_Content = bytes
"""By another name, as a manifest has ``bytes``."""
MODE = 0o640
"""Mode of most files of a data directory."""


class FileMark(NamedTuple):
    """Size of a file in bytes, and its CRC-32."""

    size: int
    crc: int

    def differs(self, found: FileMark) -> str | None:
        """Return in what a file that was found is another one; None: it is this one."""
        if found == self:
            return None
        return f"it has {found.size} bytes, not {self.size}" if found.size != self.size else "its checksum is another"


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """Content of a whole backup.

    ``at_ms`` is its moment by the broker's clock. ``store`` is None where the store is in it; else the URI of object
    storage, of which ``store_version`` is to be there when it is restored. ``objects`` and ``modes`` are of a backup in
    an object store: the directory of its files there, and the modes of those with another one than :data:`MODE`.
    """

    at_ms: int
    program: str
    store: str | None
    store_version: int
    files: Mapping[str, FileMark]
    objects: str | None = None
    modes: Mapping[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(mark.size for mark in self.files.values())

    def mode(self, name: str) -> int:
        """Return the mode that a file of it had."""
        return self.modes.get(name, MODE)

    def write(self, directory: Path) -> None:
        """Have the backup count, durably. Raises OSError."""
        write_json(OsFiles(), directory / BACKUP_FILE, VERSION, self._fields())

    def to_bytes(self) -> _Content:
        """Return the content of the file."""
        return json_bytes(VERSION, self._fields())

    def _fields(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"at_ms": self.at_ms, "program": self.program, "store": self.store}
        plain |= {"store_version": self.store_version, "files": {name: [*mark] for name, mark in self.files.items()}}
        return plain if self.objects is None else plain | {"objects": self.objects, "modes": dict(self.modes)}

    @classmethod
    def read(cls, directory: Path) -> BackupManifest:
        """Return what a backup says.

        Raises:
            NotFoundError: it is none. CorruptError: it was interrupted, or the file is damaged, or of another version.
        """
        path = directory / BACKUP_FILE
        found = read_json(path, [VERSION])
        if found is None:
            if (directory / BEGUN_FILE).exists():
                raise interrupted(str(directory))
            raise no_backup(str(directory))
        return cls._of(found, str(path))

    @classmethod
    def parse(cls, content: _Content, name: str) -> BackupManifest:
        """Return what a file of this content, at ``name``, says.

        Raises:
            CorruptError: it is damaged, or of another version.
        """
        return cls._of(parse_json(content, name, [VERSION]), name)

    @classmethod
    def _of(cls, found: Mapping[str, Any], path: str) -> BackupManifest:
        try:
            files = {str(name): FileMark(int(size), int(crc)) for name, (size, crc) in found["files"].items()}
            store = None if found["store"] is None else str(found["store"])
            objects = None if found.get("objects") is None else str(found["objects"])
            modes = {str(name): int(mode) & 0o777 for name, mode in found.get("modes", {}).items()}
            at_ms, version = int(found["at_ms"]), int(found["store_version"])
            manifest = cls(at_ms, str(found["program"]), store, version, files, objects, modes)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptError(f"{path} is damaged: {error!r}") from error
        for name in (*files, *filter(None, [objects])):
            if not _is_inside(name):
                raise CorruptError(f"{path} is damaged: it names the file {name!r:.200}; allowed: files of the backup")
        return manifest


def interrupted(place: str) -> CorruptError:
    """Return the error that a backup is not whole."""
    return CorruptError(
        f"{place} is no whole backup: it was interrupted before {BACKUP_FILE} was written, or is being "
        "made still; allowed: a whole one. The same tarry backup again begins it anew"
    )


def no_backup(place: str) -> NotFoundError:
    """Return the error that there is no backup."""
    return NotFoundError(f"{place} is no backup: it has no {BACKUP_FILE}; allowed: what tarry backup made")


def _is_inside(name: str) -> bool:
    """Return whether it is a path below a directory.

    A backup may come from elsewhere, and is restored as root.
    """
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts
