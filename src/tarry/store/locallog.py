"""The Delta log on a local disk: making it durable, and mending what a power failure leaves.

delta-rs writes a log entry under a temporary name and links it into place, without an fsync. The broker deletes its
intake when the store has the messages, so an entry must be on the disk before anybody acts on it: whoever takes up a
new version syncs it first (``publisher.py``), be it the driver that committed it or a broker that happened to see it.
Then a record of the entry's checksum is written beside it. The record therefore says two things: the entry was durable,
and what is in it, of which Delta keeps no checksum.

After a power failure, what was not synced may be there with its name and without its content. That can only be the
newest entry or the newest checkpoint, and nobody has acted on either: an incomplete entry is removed (the commit did
not happen), an incomplete checkpoint too (it is derived; entries are deleted only when a later checkpoint is synced).
An entry that is incomplete though it has its record was damaged later. To remove it would lose what somebody relies on,
so it is refused; and so is a damaged checkpoint without which the log cannot be read.
"""

from __future__ import annotations

import errno
import json
import logging
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tarry.base.arrow_memory import when_memory
from tarry.base.errors import CorruptError
from tarry.log.files import DISK_FULL, OsFiles
from tarry.log.json_file import read_json, write_json
from tarry.store.place import sync_file

log = logging.getLogger(__name__)

FILES_KEY = "tarry.files"
"""Key in an entry's commit info: the number of files that it adds, as text.

An entry with fewer has lost its end.
"""

REMOVED_KEY = "tarry.removed"
"""Key of the number of files, as text, that a commit removes when it rewrites the table's files.

Such a commit has no app transaction.
"""

RECORD_SUFFIX = ".crc32"
RECORD_VERSION = 1
LAST_CHECKPOINT = "_last_checkpoint"

GO_ON = (
    "restore that file from a copy of the store; or, to give up what it committed, remove it together with its record "
    f"({RECORD_SUFFIX}): messages and bulk jobs of that commit are lost then"
)
"""Advice for going on after an entry of the log is damaged."""

_NO_ROOM_OR_RIGHT = (*DISK_FULL, errno.EACCES, errno.EPERM, errno.EROFS)


def log_directory(root: Path) -> Path:
    """Return the directory of a table's log."""
    return root / "_delta_log"


def entry_path(root: Path, version: int) -> Path:
    """Return the path of a version's log entry."""
    return log_directory(root) / f"{version:020d}.json"


def entries_in(root: Path) -> list[Path]:
    """Return the existing log entries, ascending."""
    return sorted(path for path in log_directory(root).glob("[0-9]*.json") if path.stem.isdecimal())


def checkpoints_in(root: Path) -> list[Path]:
    """Return the existing checkpoints of the log, ascending; a foreign writer's may have several parts."""
    return sorted(log_directory(root).glob("[0-9]*.checkpoint*.parquet"))


def version_of_file(path: Path) -> int:
    """Return the version of an entry, a checkpoint, or a record of either."""
    return int(path.name.partition(".")[0])


# -- making it durable -------------------------------------------------------------------------------------------------


def sync_entries(root: Path, first: int, last: int) -> None:
    """Make the log entries of versions ``first`` to ``last`` durable, and their names.

    An entry may have been cleaned up. One that has its record is durable already.
    """
    entries = (entry_path(root, version) for version in range(first, last + 1))
    synced = []
    for entry in [each for each in entries if not record_path(each).exists()]:
        try:
            sync_file(entry)
        except FileNotFoundError:
            continue
        synced.append(entry)
    if synced:
        sync_file(log_directory(root))
        _write_records(synced)


def sync_checkpoint(root: Path, version: int) -> None:
    """Make a checkpoint durable, content before hint; and remove records of what was cleaned up."""
    directory = log_directory(root)
    parts = sorted(directory.glob(f"{version:020d}.checkpoint*.parquet"))
    for path in (*parts, directory / LAST_CHECKPOINT, directory):
        sync_file(path)
    _write_records(parts)


def remove_lone_records(root: Path) -> None:
    """Remove the records of entries and checkpoints that were cleaned up."""
    for record in log_directory(root).glob(f"*{RECORD_SUFFIX}"):
        if not recorded_path(record).exists():
            record.unlink(missing_ok=True)


def record_path(path: Path) -> Path:
    """Return the path of the record of an entry's or a checkpoint's checksum."""
    return path.with_name(path.name + RECORD_SUFFIX)


def recorded_path(record: Path) -> Path:
    """Return the path of the file that a record is of."""
    return record.with_name(record.name.removesuffix(RECORD_SUFFIX))


def _write_records(paths: list[Path]) -> None:
    for path in paths:
        try:
            content = path.read_bytes()
            fields = {"bytes": len(content), "crc32": zlib.crc32(content)}
            write_json(OsFiles(), record_path(path), RECORD_VERSION, fields)
        except FileNotFoundError:
            continue  # cleaned up meanwhile; or another process wrote the same record and was the first
        except OSError as error:
            if error.errno not in _NO_ROOM_OR_RIGHT:
                raise
            # The entry is durable. Without its record it is as well protected as Delta protects it.
            log.warning("%s has no record of its checksum: %s", path, error)


