"""The Delta log on a local disk: making it durable, and mending what a power failure leaves.

delta-rs writes a log entry under a temporary name and links it into place, without an fsync. The broker deletes its
intake when the store has the messages, so an entry must be on the disk before anybody acts on it: whoever takes up a
new version syncs it first (``table.py``), be it the driver that committed it or a broker that happened to see it.

After a power failure, what was not synced may be there with its name and without its content. That can only be the
newest entry or the newest checkpoint, and nobody has acted on either: an incomplete entry is removed (the commit did
not happen), an incomplete checkpoint too (it is derived; entries are deleted only when a later checkpoint is synced).
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tarry.store.place import sync_file

log = logging.getLogger(__name__)

FILES_KEY = "tarry.files"
"""In an entry's commit info: how many files it adds, as text. An entry with fewer has lost its end."""

REMOVED_KEY = "tarry.removed"
"""How many files it removes, as text, where it rewrites the table's files: then it has no app transaction."""

_LAST_CHECKPOINT = "_last_checkpoint"


def sync_entries(root: Path, first: int, last: int) -> None:
    """Make the log entries of versions ``first`` to ``last`` durable, and their names; one cleaned up is fine."""
    directory = root / "_delta_log"
    for version in range(first, last + 1):
        try:
            sync_file(directory / f"{version:020d}.json")
        except FileNotFoundError:
            continue
    sync_file(directory)


def sync_checkpoint(root: Path, version: int) -> None:
    """Make a checkpoint durable, content before hint."""
    directory = root / "_delta_log"
    for path in (*directory.glob(f"{version:020d}.checkpoint*.parquet"), directory / _LAST_CHECKPOINT, directory):
        sync_file(path)


def mend(root: Path) -> list[str]:
    """Remove an incomplete newest entry and incomplete checkpoints; the names of what was removed."""
    directory = root / "_delta_log"
    if not directory.is_dir():
        return []
    entries = sorted(directory.glob("[0-9]*.json"))
    torn = [path for path in entries[-1:] if not _complete(path)]
    checkpoints = sorted(directory.glob("[0-9]*.checkpoint*.parquet"))
    torn += [path for path in checkpoints[-1:] if not _readable(path)]
    hint = directory / _LAST_CHECKPOINT
    if hint.exists() and (_parsed(hint.read_bytes()) is None or any(".checkpoint" in path.name for path in torn)):
        torn.append(hint)
    for path in torn:
        log.warning("removing %s: incomplete after a crash of the machine, and not acted upon yet", path)
        path.unlink()
    if torn:
        sync_file(directory)
    return [path.name for path in torn]


def _complete(entry: Path) -> bool:
    content = entry.read_bytes()
    actions = [_parsed(line) for line in content.splitlines()]
    if not actions or any(action is None for action in actions):
        return False
    info: dict[str, Any] = next((a["commitInfo"] for a in actions if a and "commitInfo" in a), {})
    added, removed, moved = (sum(1 for a in actions if a and kind in a) for kind in ("add", "remove", "txn"))
    if FILES_KEY not in info:
        return True  # a foreign writer's, of which no more is known
    if int(info[FILES_KEY]) != added:
        return False
    return removed == int(info[REMOVED_KEY]) if REMOVED_KEY in info else moved > 0


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _readable(checkpoint: Path) -> bool:
    try:
        with pq.ParquetFile(checkpoint, page_checksum_verification=True) as file:
            for _ in file.iter_batches():
                pass
    except (pa.ArrowException, OSError):
        return False
    return True
