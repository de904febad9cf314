"""The manifest of a backup, ``backup.json``. It is written last: without it, a backup is not whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tarry.base.errors import CorruptError, NotFoundError
from tarry.log.file_engine import BACKUP_FILE, BEGUN_FILE
from tarry.log.files import OsFiles
from tarry.log.json_file import read_json, write_json

VERSION = 1


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
    storage, of which ``store_version`` is to be there when it is restored.
    """

    at_ms: int
    program: str
    store: str | None
    store_version: int
    files: Mapping[str, FileMark]

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(mark.size for mark in self.files.values())

    def write(self, directory: Path) -> None:
        """Have the backup count, durably. Raises OSError."""
        plain: dict[str, Any] = {"at_ms": self.at_ms, "program": self.program, "store": self.store}
        plain |= {"store_version": self.store_version, "files": {name: [*mark] for name, mark in self.files.items()}}
        write_json(OsFiles(), directory / BACKUP_FILE, VERSION, plain)

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
                raise CorruptError(
                    f"{directory} is no whole backup: it was interrupted before {BACKUP_FILE} was written, or is being "
                    "made still; allowed: a whole one. The same tarry backup again begins it anew"
                )
            raise NotFoundError(f"{directory} is no backup: it has no {BACKUP_FILE}; allowed: what tarry backup made")
        try:
            files = {str(name): FileMark(int(size), int(crc)) for name, (size, crc) in found["files"].items()}
            store = None if found["store"] is None else str(found["store"])
            manifest = cls(int(found["at_ms"]), str(found["program"]), store, int(found["store_version"]), files)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptError(f"{path} is damaged: {error!r}") from error
        for name in files:
            if not _is_inside(name):
                raise CorruptError(f"{path} is damaged: it names the file {name!r:.200}; allowed: files of the backup")
        return manifest


def _is_inside(name: str) -> bool:
    """Return whether it is a path below a directory.

    A backup may come from elsewhere, and is restored as root.
    """
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts
