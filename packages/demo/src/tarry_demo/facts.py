"""Measurements of a run beside the account of its messages, and its faults."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from tarry_demo.account import Account, Downtime


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """Facts on the files that Spark wrote, from the Delta table's own log, read without the broker."""

    rows: int
    commits: int
    files: int
    size_bytes: int
    committed_seq: int

    @classmethod
    def of(cls, path: Path, shard: int = 0) -> StoreFacts:
        """Read them from the table's own log, with deltalake."""
        table = DeltaTable(str(path))
        actions = pa.table(table.get_add_actions(flatten=True))
        return cls(
            rows=int(pc.sum(actions["num_records"]).as_py() or 0),
            commits=sum("tarry.start_seq" in entry for entry in table.history()),
            files=actions.num_rows,
            size_bytes=int(pc.sum(actions["size_bytes"]).as_py() or 0),
            committed_seq=int(table.transaction_version(f"intake-{shard}") or 0),
        )


@dataclass(frozen=True, slots=True)
class KillFacts:
    """The kill, and the recovery after it."""

    outage: Downtime
    processes: int
    """Number of living processes of broker and pipeline at the kill."""
    gone_s: float
    """Seconds from the kill until all of them had ended."""
    left: list[int]
    """The processes that had to be killed after all."""
    pipeline_back_s: float | None
    """Seconds from the kill until Spark worked again."""


@dataclass(slots=True)
class Facts:
    """Facts of a run; the units are in the names."""

    flights: int
    seconds: float
    start_ms: int
    """Start of the replay: the first departure's due time."""
    ways: dict[str, int] = field(default_factory=dict)
    asked_again: int = 0
    scheduled_per_s: float = 0.0
    """Messages of the table that the broker acknowledged in a second."""
    spark_start_s: float = 0.0
    kill: KillFacts | None = None
    fired: int = 0
    fired_from_store: int = 0
    """Messages delivered from the store, as the broker counted, before and after the kill."""
    store: StoreFacts | None = None
    pipeline: dict[str, Any] = field(default_factory=dict)
    """``status()["pipeline"]`` at the end."""
    broker_bytes_max: int = 0
    pipeline_bytes_max: int = 0
    undrained: bool = False
    """True if the broker still had something to deliver when the demo stopped waiting."""
    stop_code: int = 0
    stop_s: float = 0.0
    left_at_end: list[int] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the facts as plain data."""
        return asdict(self)


def wrong_with(account: Account, facts: Facts) -> list[str]:
    """Return the faults of a run; empty if it was good."""
    problems = [
        (account.lost > 0, f"{account.lost:,} messages were lost: acknowledged to the producer, never delivered"),
        (account.early > 0, f"{account.early:,} hand-outs were early"),
        (account.strange > 0, f"{account.strange:,} hand-outs do not fit what was accepted"),
        (account.accepted < facts.flights, f"{facts.flights - account.accepted:,} departures were not accepted"),
        (facts.undrained, "the broker had not delivered everything when the demo stopped waiting"),
        *_store_wrong(account, facts),
        *_process_wrong(facts),
    ]
    return [text for is_so, text in problems if is_so]


def _store_wrong(account: Account, facts: Facts) -> list[tuple[bool, str]]:
    store = facts.store
    share = f"{facts.fired_from_store:,} of {account.delivered:,} messages were delivered from the store"
    return [
        (2 * facts.fired_from_store < account.delivered, f"only {share}: Spark must carry most of them"),
        (
            store is not None and facts.fired_from_store > store.rows,
            f"the broker says that {share}, but Spark wrote {0 if store is None else store.rows:,}",
        ),
    ]


def _process_wrong(facts: Facts) -> list[tuple[bool, str]]:
    kill = facts.kill
    return [
        (kill is not None and bool(kill.left), f"processes outlived the killed broker: {kill and kill.left}"),
        (kill is not None and kill.pipeline_back_s is None, "the Spark pipeline did not come back after the kill"),
        (facts.stop_code != 0, f"the broker did not stop cleanly: exit code {facts.stop_code}"),
        (bool(facts.left_at_end), f"processes were left at the end: {facts.left_at_end}"),
    ]
