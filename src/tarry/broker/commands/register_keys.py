"""Registers the keys of a bulk job's messages: each replaces what was pending under its key before.

This comes after the job's commit, and starts over after a crash. So messages that are newer than the job stay, messages
that were delivered or cancelled meanwhile are passed over, and doing it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tarry.api.outcome import Outcome
from tarry.base.errors import TarryError
from tarry.broker.commands.write_batch import WriteBatch, places
from tarry.names import NameEntry, Registry, name_of_key

COLUMNS = ("seq", "topic", "due_ms", "key", "born_ms")


class RegisterKeys:
    """A command. ``rows`` have :data:`COLUMNS`, each with a key; ``done`` gets None at the end."""

    def __init__(self, rows: pa.RecordBatch, registry: Registry, done: Callable[[TarryError | None], None]) -> None:
        self._rows = rows
        self._registry = registry
        self._done = done
        self._entries: dict[bytes, NameEntry] = {}
        self._names: dict[bytes, NameEntry] = {}

    def decide(self, batch: WriteBatch) -> pa.RecordBatch | None:
        """Return the cancellations of the messages that are replaced."""
        topics, keys = self._rows.column("topic").to_pylist(), self._rows.column("key").to_pylist()
        columns = (self._rows.column(name).to_pylist() for name in ("seq", "due_ms", "born_ms"))
        entries = [NameEntry(*values) for values in zip(*columns, strict=True)]
        wanted = [name_of_key(topic, key) for topic, key in zip(topics, keys, strict=True)]
        pending = batch.pending(*places(entries)).tolist()
        replaced: list[tuple[NameEntry, str]] = []
        for name, entry, registered, topic, here in zip(
            wanted, entries, batch.entries(wanted), topics, pending, strict=True
        ):
            former = self._entries.get(name) or registered
            if not here or (former is not None and former.seq == entry.seq):
                continue
            if former is not None and former.is_newer_than(entry):
                replaced.append((entry, topic))
                continue
            if former is not None:
                replaced.append((former, topic))
            self._entries[name] = entry
        batch.names.update(self._entries)
        self._names = batch.names
        return self._cancel_replaced(batch, replaced)

    def _cancel_replaced(self, batch: WriteBatch, replaced: list[tuple[NameEntry, str]]) -> pa.RecordBatch | None:
        due, seq = places([entry for entry, _ in replaced])
        done = np.array([o is Outcome.DONE for o in batch.withdraw(due, seq)], np.bool_)
        if not done.any():
            return None
        topics = pa.array([topic for _, topic in replaced], pa.string()).filter(pa.array(done))
        return batch.cancellations(due[done], seq[done], topics)

    def on_durable(self, first_seq: int) -> None:
        # The registry itself is made durable at the end of the job; a crash before that begins the job anew.
        # Messages that another command of the same commit put in their place stay.
        self._registry.put({name: entry for name, entry in self._entries.items() if self._names[name] is entry})
        self._done(None)

    def on_refused(self, error: TarryError) -> None:
        self._done(error)
