"""Scheduling messages that have a key or an id of their own.

An id that was accepted within the dedupe window makes a row a duplicate: it is not stored, and the first one's place is
its answer. A key that is pending in its topic makes the row replace that message, leave it, or be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.api.admission import OnKey
from tarry.api.outcome import Outcome
from tarry.api.receipt import OUTCOMES, PLACED, Accepted
from tarry.base import handle
from tarry.base.columns import shown
from tarry.base.errors import KeyExistsError, TarryError
from tarry.broker.commands.write_batch import WriteBatch, places
from tarry.names import Entry, digest_of_id, name_of_key

SCHEDULED, REPLACED, KEPT, DUPLICATE = range(len(OUTCOMES))


class ScheduleNamed:
    """``policies``: by row, what to do with a key that is pending; None: replace all."""

    def __init__(
        self,
        batch: pa.RecordBatch,
        policies: list[OnKey] | None,
        done: Callable[[Accepted | TarryError], None],
        *,
        secret: bytes,
        dedupe: bool,
    ) -> None:
        self._batch = batch
        self._policies = policies or [OnKey.REPLACE] * batch.num_rows
        self._done = done
        self._secret = secret
        self._dedupe = dedupe
        self._entries: list[Entry] = []
        self._outcomes = np.full(batch.num_rows, SCHEDULED, np.uint8)

    def decide(self, batch: WriteBatch) -> pa.RecordBatch | None:
        """The rows to write.

        Raises:
            KeyExistsError: a row's key is pending, and its policy is to be refused then; nothing was decided.
        """
        keys = self._names("key", name_of_key)
        ids = self._names("id", digest_of_id) if self._dedupe else [None] * len(keys)
        remembered = self._remembered(batch, keys, ids)
        seqs, replaced, registered = self._judge(batch, keys, ids, remembered)
        stored = np.array(seqs) >= 0
        batch.names.update(registered)
        batch.new.update(s for s in seqs if s >= 0)
        kept = self._batch if stored.all() else self._batch.filter(pa.array(stored))
        if replaced:
            kept = pa.concat_batches([kept, self._withdraw(batch, replaced)])
        return kept if kept.num_rows else None

    def _names(self, column: str, of: Callable[[str, str], bytes]) -> list[bytes | None]:
        values = self._batch.column(column)
        if values.null_count == len(values):
            return [None] * len(values)
        topics = self._batch.column("topic").to_pylist()
        return [None if v is None else of(t, v) for t, v in zip(topics, values.to_pylist(), strict=True)]

    def _remembered(self, batch: WriteBatch, keys: list[Any], ids: list[Any]) -> dict[bytes, Entry]:
        """The ids within their window, and the keys whose message is pending."""
        wanted = [n for n in ids if n is not None]
        remembered = {n: e for n, e in zip(wanted, batch.accepted_ids(wanted), strict=True) if e is not None}
        wanted = [n for n in keys if n is not None]
        keyed = [(n, e) for n, e in zip(wanted, batch.entries(wanted), strict=True) if e is not None]
        if not keyed:
            return remembered
        pending = batch.pending(*places([e for _, e in keyed])).tolist()
        remembered |= {n: e for (n, e), here in zip(keyed, pending, strict=True) if here}
        return remembered

    def _judge(
        self, batch: WriteBatch, keys: list[Any], ids: list[Any], remembered: dict[bytes, Entry]
    ) -> tuple[list[int], list[tuple[int, Entry]], dict[bytes, Entry]]:
        """For each row its seq, or -1 where it is not stored; the rows that replace others; what to register."""
        seqs: list[int] = []
        entries: list[Entry] = []
        replaced: list[tuple[int, Entry]] = []
        registered: dict[bytes, Entry] = {}
        next_seq = batch.next_seq
        dues = self._batch.column("due_ms").to_pylist()
        for row, (key, id, policy, due) in enumerate(zip(keys, ids, self._policies, dues, strict=True)):
            if id is not None and (first := registered.get(id) or remembered.get(id)) is not None:
                self._outcomes[row] = DUPLICATE
                entries.append(first)
                seqs.append(-1)
                continue
            if key is not None and (former := registered.get(key) or remembered.get(key)) is not None:
                if policy is OnKey.REFUSE:
                    text = f"key {shown(self._batch.column('key')[row].as_py())} is pending in its topic"
                    raise KeyExistsError(f'{text}; allowed with on_key "replace" or "keep"', row=row)
                if policy is OnKey.KEEP:
                    self._outcomes[row] = KEPT
                    entries.append(former)
                    seqs.append(-1)
                    continue
                replaced.append((row, former))
            entry = Entry(next_seq, due, batch.now_ms)
            if key is not None:
                registered[key] = entry
            if id is not None:
                registered[id] = entry
            entries.append(entry)
            seqs.append(next_seq)
            next_seq += 1
        self._entries = entries
        return seqs, replaced, registered

    def _withdraw(self, batch: WriteBatch, replaced: list[tuple[int, Entry]]) -> pa.RecordBatch:
        due, seq = places([e for _, e in replaced])
        done = np.array([o is Outcome.DONE for o in batch.withdraw(due, seq, alive=True)], np.bool_)
        rows = np.array([row for row, _ in replaced], np.int64)
        # What fell due at the last moment was delivered, and is not replaced: this message comes besides.
        self._outcomes[rows[done]] = REPLACED
        topics = self._batch.column("topic").take(pa.array(rows[done], pa.int64()))
        return batch.cancellations(due[done], seq[done], topics)

    def on_durable(self, first_seq: int) -> None:
        if not self._outcomes.any():
            # As nearly always: all are stored, one after the other, and need one token.
            due = self._batch.column("due_ms").to_numpy()
            self._done(Accepted(first_seq, due, handle.sign(self._secret, first_seq, len(due))))
            return
        due, seq = places(self._entries)
        placed = np.empty(len(seq), PLACED)
        placed["seq"] = placed["first_seq"] = seq
        placed["due_ms"], placed["rows"], placed["outcome"] = due, 1, self._outcomes
        # A handle of its own, which needs no more than seq and due time to be made again for a duplicate.
        tokens = b"".join([handle.sign(self._secret, each, 1) for each in seq.tolist()])
        placed["token"] = np.frombuffer(tokens, "V8")
        self._done(Accepted(first_seq, due, handle.sign(self._secret, first_seq, len(seq)), placed))

    def on_refused(self, error: TarryError) -> None:
        self._done(error)
