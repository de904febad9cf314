"""The next occurrences of series: stored before the current ones are handed out.

Each series has exactly one occurrence pending. A crash between the two leaves the next one stored and the current one
pending again; then the registry knows the next one, and the current one is handed out without another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarry.api.outcome import Outcome
from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.base.types import Int64s
from tarry.broker.commands.write_batch import WriteBatch
from tarry.message.schema import UNNUMBERED
from tarry.names import NameEntry, name_of_key, name_of_series
from tarry.repeat import SeriesState, Step, catch_up, read_state, series_of, state_json

log = logging.getLogger(__name__)

Answer = npt.NDArray[np.bool_]


class AdvanceSeries:
    """A command: store the next occurrences of series.

    ``rows`` are occurrences (of SCHEMA) that were taken from the wheel. ``done`` gets a mask of those to hand out. The
    others were cancelled meanwhile, or are left out because they were missed.
    """

    def __init__(
        self, rows: pa.RecordBatch, done: Callable[[Answer | TarryError], None], *, missed_after_ms: int
    ) -> None:
        self._rows = rows
        self._done = done
        self._missed_after_ms = missed_after_ms
        self._deliver = np.zeros(rows.num_rows, np.bool_)

    def decide(self, batch: WriteBatch) -> pa.RecordBatch | None:
        """Return the next occurrences, and the cancellations of those that are left out."""
        rows = self._rows
        due, seq = rows.column("due_ms").to_numpy(), rows.column("seq").to_numpy()
        texts = rows.column("repeat").to_pylist()
        series = [
            s if (first := series_of(text)) is None else first for s, text in zip(seq.tolist(), texts, strict=True)
        ]
        # Includes messages that may have been handed out before a crash: they are handed out again.
        alive = batch.pending(due, seq, handed_too=True).tolist()
        entries = batch.entries([name_of_series(s) for s in series])
        replaced = self._replaced(batch)
        steps: dict[int, Step] = {}
        states: dict[int, SeriesState] = {}
        for row, text in enumerate(texts):
            entry = entries[row]
            if not alive[row]:
                continue
            if row in replaced or (entry is not None and entry.seq > int(seq[row])):
                self._deliver[row] = True  # from before a crash; the next one is stored, or none is to come
                continue
            try:
                state = states[row] = read_state(text)
            except InvalidArgumentError as error:
                # A zone that this machine does not know (any more). The due occurrence is delivered; the next one is
                # unknown.
                log.error("series %d of topic %s ends: %s", series[row], rows.column("topic")[row], error)
                self._deliver[row] = True
                continue
            steps[row] = catch_up(state.repeat, int(due[row]), state.n, batch.now_ms, self._missed_after_ms)
            self._deliver[row] = steps[row].deliver
        batch.hand_on(seq[self._deliver].tolist())
        return self._written(batch, steps, states, series)

    def _replaced(self, batch: WriteBatch) -> set[int]:
        """Return the rows whose key another message has by now.

        It came while this one could not be withdrawn: a consumer may have had it before a crash. The series ends with
        it; going on, it would take the key from that message.
        """
        keys = self._rows.column("key")
        if keys.null_count == len(keys):
            return set()
        topics = self._rows.column("topic").to_pylist()
        keyed = {row: name_of_key(topics[row], key) for row, key in enumerate(keys.to_pylist()) if key is not None}
        seq = self._rows.column("seq").to_pylist()
        entries = zip(keyed, batch.entries(list(keyed.values())), strict=True)
        return {row for row, entry in entries if entry is not None and entry.seq > seq[row]}

    def _written(
        self, batch: WriteBatch, steps: dict[int, Step], states: dict[int, SeriesState], series: list[int]
    ) -> pa.RecordBatch | None:
        parts = []
        going = {row: step for row, step in steps.items() if step.next_due_ms is not None}
        if going:
            parts.append(_successors(self._rows, going, states, series, batch.now_ms))
            self._register(batch, parts[0], [series[row] for row in going])
        skipped = [row for row, step in steps.items() if not step.deliver]
        if skipped:
            passed_over = self._rows.take(pa.array(skipped, pa.int64()))
            due, seq = (passed_over.column(name).to_numpy() for name in ("due_ms", "seq"))
            outcomes = batch.withdraw(due, seq, handed_too=True)
            assert all(outcome is Outcome.DONE for outcome in outcomes)
            parts.append(batch.cancellations(due, seq, passed_over.column("topic")))
        return pa.concat_batches(parts) if parts else None

    def _register(self, batch: WriteBatch, rows: pa.RecordBatch, series: list[int]) -> None:
        topics, keys, dues = (rows.column(n).to_pylist() for n in ("topic", "key", "due_ms"))
        numbers = range(batch.next_seq, batch.next_seq + rows.num_rows)
        for seq, first, topic, key, due in zip(numbers, series, topics, keys, dues, strict=True):
            entry = NameEntry(seq, due, batch.now_ms)
            batch.new.add(seq)
            batch.names[name_of_series(first)] = entry
            if key is not None:
                batch.names[name_of_key(topic, key)] = entry

    def on_durable(self, first_seq: int) -> None:
        self._done(self._deliver)

    def on_refused(self, error: TarryError) -> None:
        self._done(error)


def _successors(
    rows: pa.RecordBatch, steps: dict[int, Step], states: dict[int, SeriesState], series: list[int], now_ms: int
) -> pa.RecordBatch:
    """Return the rows of UNNUMBERED that come after some of ``rows``."""
    former = rows.take(pa.array(list(steps), pa.int64())).drop_columns(["seq"])
    due = np.array([step.next_due_ms for step in steps.values()], np.int64)
    texts = [state_json(SeriesState(states[r].repeat, steps[r].next_n, series[r])) for r in steps]
    changed = {
        "due_ms": pa.array(due, pa.int64()),
        "born_ms": pa.array(np.full(len(due), now_ms, np.int64), pa.int64()),
        "expire_ms": _moved(former.column("expire_ms"), due - former.column("due_ms").to_numpy()),
        "repeat": pa.array(texts, pa.string()),
    }
    return pa.RecordBatch.from_arrays(
        [changed.get(f.name, former.column(f.name)) for f in UNNUMBERED], schema=UNNUMBERED
    )


def _moved(expire: pa.Array, by_ms: Int64s) -> pa.Array:
    """Move expiries: each occurrence expires as long after its due time as the first did."""
    if expire.null_count == len(expire):
        return expire
    values = [None if e is None else e + by for e, by in zip(expire.to_pylist(), by_ms.tolist(), strict=True)]
    return pa.array(values, pa.int64())
