"""What was measured of a run beside the account of its messages, and what must not have happened."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from tarry.demo.account import Account, Downtime


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What Spark wrote, by the Delta table's own log, read without the broker."""

    rows: int
    commits: int
    files: int
    size_bytes: int
    committed_seq: int

    @classmethod
    def of(cls, path: Path, shard: int = 0) -> StoreFacts:
        """Read from the table's own log, with deltalake."""
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
    """The kill, and what came after it."""

    outage: Downtime
    processes: int
    """How many were alive of broker and pipeline when it was killed."""
    gone_s: float
    """How long after the kill all of them had ended."""
    left: list[int]
    """The processes that had to be killed after all."""
    pipeline_back_s: float | None
    """From the kill until Spark worked again."""


@dataclass(slots=True)
class Facts:
    """A run; the units are in the names."""

    flights: int
    seconds: float
    start_ms: int
    """When the replay began: the first departure's due time."""
    ways: dict[str, int] = field(default_factory=dict)
    asked_again: int = 0
    scheduled_per_s: float = 0.0
    """Of the table: messages that the broker acknowledged in a second."""
    spark_start_s: float = 0.0
    kill: KillFacts | None = None
    fired: int = 0
    fired_from_store: int = 0
    """Delivered from the store, as the broker counted, over the kill."""
    store: StoreFacts | None = None
    pipeline: dict[str, Any] = field(default_factory=dict)
    """``status()["pipeline"]`` at the end."""
    broker_bytes_max: int = 0
    pipeline_bytes_max: int = 0
    undrained: bool = False
    """The broker still had something to deliver when the demo stopped waiting."""
    stop_code: int = 0
    stop_s: float = 0.0
    left_at_end: list[int] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def wrong_with(account: Account, facts: Facts) -> list[str]:
    """What must not have happened; empty when the run was good."""
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
