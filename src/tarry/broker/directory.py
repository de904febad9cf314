"""The data directory: its id, its secret, and the checkpoint that recovery starts from."""

from __future__ import annotations

import re
import secrets
import socket
import struct
import zlib
from dataclasses import dataclass, field, fields
from pathlib import Path

from tarry.base.errors import CorruptError
from tarry.broker.topic_counts import FIELDS as COUNTED
from tarry.broker.topic_counts import TopicCounts
from tarry.log.files import Files
from tarry.log.json_file import make_private, read_json, write_json
from tarry.store import Owner

VERSION = 7
VERSIONS = (1, 2, 3, 4, 5, 6, VERSION)
"""Readable versions of the checkpoint.

Before version 2 there were no names and no cancellations. Before version 3 the checkpoint did not record how far the
registry, ``jobs.db`` and the journal of the groups were durable. Before version 5 hand-outs had no bound
(:mod:`tarry.broker.hand_out_bound`): a program of that time would hand out beyond it, so it must not open the
directory. Before version 6 the small files were not listed. Before version 7 there was no
:attr:`Checkpoint.ready_first`.
"""
CHECKPOINT_FILE = "checkpoint.json"
SECRET_FILE = "secret.key"
SECRET_BYTES = 32
ID_FILE = "broker.id"
ID_BYTES = 16
_CRC = struct.Struct("<I")
"""The checksum behind the secret; older files have none."""


def owner_of(directory: Path) -> Owner:
    """Return the owner that stores know this broker by; a new one if there is no :data:`ID_FILE`.

    Raises:
        CorruptError: the id is damaged.
    """
    path = directory / ID_FILE
    try:
        text = path.read_bytes().strip().decode(errors="replace")
    except FileNotFoundError:
        text = secrets.token_hex(ID_BYTES)
    if not re.fullmatch(f"[0-9a-f]{{{2 * ID_BYTES}}}", text):
        raise CorruptError(f"{path} is damaged: {text!r:.80}; allowed: {2 * ID_BYTES} hexadecimal digits")
    return Owner(text, socket.gethostname(), str(directory.absolute()))


def keep_id(files: Files, directory: Path, owner: Owner) -> None:
    """Make the id durable, before the store records this broker as its owner.

    Otherwise the store would refuse the broker after a crash.
    """
    path = directory / ID_FILE
    if not path.exists():
        files.replace(path, f"{owner.id}\n".encode())


def read_secret(files: Files, directory: Path) -> bytes:
    """Return the key that authenticates message handles; create it at the first start.

    Raises:
        CorruptError: it is damaged. Otherwise valid handles would be taken for forged, and with an empty key
            anybody could forge some.
    """
    path = directory / SECRET_FILE
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
    """Durable progress; ``docs/formats.md`` says what the fields promise."""

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
    """True if names were in use.

    Then the registry is there, with everything below ``fired_seq``, or was lost.
    """
    registry_writes: int = 0
    """Number of batches of changes of the registry that were durable."""
    jobs_changes: int = 0
    """The counter of changes of ``jobs.db``; 0 if there was no such file."""
    acks: tuple[int, int] = (0, 0)
    """File, and position in it, up to which the journal of the groups was durable."""
    intake_first: int | None = None
    """First segment of the intake: only segments before it may have been deleted. None if unknown."""
    ready_first: int | None = None
    """First segment of the ready log: only segments before it may have been deleted. None if unknown."""
    store_version: int = -1
    """The store's version when the checkpoint was written.

    The broker acted on that version, so a store without it is damaged.
    """
    small_files: tuple[str, ...] = ()
    """Names of small files that have been there (:mod:`tarry.broker.small_files`), in order."""

    def write(self, files: Files, directory: Path, counts: TopicCounts | None = None) -> None:
        """Replace the checkpoint on disk, atomically and durably.

        ``counts``: the file of topic counts beside the former checkpoint.
        """
        plain = {f.name: getattr(self, f.name) for f in fields(self)}  # not asdict, which copies each topic's numbers
        counts = counts or TopicCounts(directory)
        former = counts.number
        plain |= counts.changes(files, {name: plain[name] for name in COUNTED})
        beside = {} if counts.number is None else {"topics": counts.number}
        write_json(files, directory / CHECKPOINT_FILE, VERSION, plain | beside)
        if counts.number != former:
            counts.remove_others(files)

    @classmethod
    def read(cls, directory: Path) -> Checkpoint:
        """Return the checkpoint on disk; if there is none, one from which everything is recovered.

        Raises:
            CorruptError: it is damaged, or of another version.
        """
        return cls.read_with_counts(directory)[0]

    @classmethod
    def read_with_counts(cls, directory: Path) -> tuple[Checkpoint, TopicCounts]:
        """Return the checkpoint as :meth:`read` does, and the topic counts beside it, for :meth:`write`."""
        found = read_json(directory / CHECKPOINT_FILE, VERSIONS)
        if found is None:
            return cls(), TopicCounts(directory)
        for name in ("ready", "intake", "acks", "small_files"):
            if found.get(name) is not None:
                found[name] = tuple(found[name])
        counts = TopicCounts(directory, found.pop("topics", None))
        return cls(**found | counts.with_changes({name: found.get(name, {}) for name in COUNTED})), counts
