"""The demo's second count: both ledgers as files, compared by ``tarry audit`` in a process of its own.

The account (``account.py``) counts the same with numpy; both must come to the same numbers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tarry.spark.runtime.process import kill_session
from tarry_demo.account import Account
from tarry_demo.flights import Flights

ACCEPTED, DELIVERED, REPORT = "accepted.parquet", "delivered.parquet", "audit.html"
AUDIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Audited:
    """The answer of ``tarry audit``; ``error``: the reason if there is none."""

    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    verdict: list[str] = field(default_factory=list)
    error: str | None = None

    def wrong(self, account: Account) -> list[str]:
        """Return the faults: failures, no answer, or another count than the account's."""
        if self.error is not None:
            return [f"the audit failed: {self.error}"]
        expected = {name: getattr(account, name) for name in ("accepted", "delivered", "lost", "duplicated")}
        counted = {name: self.counts.get(name) for name in expected}
        problems = [f"the audit found {count:,} {name}" for name, count in self.failures.items()]
        return problems + ([f"the audit counts {counted}, the account {expected}"] if counted != expected else [])


def write_ledgers(out: Path, accepted: pa.Table, delivered: pa.Table, flights: Flights) -> None:
    """Write ``accepted.parquet`` and ``delivered.parquet``, as ``tarry audit`` reads them."""
    for name, ledger in ((ACCEPTED, accepted), (DELIVERED, delivered)):
        rows = ledger.column("row")
        is_flight = pc.and_(pc.greater_equal(rows, 0), pc.less(rows, len(flights)))
        topics = flights.messages.column("topic").take(pc.if_else(is_flight, rows, None))
        ledger = ledger.append_column("topic", topics).append_column("id", rows.cast(pa.string()))
        pq.write_table(ledger.drop_columns(["row"]), out / name, compression="zstd")


def audit(out: Path) -> Audited:
    """Run the audit over the ledgers in ``out``; the report is there afterwards.

    Its processes have ended when this returns or raises.
    """
    command = [sys.executable, "-m", "tarry", "audit", "--json", "--out", str(out / REPORT)]
    command += ["--accepted", str(out / ACCEPTED), "--delivered", str(out / DELIVERED)]
    started = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=AUDIT_S)
    except subprocess.TimeoutExpired:
        return Audited(error=f"no answer within {AUDIT_S:g} s")
    finally:
        # Ctrl-C reaches the demo alone: this process has a session of its own, with its JVM.
        kill_session(process.pid)
        process.wait()
    seconds = round(time.monotonic() - started, 3)
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError:
        lines = errors.strip().splitlines()
        return Audited(seconds, error=lines[-1] if lines else f"exit code {process.returncode}")
    return Audited(seconds, answer["counts"], answer["failures"], answer["verdict"])