def is_as_recorded(path: Path) -> bool | None:
    """Return whether a file matches its record; None if there is no record.

    Raises:
        CorruptError: the record is damaged.
    """
    record = read_json(record_path(path), (RECORD_VERSION,))
    if record is None:
        return None
    content = path.read_bytes()
    return (len(content), zlib.crc32(content)) == (record["bytes"], record["crc32"])


# -- after a power failure ---------------------------------------------------------------------------------------------


def mend(root: Path, version_min: int = -1) -> list[str]:
    """Remove an incomplete newest entry and incomplete checkpoints; return the names of removed files.

    ``version_min`` is known to have been acted on; so is every file that has its record.

    Raises:
        CorruptError: what would have to be removed was acted on; nothing was changed.
    """
    directory = log_directory(root)
    if not directory.is_dir():
        return []
    # Before the entries: a record comes after its entry, so one that another process writes meanwhile is not taken for
    # the record of a lost one.
    recorded = _newest_recorded(root)
    entries, checkpoints = entries_in(root), checkpoints_in(root)
    _check_newest(root, entries, recorded)
    torn = [path for path in entries[-1:] if not is_complete(path)]
    for path in torn:
        if version_of_file(path) <= version_min or _matches_record(path) is not None:
            raise CorruptError(f"{path} is damaged: it is incomplete, though it was durable and acted on; {GO_ON}")
    for path in [path for path in checkpoints[-1:] if not is_readable_checkpoint(path)]:
        _check_dispensable(path, checkpoints[:-1], entries)
        torn.append(path)
    _check_as_recorded(entries, checkpoints, torn)
    hint = directory / LAST_CHECKPOINT
    if hint.exists() and (_parsed(hint.read_bytes()) is None or any(".checkpoint" in path.name for path in torn)):
        torn.append(hint)
    for path in torn:
        log.warning("removing %s: incomplete after a crash of the machine, and not acted upon yet", path)
        path.unlink()
        record_path(path).unlink(missing_ok=True)
    if torn:
        sync_file(directory)
    return [path.name for path in torn]


def _newest_recorded(root: Path) -> int:
    return max(map(version_of_file, log_directory(root).glob(f"[0-9]*.json{RECORD_SUFFIX}")), default=-1)


def _check_newest(root: Path, entries: list[Path], recorded: int) -> None:
    """Nothing removes the newest entry; so where a record is of a later one, that was lost."""
    newest = version_of_file(entries[-1]) if entries else -1
    if recorded > newest:
        raise CorruptError(f"{entry_path(root, recorded)} is missing, though it was durable and acted on; {GO_ON}")


def _check_as_recorded(entries: list[Path], checkpoints: list[Path], torn: list[Path]) -> None:
    """Check the entries that are read when the table is opened against their records.

    Delta itself would accept a bound that has changed.
    """
    start = max((version_of_file(path) for path in checkpoints if path not in torn), default=-1)
    for entry in entries:
        if entry not in torn and version_of_file(entry) > start and _matches_record(entry) is False:
            raise CorruptError(f"{entry} is damaged: its checksum is not that of its record; {GO_ON}")


def _check_dispensable(checkpoint: Path, earlier: list[Path], entries: list[Path]) -> None:
    start = max(map(version_of_file, earlier), default=-1)
    versions = set(map(version_of_file, entries))
    missing = set(range(start + 1, version_of_file(checkpoint) + 1)) - versions
    if missing:
        raise CorruptError(
            f"{checkpoint} is damaged, and the log cannot be read without it: the entry of version {min(missing)} was "
            "cleaned up; restore that file from a copy of the store"
        )


def _matches_record(path: Path) -> bool | None:
    try:
        return is_as_recorded(path)
    except CorruptError:
        return None  # the record is of no use, and derived; what the broker knows may still tell


def is_complete(entry: Path) -> bool:
    """Return whether an entry has all that it says it has."""
    actions = actions_of(entry.read_bytes())
    if actions is None:
        return False
    info: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    added, removed, moved = (sum(1 for a in actions if kind in a) for kind in ("add", "remove", "txn"))
    if FILES_KEY not in info:
        return True  # a foreign writer's, of which no more is known
    if int(info[FILES_KEY]) != added:
        return False
    return removed == int(info[REMOVED_KEY]) if REMOVED_KEY in info else moved > 0


def actions_of(content: bytes) -> list[dict[str, Any]] | None:
    """Return the actions of a log entry; None if there are none, or one is no JSON object."""
    actions = list(_parsed_lines(content))
    whole = [action for action in actions if action is not None]
    return whole if whole and len(whole) == len(actions) else None


def _parsed_lines(content: bytes) -> Iterator[dict[str, Any] | None]:
    return map(_parsed, content.splitlines())


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def is_readable_checkpoint(checkpoint: Path) -> bool:
    """Return whether a checkpoint matches its record, or can be read if it has none."""
    if (matches := _matches_record(checkpoint)) is not None:
        return matches
    try:
        when_memory(partial(_read_through, checkpoint))
    except (pa.ArrowException, OSError):
        return False
    return True


def _read_through(checkpoint: Path) -> None:
    with pq.ParquetFile(checkpoint, page_checksum_verification=True) as file:
        for _ in file.iter_batches():
            pass
