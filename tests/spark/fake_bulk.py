"""A broker's side of bulk, as small as it can be, on a real store: for tests of what Spark does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction

from tarry.api.jobs import StagedFile
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.message.admission import MessageLimits
from tarry.message.schema import SCHEMA, UNNUMBERED
from tarry.store import StaleCommitError, Store, read_window, stage
from tarry.store.actions import add_action
from tarry.store.columns import PARTITION_COLUMNS, TABLE
from tests.spark.fake_link import FakeLink

NOW_MS = 1_795_264_000_000
FIRST = 1 << 62


class FakeBulk(FakeLink):
    """``jobs``: what is known of each by name. The hooks run inside of calls, and may raise."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.store_uri = str(root)
        self.table_id = Store.open(self.store_uri).table_id
        self.limits = MessageLimits()
        self.lock = threading.RLock()
        self.attempts: dict[int, dict[str, Any]] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.before: Callable[[str, dict[str, Any]], None] = lambda name, body: None
        self.after: Callable[[str, dict[str, Any]], None] = lambda name, body: None

    # -- what tests ask ------------------------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """What is committed, in due order."""
        got = read_window(Store.open(self.store_uri).snapshot(), (0, 0), 1 << 62, batch_rows=8192)
        return [row for batch in got for row in batch.to_pylist()]

    def files(self) -> list[Path]:
        """All data files that are there, committed or not."""
        return sorted(Path(self.store_uri).rglob("*.parquet"))

    def named(self) -> int:
        """Files that the table names."""
        return len(DeltaTable(self.store_uri).file_uris())

    # -- the wire ------------------------------------------------------------------------------------------------------

    def call(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            self.calls.append(op)
        handler = getattr(self, f"on_{op.replace('-', '_')}", None)
        self.before(op, body)
        if handler is None:
            raise NotFoundError(f"no action {op!r}")
        with self.lock:
            answer: dict[str, Any] = handler(body)
        self.after(op, body)
        return answer

    def stage(self, number: int, rows: pa.Table) -> dict[str, Any]:
        with self.lock:
            self.calls.append("bulk-stage")
        assert rows.schema == UNNUMBERED
        with self.lock:
            first = self.on_bulk_reserve({"number": number, "rows": rows.num_rows})["first_seq"]
        seq = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
        numbered = rows.add_column(0, SCHEMA.field("seq"), seq)
        files = stage(numbered, self.store_uri, f"bulk-{number}-sent", NOW_MS)
        topics: dict[str, int] = {}
        for topic in rows["topic"].to_pylist():
            topics[topic] = topics.get(topic, 0) + 1
        return {"files": [asdict(f) for f in files], "topics": topics}

    # -- bulk ----------------------------------------------------------------------------------------------------------

    def on_bulk_begin(self, body: dict[str, Any]) -> dict[str, Any]:
        job = self.jobs.setdefault(body["job"], {"state": "open", "number": -1, "rows": 0, "topics": {}})
        token = body.get("attempt")
        if job["state"] == "open" and not (token is not None and job.get("attempt") == token):
            job |= {"number": len(self.attempts) + 1, "attempt": token}
            self.attempts[job["number"]] = {"job": body["job"], "reserved": 0, "aborted": False}
        limits = {**asdict(self.limits), "levels": list(self.limits.levels)}
        answer = {name: job[name] for name in ("state", "number", "rows", "topics")}
        place = {"store_uri": self.store_uri, "table_id": self.table_id, "shard": 0}
        return {**answer, **place, "now_ms": NOW_MS, "limits": limits}

    def on_bulk_jobs(self, body: dict[str, Any]) -> dict[str, Any]:
        job = self.jobs.get(body["job"])
        if job is None:
            return {"jobs": []}
        unused: dict[str, Any] = {"reserved": 0, "due_min_ms": None, "due_max_ms": None, "begun_ms": NOW_MS}
        known = {name: job[name] for name in ("number", "state", "rows", "topics")}
        return {"jobs": [{**unused, **known, "job": body["job"], "committed_ms": NOW_MS, "cancelled": 0, "keys": 0}]}

    def on_bulk_reserve(self, body: dict[str, Any]) -> dict[str, Any]:
        attempt = self._attempt(body["number"])
        if attempt["aborted"]:
            raise StaleCommitError(f"attempt {body['number']} of job {attempt['job']!r} was given up")
        first = FIRST + body["number"] * (1 << 40) + attempt["reserved"]
        attempt["reserved"] += body["rows"]
        return {"first_seq": first}

    def on_bulk_commit(self, body: dict[str, Any]) -> dict[str, Any]:
        attempt, number = self._attempt(body["number"]), body["number"]
        job = self.jobs[attempt["job"]]
        if job["number"] != number or attempt["aborted"]:
            raise StaleCommitError(f"attempt {number} of job {attempt['job']!r} is not the newest, or was given up")
        files = [StagedFile(**file) for file in body["files"]]
        if job["state"] == "open":
            low = FIRST + number * (1 << 40)
            if not all(low <= f.seq_min <= f.seq_max < low + (1 << 40) for f in files):
                raise InvalidArgumentError("a file has seqs of another attempt")
            if sum(body["topics"].values()) != sum(f.rows for f in files):
                raise InvalidArgumentError("the topics do not add up")
            for file in files:
                assert (Path(self.store_uri) / file.path).stat().st_size == file.size
            DeltaTable(self.store_uri).create_write_transaction(
                [add_action(file, NOW_MS) for file in files],
                "append",
                Schema.from_arrow(TABLE),
                PARTITION_COLUMNS,
                commit_properties=CommitProperties(
                    custom_metadata={"tarry.files": str(len(files))},
                    app_transactions=[Transaction(f"bulk-{number}", 1)],
                ),
            )
            job |= {"state": "committed", "rows": sum(f.rows for f in files), "topics": body["topics"]}
        version = DeltaTable(self.store_uri).version()
        return {"state": "committed", "rows": job["rows"], "topics": job["topics"], "version": version}

    def on_bulk_abort(self, body: dict[str, Any]) -> dict[str, Any]:
        attempt = self._attempt(body["number"])
        if self.jobs[attempt["job"]]["state"] == "open":
            attempt["aborted"] = True
            for path in self.files():
                if path.name.startswith(f"bulk-{body['number']}-"):
                    path.unlink()
        return {}

    def _attempt(self, number: int) -> dict[str, Any]:
        if number not in self.attempts:
            raise NotFoundError(f"no attempt {number}")
        return self.attempts[number]
