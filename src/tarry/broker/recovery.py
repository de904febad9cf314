"""Checks of a start before anything is served.

They find whether store and intake fit, which messages fired since the checkpoint, and which arrived since then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from tarry.base.config import Config
from tarry.base.errors import CorruptError
from tarry.base.types import Int64s
from tarry.broker.directory import Checkpoint
from tarry.broker.store_view import View
from tarry.intake import Intake
from tarry.intake.intake import tally
from tarry.names import Registry
from tarry.names.rebuild import rebuild
from tarry.queue import ReadyLog
from tarry.wheel import Wheel
from tarry.wheel.run import Run


def check_store(checkpoint: Checkpoint, intake: Intake, view: View, config: Config) -> None:
    """Check that the store fits the intake.

    Raises:
        CorruptError: the store has less than the intake relied on, or more than there is.
    """
    has = f"the store {config.store_uri} has the messages below seq {view.committed_seq}"
    if view.committed_seq < checkpoint.committed_seq:
        raise CorruptError(
            f"{has}, but it had those below {checkpoint.committed_seq}, and the intake relied on it: "
            "it was replaced, or restored from an older copy"
        )
    if view.committed_seq > intake.published_seq:
        raise CorruptError(
            f"{has}, but the intake ends at {intake.published_seq}: it is not this directory's store, "
            "or the intake was restored from an older copy"
        )


def fired_since(ready: ReadyLog, checkpoint: Checkpoint) -> tuple[Int64s, int]:
    """Return the seqs in the ready log behind the checkpoint, ascending, and the latest fired due time."""
    seqs, due_max = [np.empty(0, np.int64)], checkpoint.fired_until_ms - 1
    for batch in ready.rows_after(*checkpoint.ready):
        # Copies: a view would keep the bodies of the whole batch in memory.
        seqs.append(batch.column("seq").to_numpy().copy())
        due_max = max(due_max, int(batch.column("due_ms").to_numpy().max()))
    return np.sort(np.concatenate(seqs)), due_max


def open_registry(
    registry: Registry, checkpoint: Checkpoint, writes_min: int, intake: Intake, view: View, now_ms: int
) -> None:
    """Open the registry, or make it again if it lacks something that had been durable.

    The checkpoint, or ``writes_min``, says how much had been.
    """
    writes = max(checkpoint.registry_writes, writes_min)
    if not registry.recover(writes) and (checkpoint.registry or writes):
        # Not the clock alone: it may have been set back, or show the moment of what fell due last. What was cancelled
        # and due before `fired_until_ms` may have left the intake without a trace.
        known_from_ms = max(now_ms, checkpoint.fired_until_ms)
        rebuild(registry, intake, view.snapshot, checkpoint.fired_seq, known_from_ms=known_from_ms, writes=writes)


def take_up_arrivals(
    checkpoint: Checkpoint,
    intake: Intake,
    registry: Registry,
    wheel: Wheel,
    fired: Int64s,
    register: Callable[[pa.RecordBatch, bool], None],
    unknown_before: Mapping[str, int],
) -> None:
    """Count and register messages that were accepted since the checkpoint; late ones go into the wheel.

    Late messages were due before the checkpoint's ``fired_until_ms``, and did not fire (``fired``: seqs, ascending).
    ``unknown_before``: the lowest offset in the ready log, of topics that the checkpoint does not have.
    """
    intake.accepted, intake.cancelled = Counter(checkpoint.accepted), Counter(checkpoint.cancelled)
    # Of a topic that was being forgotten when the broker ended, this is how many fired before the checkpoint.
    intake.accepted.update({name: n for name, n in unknown_before.items() if n})
    late: list[pa.RecordBatch] = []
    for batch in intake.read(max(checkpoint.fired_seq, intake.first_seq), intake.published_seq):
        register(batch, False)
        messages = tally(batch, intake.accepted, intake.cancelled)
        due, seq = messages.column("due_ms").to_numpy(), messages.column("seq").to_numpy()
        rows = (due < checkpoint.fired_until_ms) & ~np.isin(seq, fired)
        if rows.any():
            late.append(messages.filter(pa.array(rows)))
    for batch in late:
        # Only now: a cancellation comes after its message.
        dead = registry.cancelled_mask(batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy())
        wheel.add(Run.of(batch.filter(pa.array(~dead)), stored=False))
