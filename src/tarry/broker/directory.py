"""The data directory: its lock, its secret, and the checkpoint that recovery starts from."""

from __future__ import annotations

import secrets
import struct
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tarry.base.errors import CorruptError
from tarry.base.lock_file import LockFile
from tarry.log.files import Files
from tarry.log.json_file import make_private, read_json, write_json

VERSION = 4
VERSIONS = (1, 2, 3, 4)
"""Those that can be read: before the second there were no names and no cancellations, before the third it was not said
how far the registry, ``jobs.db`` and the journal of the groups were durable.
"""
SECRET_BYTES = 32
_CRC = struct.Struct("<I")
"""Behind the secret; older files have none."""


class DirectoryLock:
    """Holds a data directory for one broker; the operating system lets go of it when the process dies."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._file = LockFile(directory / "lock", held=directory, user="broker")

    def release(self) -> None:
        """Let go of it."""
        self._file.release()


def read_secret(files: Files, directory: Path) -> bytes:
    """The key that authenticates message handles, made at the first start.

    Raises:
        CorruptError: it is damaged: handles given out would be taken for forged, and with an empty key anybody could
            make some.
    """
    path = directory / "secret.key"
    if not path.exists():
        secret = secrets.token_bytes(SECRET_BYTES)
        make_private(path, 0o600)
        files.replace(path, secret + _CRC.pack(zlib.crc32(secret)))
    content = path.read_bytes()
    secret, checksum = content[:SECRET_BYTES], content[SECRET_BYTES:]
    if len(content) not in (SECRET_BYTES, SECRET_BYTES + _CRC.size):
        raise CorruptError(f"{path} has {len(content)} bytes; allowed: {SECRET_BYTES + _CRC.size}")
    if checksum and checksum != _CRC.pack(zlib.crc32(secret)):
        raise CorruptError(f"{path} is damaged: its checksum does not hold")
    return secret


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Progress that is durable; what the fields promise is in ``docs/formats.md``."""

    fired_until_ms: int = -(1 << 62)
    fired_seq: int = 0
    ready: tuple[int, int] = (0, 0)
    intake: tuple[int, int] | None = None
    accepted: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    stored_rows: int = 0
    committed_seq: int = 0
    cancelled: dict[str, int] = field(default_factory=dict)
    registry: bool = False
    """Whether names were in use: then the registry is there, with all that is below ``fired_seq``, or was lost."""
    registry_writes: int = 0
    """So many batches of changes the registry had had, durably."""
    jobs_changes: int = 0
    """The counter of changes of ``jobs.db``; 0 where there was none."""
    acks: tuple[int, int] = (0, 0)
    """File, and position in it, up to which the journal of the groups was durable."""
    intake_first: int | None = None
    """The intake begins there: what is before may have been deleted, and nothing else. None: not known."""
    store_version: int = -1
    """The store's version when it was written: the broker acted on it, so the store has it or is damaged."""

    def write(self, files: Files, directory: Path) -> None:
        """Replace the checkpoint on disk, atomically and durably."""
        write_json(files, directory / "checkpoint.json", VERSION, asdict(self))

    @classmethod
    def read(cls, directory: Path) -> Checkpoint:
        """The checkpoint on disk, or one from which everything is recovered where there is none.

        Raises:
            CorruptError: when it is damaged or of another version.
        """
        fields = read_json(directory / "checkpoint.json", VERSIONS)
        if fields is None:
            return cls()
        for name in ("ready", "intake", "acks"):
            if fields.get(name):
                fields[name] = tuple(fields[name])
        return cls(**fields)
