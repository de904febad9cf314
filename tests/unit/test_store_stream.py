"""The table followed as a stream, by the rules of Delta's streaming readers: through all upkeep, a row comes once."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tarry.store import rewrite
from tarry.store.locallog import actions_of, entry_path

from .test_store_month import Month
from .test_store_upkeep import NOW_MS, Stored, near_work


class DeltaStream:
    """What ``readStream.format("delta")`` does with ``ignoreDeletes``: it hands on the rows of files that are added
    with a change of data, and gives up where a commit adds such files and removes others.
    """

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self._version = -1
        self.seen: Counter[int] = Counter()
        self.removals: Counter[bool] = Counter()
        """Commits that removed files, by whether data was changed."""

    def follow(self) -> None:
        while (entry := entry_path(self._root, self._version + 1)).exists():
            self._version += 1
            actions = actions_of(entry.read_bytes())
            assert actions is not None
            adds = [a["add"] for a in actions if "add" in a and a["add"]["dataChange"]]
            removes = [a["remove"]["dataChange"] for a in actions if "remove" in a]
            assert not (adds and any(removes)), f"version {self._version} changes what was read"
            if removes:
                self.removals[any(removes)] += 1
            for add in adds:
                self.seen.update(pq.read_table(self._root / add["path"], columns=["seq"])["seq"].to_pylist())


def added(root: str, version: int) -> list[dict[str, Any]]:
    lines = entry_path(Path(root), version).read_text().splitlines()
    return [action for action in map(json.loads, lines) if "add" in action or "remove" in action]


@pytest.mark.rest
def test_a_stream_of_the_table_has_each_row_once(tmp_path: Path) -> None:
    month = Month(tmp_path / "store")
    stream = DeltaStream(month.store.root)
    for step in range(24):
        month.commit()
        if step % 3:  # sometimes it sees files before they are rewritten, sometimes after
            stream.follow()
        month.upkeep.round(threading.Event())
        if step % 6 == 5:
            month.deliver()
    stream.follow()
    assert stream.removals[True] > 0, "nothing expired, or was left out"
    assert stream.removals[False] > 0, "nothing was merged"
    assert month.upkeep.totals["rows_read"] > month.upkeep.totals["rows_written"], "nothing was left out"
    assert stream.seen == Counter(range(month.broker.seq))


def test_what_is_only_merged_changes_no_data(tmp_path: Path) -> None:
    stored = Stored(tmp_path / "store")
    done = rewrite(near_work(stored))
    version = stored.store.replace(done.removed, done.files).version
    actions = added(stored.store.root, version)
    assert {action.popitem()[1]["dataChange"] for action in actions} == {False}


def test_a_merge_that_leaves_rows_out_removes_data_and_adds_none(tmp_path: Path) -> None:
    stored = Stored(tmp_path / "store")
    work = dataclasses.replace(near_work(stored), floor_ms=NOW_MS + 25)
    done = rewrite(work)
    assert 0 < done.rows < done.rows_read
    version = stored.store.replace(done.removed, done.files).version
    actions = added(stored.store.root, version)
    changes = {kind: values["dataChange"] for action in actions for kind, values in action.items()}
    assert changes == {"add": False, "remove": True}
