"""The registry: names and cancellations of messages, in an embedded database.

One thread, the intake's writer, changes it, in the order of the log and after each fsync of it; any thread reads. The
database's own log is not fsynced with each change. Changes that a power failure loses are applied again from the
intake, which keeps everything from the last checkpoint on; :meth:`Registry.sync` comes before the checkpoint. Nothing
is created on disk before the first name is used, so without names there is no cost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from rocksdict import WriteBatch

from tarry.base.errors import CorruptError
from tarry.base.placement import ANY_CORE, Placement
from tarry.base.types import Int64s, Mask
from tarry.log.files import Files
from tarry.message.bulk import CancelledJobs
from tarry.message.properties import has_none
from tarry.message.reserved import DEAD, DEAD_ID, ONLY
from tarry.message.schema import Kind, cancelled_seqs, kinds_of
from tarry.names import encoding
from tarry.names.database import Database, new_batch
from tarry.names.encoding import NameEntry
from tarry.names.sweep import sweep
from tarry.repeat import series_of

log = logging.getLogger(__name__)

GETS_MAX = 1024
"""Up to this many rows, each is looked up to find the cancelled ones; beyond, a range is read."""
_COPIED = (DEAD, ONLY)
"""Properties of dead letters and of respawned messages."""
_KNOWN_FROM = encoding.META + b"known_from_ms"
_SERIES_KNOWN = encoding.META + b"series"
_LONG_AGO_MS = -(1 << 62)
SERIES_CHUNK = 1024


class Registry:
    """The registry. ``history_ms``: how long after its due time a message's fate is remembered."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        history_ms: int,
        dedupe_ms: int,
        cancelled_jobs: CancelledJobs | None = None,
        placement: Placement = ANY_CORE,
    ) -> None:
        self._database = Database(files, directory, placement)
        self._history_ms = history_ms
        self._dedupe_ms = dedupe_ms
        self._latest_ms = _LONG_AGO_MS  # when the last id was accepted
        self.known_from_ms = _LONG_AGO_MS
        """Moment at which the registry was rebuilt after it was lost.

        A message that was due before may have been cancelled without a trace here.
        """
        self.knows_series = False
        """True if it has each series from its first occurrence on.

        Not so if it was begun by a version that had a series from its second occurrence on.
        """
        self.cancelled_jobs = CancelledJobs() if cancelled_jobs is None else cancelled_jobs
        """Bulk jobs that are cancelled as a whole."""

    @property
    def exists(self) -> bool:
        """True if any name was ever used."""
        return self._database.is_open

    @property
    def made_again_ms(self) -> int | None:
        """Moment from which names are known, if the registry was rebuilt after it was lost; else None."""
        return None if self.known_from_ms == _LONG_AGO_MS else self.known_from_ms

    @property
    def writes(self) -> int:
        """Number of batches of changes that it ever had: after :meth:`sync`, so many are durable."""
        return self._database.writes

    # -- opening -----------------------------------------------------------------------------------------------------

    def recover(self, writes_min: int = 0) -> bool:
        """Open what is on disk; return False if there is nothing, or nothing usable.

        ``writes_min``: how many batches of changes are known to have been durable.
        """
        if not self._database.recover(writes_min):
            return False
        try:
            known_from, series_known = self._database.get([_KNOWN_FROM, _SERIES_KNOWN])
            last_id = self._database.last_key_up_to(encoding.ID + b"\xff" * 8)
        except CorruptError as error:
            log.warning("%s", error)
            self._database.discard()
            return False
        self.known_from_ms = int(known_from) if known_from else self.known_from_ms
        self.knows_series = series_known is not None
        if last_id is not None and last_id[:1] == encoding.ID:
            self._latest_ms = encoding.slice_start_ms(last_id) + self._dedupe_ms
        return True

    def begin(self, *, known_from_ms: int | None = None, writes: int = 0) -> None:
        """Begin an empty registry, which is then filled, and counts its writes on from ``writes``.

        Until :meth:`complete` it counts as damaged: after a crash, the next start rebuilds it.
        """
        self._database.begin(writes)
        changes = new_batch()
        changes.put(_SERIES_KNOWN, b"")
        self.knows_series = True
        if known_from_ms is not None:
            self.known_from_ms = known_from_ms
            changes.put(_KNOWN_FROM, str(known_from_ms).encode())
        self._database.write(changes)

    def complete(self) -> None:
        """Record, durably, that the registry is filled completely."""
        self._database.complete()

    def sync(self) -> None:
        """Make all changes until now durable."""
        self._database.sync()

    def copy_to(self, directory: Path) -> None:
        """Make a copy as of now in a new directory; nothing is made if no name was ever used."""
        self._database.copy_to(directory)

    def close(self) -> None:
        self._database.close()

    # -- changing ----------------------------------------------------------------------------------------------------

    def apply(self, batch: pa.RecordBatch, *, in_order: bool = True, plain: bool = False) -> None:
        """Apply rows of the intake, in seq order.

        To apply rows again, with all that came after them, changes nothing.

        Args:
            batch: rows, of which messages and cancellations count.
            in_order: if False, a name stays with the message that was scheduled last.
            plain: True if all rows are messages.

        Raises:
            CorruptError: the disk returned something else than was written.
        """
        changes = new_batch()
        if not plain and (kinds := kinds_of(batch)).any():
            self._cancel(changes, batch.filter(pa.array(kinds == Kind.CANCEL)))
            batch = batch.filter(pa.array(kinds == Kind.MESSAGE))
        named = {name: batch.column(name) for name in ("key", "id", "repeat")}
        if any(column.null_count < batch.num_rows for column in named.values()):
            entries = self._named(batch, {n: c.to_pylist() for n, c in named.items()})
            if not in_order:
                entries = self._newer(entries)
            _put(changes, entries)
        self._write(changes)

    def register(self, names: Mapping[bytes, NameEntry], ids: Mapping[bytes, tuple[int, int, int]]) -> None:
        """Apply decisions about names, and about ids by their digests (as the fields of their entries).

        The effect is the same as of :meth:`apply` for the rows that the decisions were about.
        """
        changes = new_batch()
        _put(changes, names.items())
        born_ms, prefix = None, b""
        for digest, entry in ids.items():
            if entry[2] != born_ms:
                born_ms = entry[2]
                self._latest_ms = max(self._latest_ms, born_ms)
                prefix = encoding.slice_of_ids(born_ms, self._dedupe_ms)
            changes.put(prefix + digest, encoding.entry_bytes(*entry))
        self._write(changes)

    def put(self, entries: Mapping[bytes, NameEntry]) -> None:
        """Register names that are in no row of the intake. They are durable after :meth:`sync`."""
        changes = new_batch()
        _put(changes, entries.items())
        self._write(changes)

    def _write(self, changes: WriteBatch) -> None:
        if not changes.is_empty():
            if not self.exists:
                self.begin()
                self.complete()
            self._database.write(changes)

    def _cancel(self, changes: WriteBatch, rows: pa.RecordBatch) -> None:
        for key in encoding.cancellations(rows.column("due_ms").to_numpy(), cancelled_seqs(rows)):
            changes.put(key, b"")

    def _named(self, batch: pa.RecordBatch, named: dict[str, list[str | None]]) -> list[tuple[bytes, NameEntry]]:
        topics = batch.column("topic").to_pylist()
        copies = _copies(batch)
        entries = zip(*(batch.column(n).to_numpy().tolist() for n in ("seq", "due_ms", "born_ms")), strict=True)
        rows = zip(topics, map(NameEntry._make, entries), named["key"], named["id"], named["repeat"], strict=True)
        named_entries = []
        for row, (topic, entry, key, id, repeat) in enumerate(rows):
            if row in copies:
                continue
            if key is not None:
                named_entries.append((encoding.name_of_key(topic, key), entry))
            if id is not None and self._dedupe_ms:
                digest = encoding.digest_of_id(topic, id)
                self._latest_ms = max(self._latest_ms, entry.born_ms)
                named_entries.append((encoding.name_of_id(digest, entry.born_ms, self._dedupe_ms), entry))
            if repeat is not None:
                series = series_of(repeat)
                named_entries.append((encoding.name_of_series(entry.seq if series is None else series), entry))
        return named_entries

    def _newer(self, entries: list[tuple[bytes, NameEntry]]) -> list[tuple[bytes, NameEntry]]:
        newest: dict[bytes, NameEntry] = {}
        for name, entry in entries:
            if name not in newest or entry.is_newer_than(newest[name]):
                newest[name] = entry
        pairs = zip(newest.items(), self.get(list(newest)), strict=True)
        return [(n, e) for (n, e), old in pairs if old is None or not old.is_newer_than(e)]

    def sweep(self, fired_until_ms: int, now_ms: int, rows_max: int = 1 << 16) -> int:
        """Forget old entries (:func:`tarry.names.sweep.sweep`); return the number of names examined."""
        if not self.exists:
            return 0
        cancelled_until_ms = max(fired_until_ms - self._history_ms, _LONG_AGO_MS)
        return sweep(self._database, cancelled_until_ms, now_ms - 2 * self._dedupe_ms, rows_max)

    # -- asking ------------------------------------------------------------------------------------------------------

    def series_from(self, due_ms: int, until_ms: int) -> Iterator[list[NameEntry]]:
        """Yield the current occurrences of series that are due from ``due_ms`` on and before ``until_ms``.

        They ascend by due time; those of one instant are in one list or in consecutive lists. Some may be cancelled, or
        delivered. A series that was moved may appear twice.
        """
        low = encoding.expiries_end(encoding.SERIES, due_ms)
        high = encoding.expiries_end(encoding.SERIES, until_ms)
        while keys := self._database.keys_between(low, high, SERIES_CHUNK):
            named = [encoding.decode_expiry(key) for key in keys]
            values = self._database.get([name for _, name in named])
            entries = [None if value is None else NameEntry.of_bytes(value) for value in values]
            # A series has an entry for each of its occurrences, until the sweep forgets it.
            yield [e for e, (moment, _) in zip(entries, named, strict=True) if e is not None and e.due_ms == moment]
            low = keys[-1] + b"\0"

    def get(self, names: Iterable[bytes]) -> list[NameEntry | None]:
        """Return the entries of names (:func:`tarry.names.encoding.name_of_key` and the like)."""
        return [None if raw is None else NameEntry.of_bytes(raw) for raw in self._database.get(list(names))]

    def accepted_ids(self, digests: Sequence[bytes], now_ms: int) -> dict[bytes, NameEntry]:
        """Return the messages of these ids that were accepted within the dedupe window.

        The ids are given, and returned, as :func:`tarry.names.encoding.digest_of_id`.
        """
        window = self._dedupe_ms
        if not window or not self.exists:
            return {}
        # This slice and the one before; and later ones, where the clock was set back.
        latest = max(now_ms, min(self._latest_ms, now_ms + 2 * window))
        found: dict[bytes, NameEntry] = {}
        for start in range((now_ms - window) // window, latest // window + 1):
            prefix = encoding.slice_of_ids(start * window, window)
            values = self._database.get([prefix + digest for digest in digests])
            if values.count(None) < len(values):  # seldom
                found |= {d: NameEntry.of_bytes(v) for d, v in zip(digests, values, strict=True) if v is not None}
        return {digest: entry for digest, entry in found.items() if entry.born_ms > now_ms - window}

    def cancelled_mask(self, due_ms: Int64s, seq: Int64s) -> Mask:
        """Return a mask of the messages, given by due times and seqs, that are cancelled."""
        return self._singly_cancelled(due_ms, seq) | self.cancelled_jobs.mask(due_ms, seq)

    def _singly_cancelled(self, due_ms: Int64s, seq: Int64s) -> Mask:
        rows = len(seq)
        if not self.exists or not rows:
            return np.zeros(rows, np.bool_)
        if rows > GETS_MAX:
            cancelled = self._cancelled_among(due_ms, seq)
            if cancelled is not None:
                return np.isin(seq, cancelled)
        values = self._database.get(encoding.cancellations(due_ms, seq))
        return np.array([value is not None for value in values], np.bool_)

    def _cancelled_among(self, due_ms: Int64s, seq: Int64s) -> Int64s | None:
        """Return the cancelled seqs in the span of these rows; None if there are far more of them than rows."""
        order = np.lexsort((seq, due_ms))[[0, -1]]
        low, high = (encoding.cancellation(int(due_ms[i]), int(seq[i])) for i in order)
        cancellations = self._database.keys_between(low, high + b"\0", 4 * len(seq))
        if len(cancellations) == 4 * len(seq):
            return None
        return np.array([int.from_bytes(raw[9:], "big") for raw in cancellations], np.int64)

    def cancelled_between(self, after: tuple[int, int], until_ms: int, rows_max: int) -> tuple[Int64s, Int64s]:
        """Return due times and seqs of the first cancelled messages from ``after`` on and before ``until_ms``."""
        low, high = encoding.cancellation(*after), encoding.cancellation(until_ms, 0)
        keys = self._database.keys_between(low, high, rows_max)
        return encoding.decode_places(b"".join(key[1:] for key in keys))


def _put(changes: WriteBatch, entries: Iterable[tuple[bytes, NameEntry]]) -> None:
    for name, entry in entries:
        changes.put(name, entry.to_bytes())
        if name[:1] != encoding.ID:
            changes.put(encoding.expiry(entry.due_ms, name), b"")


def _copies(batch: pa.RecordBatch) -> set[int]:
    """Return the rows that are respawned messages, or dead letters without ids of their own.

    They have the names of the messages that they are copies of; these names may belong to others by now.
    """
    properties = batch.column("properties")
    if has_none(properties):
        return set()
    rows = enumerate(properties.to_pylist())
    return {row for row, pairs in rows if pairs and _is_copy([name for name, _ in pairs])}


def _is_copy(names: list[str]) -> bool:
    return DEAD_ID not in names and any(name.startswith(_COPIED) for name in names)
