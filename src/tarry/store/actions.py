"""A commit's changes, and their form in the Delta log: actions, and a text for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deltalake.transaction import AddAction, RemoveAction

from tarry.api.jobs import StagedFile
from tarry.store.columns import instant_text


@dataclass(frozen=True, slots=True)
class Commit:
    """Changes of a commit.

    ``files`` are added, the files ``removed`` (paths in the table) are removed, and the app transactions get these
    ``versions``. If files are removed, the added ones have only their rows. ``operation`` and ``info`` are for people
    who read the log.
    """

    operation: str
    files: Sequence[StagedFile] = ()
    removed: Sequence[str] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    info: Mapping[str, str] = field(default_factory=dict)


def add_action(file: StagedFile, now_ms: int, *, data_change: bool = True) -> AddAction:
    """Return the log's action that adds a file, with its bounds.

    ``data_change``: its rows are new to the table.
    """
    low = {"due_ms": file.due_min_ms, "seq": file.seq_min, "topic": file.topic_min}
    high = {"due_ms": file.due_max_ms, "seq": file.seq_max, "topic": file.topic_max}
    first, last = instant_text(file.due_min_ms), instant_text(file.due_max_ms)
    if first is not None and last is not None:
        low["due"], high["due"] = first, last
    statistics = {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(low, 0)}
    partition = {"shard": str(file.shard), "bucket": file.bucket}
    return AddAction(file.path, file.size, partition, now_ms, data_change, json.dumps(statistics))


def described(commit: Commit, removals: Sequence[RemoveAction]) -> str:
    """Return the text that an engine's history of the table shows of a commit.

    delta-rs calls each of them WRITE, without figures.
    """
    figures = {
        "files_added": len(commit.files),
        "rows_added": sum(file.rows for file in commit.files),
        "bytes_added": sum(file.size for file in commit.files),
        "files_removed": len(removals),
        "bytes_removed": sum(each.size for each in removals),
    }
    return json.dumps({"operation": f"tarry {commit.operation}", **figures})
