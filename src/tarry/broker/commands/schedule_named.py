"""Scheduling messages that have a key or an id of their own.

An id that was accepted within the dedupe window makes a row a duplicate: it is not stored, and the first one's place is
its answer. A key that is pending in its topic makes the row replace that message, leave it, or be refused. A row with a
condition replaces the message that is pending, or is not stored: the decision is made when that message is withdrawn,
so that of both exactly one is delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarry.api.outcome import Outcome
from tarry.base.errors import KeyExistsError, TarryError
from tarry.base.printable import shown
from tarry.broker.commands.write_batch import WriteBatch, places
from tarry.message import handle
from tarry.message.accepted import PLACED, Accepted
from tarry.message.admission import REPLACE, KeyPolicy, OnKey
from tarry.message.properties import has_none
from tarry.message.receipt import NO_SEQ, OUTCOMES
from tarry.names import NameEntry, digest_of_id, name_of_key

SCHEDULED, REPLACED, KEPT, DUPLICATE, NOT_PENDING, CHANGED = range(len(OUTCOMES))
_NOWHERE = NameEntry(NO_SEQ, 0, 0)


class ScheduleNamed:
    """``policies``: by row, what to do with a key that is pending; None: replace all."""

    def __init__(
        self,
        batch: pa.RecordBatch,
        policies: list[KeyPolicy] | None,
        done: Callable[[Accepted | TarryError], None],
        *,
        secret: bytes,
        dedupe: bool,
    ) -> None:
        self._batch = batch
        self._policies = policies
        self._done = done
        self._secret = secret
        self._dedupe = dedupe
        self._entries: list[NameEntry] = []
        self._withdrawn: list[tuple[int, NameEntry]] = []
        """Messages that were withdrawn for rows with a condition, each with its row."""
        self._outcomes: npt.NDArray[np.uint8] | None = None  # None: all are scheduled

    def decide(self, batch: WriteBatch) -> pa.RecordBatch | None:
        """Return the rows to write.

        Raises:
            KeyExistsError: a row's key is pending, and its policy is to be refused then; nothing was decided.
        """
        keys = self._names("key", name_of_key)
        ids = self._names("id", digest_of_id) if self._dedupe else None
        remembered = self._remembered(batch, keys, ids)
        if keys is None and ids is not None and not remembered and _all_differ(ids):
            self._take_all(batch, ids)
            return self._batch
        return self._take_some(batch, keys, ids, remembered)

    def _names(self, column: str, of: Callable[[str, str], bytes]) -> list[bytes | None] | None:
        """Return the name of each row; None if no row has one."""
        values = self._batch.column(column)
        if values.null_count == len(values):
            return None
        topics = self._batch.column("topic").to_pylist()
        return [None if v is None else of(t, v) for t, v in zip(topics, values.to_pylist(), strict=True)]

    def _remembered(
        self, batch: WriteBatch, keys: list[bytes | None] | None, ids: list[bytes | None] | None
    ) -> dict[bytes, NameEntry]:
        """Return the ids within their window, and the keys whose message is pending."""
        remembered = {} if ids is None else batch.accepted_ids([n for n in ids if n is not None])
        wanted = [] if keys is None else [n for n in keys if n is not None]
        keyed = [(n, e) for n, e in zip(wanted, batch.entries(wanted), strict=True) if e is not None]
        if not keyed:
            return remembered
        # Includes messages delivered again after a crash: they cannot be replaced, but count as pending for "keep"
        # and "refuse".
        pending = batch.pending(*places([e for _, e in keyed]), handed_too=True).tolist()
        remembered |= {n: e for (n, e), here in zip(keyed, pending, strict=True) if here}
        return remembered

    def _take_all(self, batch: WriteBatch, ids: list[bytes | None]) -> None:
        """Nothing was here before, as nearly always: all rows are stored, one after the other."""
        seqs = range(batch.next_seq, batch.next_seq + len(ids))
        due, born = (self._batch.column(name).to_pylist() for name in ("due_ms", "born_ms"))
        for id, entry in zip(ids, zip(seqs, due, born, strict=True), strict=True):
            if id is not None:
                batch.ids[id] = entry
        batch.new.update(seqs)
        self._note_known(batch, self._batch)

    def _note_known(self, batch: WriteBatch, rows: pa.RecordBatch) -> None:
        # Copies have no names, and a series has one more, which only the rows have.
        if rows.column("repeat").null_count == rows.num_rows and has_none(rows.column("properties")):
            batch.known_rows += rows.num_rows

    def _take_some(
        self,
        batch: WriteBatch,
        keys: list[bytes | None] | None,
        ids: list[bytes | None] | None,
        remembered: dict[bytes, NameEntry],
    ) -> pa.RecordBatch | None:
        if self._policies is not None and any(policy.on_key is OnKey.REFUSE for policy in self._policies):
            self._check_refused(keys, ids, remembered)
        seqs, replaced, names, new_ids = self._judge(batch, keys, ids, remembered)
        stored = np.array(seqs) >= 0
        batch.names.update(names)
        batch.ids.update(new_ids)
        batch.new.update(s for s in seqs if s >= 0)
        kept = self._batch if stored.all() else self._batch.filter(pa.array(stored))
        self._note_known(batch, kept)
        if replaced or self._withdrawn:
            kept = pa.concat_batches([kept, self._withdraw(batch, replaced)])
        return kept if kept.num_rows else None

    def _check_refused(
        self, keys: list[bytes | None] | None, ids: list[bytes | None] | None, remembered: dict[bytes, NameEntry]
    ) -> None:
        """Refuse the batch if it has a row that is to be refused, before anything is decided.

        A condition before it in the batch does not count: it holds only where the key is pending already.
        """
        seen: set[bytes] = set()
        none: list[Any] = [None] * self._batch.num_rows
        for row, (key, id, policy) in enumerate(zip(keys or none, ids or none, self._policies or none, strict=True)):
            if id is not None and (id in seen or id in remembered):
                continue
            is_pending = key is not None and (key in seen or key in remembered)
            if is_pending and policy.on_key is OnKey.REFUSE:
                text = f"key {shown(self._batch.column('key')[row].as_py())} is pending in its topic"
                raise KeyExistsError(f'{text}; allowed with on_key "replace" or "keep"', row=row)
            if not policy.is_condition and not (is_pending and policy.on_key is OnKey.KEEP):
                seen.update(name for name in (key, id) if name is not None)

    def _judge(
        self,
        batch: WriteBatch,
        keys: list[bytes | None] | None,
        ids: list[bytes | None] | None,
        remembered: dict[bytes, NameEntry],
    ) -> tuple[list[int], list[tuple[int, NameEntry]], dict[bytes, NameEntry], dict[bytes, NameEntry]]:
        """Return each row's seq, the rows that replace others, and the keys and ids to register.

        The seq of a row that is not stored is -1.
        """
        rows = self._batch.num_rows
        none: list[Any] = [None] * rows
        policies = self._policies or [REPLACE] * rows
        outcomes = self._outcomes = np.full(rows, SCHEDULED, np.uint8)
        seqs: list[int] = []
        replaced: list[tuple[int, NameEntry]] = []
        names: dict[bytes, NameEntry] = {}
        new_ids: dict[bytes, NameEntry] = {}
        next_seq = batch.next_seq
        fields = zip(*(self._batch.column(name).to_pylist() for name in ("due_ms", "born_ms")), strict=True)
        for row, (key, id, policy, due_and_born) in enumerate(
            zip(keys or none, ids or none, policies, fields, strict=True)
        ):
            if id is not None and (first := new_ids.get(id) or remembered.get(id)) is not None:
                outcomes[row] = DUPLICATE
                self._entries.append(first)
                seqs.append(-1)
                continue
            former = None if key is None else names.get(key) or remembered.get(key)
            is_stored = key is not None and key not in names
            unmet = self._unmet(batch, row, policy, former, is_stored=is_stored) if policy.is_condition else None
            if unmet is not None:
                outcomes[row], place = unmet
                self._entries.append(place)
                seqs.append(-1)
                continue
            if former is not None and not (policy.is_condition and is_stored):
                assert policy.on_key is not OnKey.REFUSE  # the batch was refused before
                if policy.on_key is OnKey.KEEP:
                    outcomes[row] = KEPT
                    self._entries.append(former)
                    seqs.append(-1)
                    continue
                replaced.append((row, former))
            entry = NameEntry(next_seq, *due_and_born)
            if key is not None:
                names[key] = entry
            if id is not None:
                new_ids[id] = entry
            self._entries.append(entry)
            seqs.append(next_seq)
            next_seq += 1
        return seqs, replaced, names, new_ids

    def _unmet(
        self, batch: WriteBatch, row: int, policy: KeyPolicy, former: NameEntry | None, *, is_stored: bool
    ) -> tuple[int, NameEntry] | None:
        """Withdraw the message that a row with a condition replaces; else return the row's outcome and place.

        ``is_stored``: it was there before this batch.
        """
        if former is None:
            return NOT_PENDING, _NOWHERE
        if policy.if_seq is not None and policy.if_seq != former.seq:
            return CHANGED, former
        if is_stored:
            # Now, not with the others: the dispatcher may have taken it, and then this row must not be stored.
            [outcome] = batch.withdraw(*places([former]), alive=True)
            if outcome is not Outcome.DONE:
                return NOT_PENDING, _NOWHERE
            self._withdrawn.append((row, former))
        return None

    def _withdraw(self, batch: WriteBatch, replaced: list[tuple[int, NameEntry]]) -> pa.RecordBatch:
        due, seq = places([e for _, e in replaced])
        done = np.array([o is Outcome.DONE for o in batch.withdraw(due, seq, alive=True)], np.bool_)
        # A message that fell due at the last moment was delivered, and is not replaced: this one is stored besides.
        gone = [each for each, is_done in zip(replaced, done.tolist(), strict=True) if is_done] + self._withdrawn
        rows = np.array([row for row, _ in gone], np.int64)
        assert self._outcomes is not None
        self._outcomes[rows] = REPLACED
        topics = self._batch.column("topic").take(pa.array(rows, pa.int64()))
        return batch.cancellations(*places([entry for _, entry in gone]), topics)

    def on_durable(self, first_seq: int) -> None:
        if self._outcomes is None or not self._outcomes.any():
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


def _all_differ(ids: list[bytes | None]) -> bool:
    given = [id for id in ids if id is not None]
    return len(set(given)) == len(given)
