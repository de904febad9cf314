"""What the history of the store's table shows: each commit by name and with figures, and columns with comments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from tests.unit.test_store_upkeep import NOW_MS, messages

from tarry.store import Store, stage


def test_each_commit_says_what_it_was(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "store"))
    due = [NOW_MS + 60_000 + each for each in range(100)]
    files = stage(messages(due, range(100)), store.root, "intake-x", NOW_MS)
    store.commit(files, 0, 100)
    job = stage(messages(due, [(1 << 62) + each for each in range(100)]), store.root, "bulk-0-x", NOW_MS)
    store.commit_bulk(job, 0)
    merged = stage(messages(due, range(100)), store.root, "run-x", NOW_MS)
    store.replace([file.path for file in files], merged)
    store.replace([file.path for file in merged], [])
    shown = [_metadata(entry) for entry in reversed(DeltaTable(store.root).history())]
    assert [each["operation"] for each in shown if each] == [
        "tarry schedule",
        "tarry bulk load",
        "tarry compact",
        "tarry expire",
    ]
    scheduled, _, compacted, expired = (each for each in shown if each)
    assert scheduled == {
        "operation": "tarry schedule",
        "files_added": len(files),
        "rows_added": 100,
        "bytes_added": sum(file.size for file in files),
        "files_removed": 0,
        "bytes_removed": 0,
    }
    assert (compacted["files_removed"], compacted["rows_added"]) == (len(files), 100)
    assert (expired["files_removed"], expired["files_added"]) == (len(merged), 0)
    assert expired["bytes_removed"] == sum(file.size for file in merged)


def _metadata(entry: dict[str, Any]) -> dict[str, Any] | None:
    text = entry.get("userMetadata")
    return None if text is None else json.loads(text)


def test_each_column_has_a_comment(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "store"))
    fields = DeltaTable(store.root).schema().fields
    assert [field.name for field in fields if not field.metadata.get("comment")] == []
