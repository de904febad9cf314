"""The registry: an embedded key-value store (RocksDB) of what is known of messages by name.

One thread, the intake's writer, changes it, in the order of the log and after each fsync of it; any thread reads. Its
own log is not fsynced with each change: what a power failure takes is applied again from the intake, which keeps all
that is not below the last checkpoint, and :meth:`sync` comes before the checkpoint. Nothing is made on disk before the
first name is used, so who uses none pays nothing.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rocksdict import BlockBasedOptions, Cache, Options, Rdict
from rocksdict import WriteBatch as Changes

from tarry.base.bulk import CancelledJobs
from tarry.base.errors import ClosedError, CorruptError
from tarry.base.message import Kind, cancelled_seqs, kinds_of
from tarry.base.properties import has_none
from tarry.base.types import Int64s, Mask
from tarry.log.files import Files
from tarry.names import encoding
from tarry.names.encoding import Entry
from tarry.repeat import series_of

log = logging.getLogger(__name__)

BUFFER_BYTES = 8 << 20
CACHE_BYTES = 8 << 20
GETS_MAX = 1024
"""Beyond so many rows, the cancelled ones among them are found by reading a range rather than one by one."""
_COPIED = ("tarry.dead.", "tarry.only")
"""Properties of dead letters and of what was respawned."""
RIPE_MS = 60_000
"""Old cancellations are forgotten a minute's worth at a time."""
SWEPT_ROWS = 4096
"""Names that are looked at in one go."""
VERSION = b"1"
_VERSION = encoding.META + b"version"
_COMPLETE = encoding.META + b"complete"
_KNOWN_FROM = encoding.META + b"known_from_ms"


class Registry:
    """``history_ms``: for how long after its due time what became of a message is remembered."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        history_ms: int,
        dedupe_ms: int,
        cancelled_jobs: CancelledJobs | None = None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._history_ms = history_ms
        self._dedupe_ms = dedupe_ms
        self._lock = threading.Lock()
        self._db: Any = None
        self._closed = False
        self._latest_ms = -(1 << 62)  # when the last id was accepted
        self.known_from_ms = -(1 << 62)
        """The registry was made again at that moment, after it was lost: what was due before may have been cancelled
        without a trace here.
        """
        self.cancelled_jobs = CancelledJobs() if cancelled_jobs is None else cancelled_jobs
        """Bulk jobs that are cancelled as a whole."""

    @property
    def exists(self) -> bool:
        """Whether any name was ever used."""
        return self._db is not None

    # -- opening -----------------------------------------------------------------------------------------------------

    def recover(self) -> bool:
        """Open what is on disk; False when there is nothing, or nothing that can be used."""
        if not self._directory.is_dir():
            return False
        try:
            self._open()
            if self._db.get(_VERSION) == VERSION and self._db.get(_COMPLETE) is not None:
                known_from = self._db.get(_KNOWN_FROM)
                self.known_from_ms = int(known_from) if known_from else self.known_from_ms
                self._latest_ms = self._last_slice_ms() + self._dedupe_ms
                return True
            log.warning("%s is not whole, or of another version", self._directory)
        except Exception as error:  # noqa: BLE001  RocksDB's bindings raise nothing more specific
            log.warning("%s cannot be opened: %s", self._directory, error)
        self._discard()
        return False

    def begin(self, *, known_from_ms: int | None = None) -> None:
        """Make an empty registry, to be filled. Until :meth:`complete` it counts as damaged: after a crash, the next
        start makes it again.
        """
        self._discard()
        self._open()
        self._db.put(_VERSION, VERSION)
        if known_from_ms is not None:
            self.known_from_ms = known_from_ms
            self._db.put(_KNOWN_FROM, str(known_from_ms).encode())

    def complete(self) -> None:
        """Record that the registry has everything that belongs into it, durably."""
        self._db.put(_COMPLETE, b"")
        self.sync()

    def _open(self) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(BUFFER_BYTES)
        options.set_max_write_buffer_number(2)
        options.set_max_background_jobs(2)
        options.set_max_open_files(64)
        options.set_keep_log_file_num(1)
        options.set_stats_dump_period_sec(0)
        blocks = BlockBasedOptions()
        blocks.set_block_cache(Cache(CACHE_BYTES))
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_bloom_filter(10, False)
        options.set_block_based_table_factory(blocks)
        self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._closed = False
        self._db = Rdict(str(self._directory), options)
        self._files.adopt(self, self._directory)

    def _last_slice_ms(self) -> int:
        last = self._db.iter()
        last.seek_for_prev(encoding.ID + b"\xff" * 8)
        has_ids = last.valid() and last.key()[:1] == encoding.ID
        return encoding.slice_start_ms(last.key()) if has_ids else -(1 << 62)

    def _discard(self) -> None:
        self.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def sync(self) -> None:
        """Make all changes until now durable."""
        if self._db is not None:
            self._db.flush_wal(True)

    def close(self) -> None:
        self._closed = True
        db, self._db = self._db, None
        if db is not None:
            db.close()

    # -- changing ----------------------------------------------------------------------------------------------------

    def apply(self, batch: pa.RecordBatch, *, in_order: bool = True, plain: bool = False) -> None:
        """Take up rows of the intake, in seq order. To apply rows again, with all that came after them, changes
        nothing. Where they are not ``in_order``, a name stays with what was scheduled last. ``plain``: all are
        messages.

        Raises:
            CorruptError: the disk gave something else than was written.
        """
        changes = Changes(raw_mode=True)
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

    def put(self, entries: Mapping[bytes, Entry]) -> None:
        """Register names that are in no row of the intake. They are durable after :meth:`sync`."""
        changes = Changes(raw_mode=True)
        _put(changes, entries.items())
        self._write(changes)

    def _write(self, changes: Changes) -> None:
        if not changes.is_empty():
            with self._lock:
                if self._db is None:
                    self.begin()
                    self.complete()
            self._guarded(lambda: self._db.write(changes))

    def _cancel(self, changes: Changes, rows: pa.RecordBatch) -> None:
        for key in encoding.cancellations(rows.column("due_ms").to_numpy(), cancelled_seqs(rows)):
            changes.put(key, b"")

    def _named(self, batch: pa.RecordBatch, named: dict[str, list[str | None]]) -> list[tuple[bytes, Entry]]:
        topics = batch.column("topic").to_pylist()
        copies = _copies(batch)
        entries = zip(*(batch.column(n).to_numpy().tolist() for n in ("seq", "due_ms", "born_ms")), strict=True)
        rows = zip(topics, map(Entry._make, entries), named["key"], named["id"], named["repeat"], strict=True)
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
            if repeat is not None and (series := series_of(repeat)) is not None:
                named_entries.append((encoding.name_of_series(series), entry))
        return named_entries

    def _newer(self, entries: list[tuple[bytes, Entry]]) -> list[tuple[bytes, Entry]]:
        newest: dict[bytes, Entry] = {}
        for name, entry in entries:
            if name not in newest or entry.is_newer_than(newest[name]):
                newest[name] = entry
        pairs = zip(newest.items(), self.get(list(newest)), strict=True)
        return [(n, e) for (n, e), old in pairs if old is None or not old.is_newer_than(e)]

    def sweep(self, fired_until_ms: int, now_ms: int, rows_max: int = 1 << 16) -> int:
        """Forget names whose messages are long delivered, ids whose window has passed, and old cancellations; how many
        names were looked at, at most ``rows_max`` of each kind.
        """
        if self._db is None:
            return 0
        old_ms, looked = max(fired_until_ms - self._history_ms, -(1 << 62)), 0
        for about in (encoding.KEY, encoding.SERIES):
            for _ in range(0, rows_max, SWEPT_ROWS):
                swept = self._sweep_names(about, old_ms)
                looked += swept
                if swept < SWEPT_ROWS:
                    break
        ripe = encoding.cancellation(old_ms - RIPE_MS, 0)
        self._forget(encoding.CANCELLED, encoding.cancellation(old_ms, 0), ripe)
        low, high = encoding.ids_before(now_ms - 2 * self._dedupe_ms)
        self._forget(low, high, high)
        return looked

    def _forget(self, low: bytes, high: bytes, ripe: bytes) -> None:
        """Delete a range, if it has something below ``ripe``. Each such deletion is an entry of its own that every
        later read has to look at until RocksDB merges it away: one a second, of nothing, made a quiet broker slower by
        the hour.
        """
        if next(self._range(low, ripe, 1), None) is None:
            return
        changes = Changes(raw_mode=True)
        changes.delete_range(low, high)
        self._guarded(lambda: self._db.write(changes))

    def _sweep_names(self, about: bytes, old_ms: int) -> int:
        due = list(self._range(encoding.EXPIRY + about, encoding.expiries_end(about, old_ms), SWEPT_ROWS))
        if due:
            changes, named = Changes(raw_mode=True), [encoding.decode_expiry(raw) for raw in due]
            entries = self.get([name for _, name in named])
            for raw, (moment, name), entry in zip(due, named, entries, strict=True):
                # A name may have been given to a later message since; that one has an entry of its own here.
                if entry is not None and moment == entry.due_ms:
                    changes.delete(name)
                changes.delete(raw)
            self._guarded(lambda: self._db.write(changes))
        return len(due)

    # -- asking ------------------------------------------------------------------------------------------------------

    def get(self, wanted: Iterable[bytes]) -> list[Entry | None]:
        """The entries of names (:func:`tarry.names.encoding.name_of_key` and its like)."""
        names = list(wanted)
        if self._db is None or not names:
            return [None] * len(names)
        values = self._guarded(lambda: self._db.get(names))
        return [None if raw is None else Entry.of_bytes(raw) for raw in values]

    def accepted_ids(self, digests: Sequence[bytes], now_ms: int) -> list[Entry | None]:
        """The messages of ids, by their :func:`tarry.names.encoding.digest_of_id`, that were accepted within the dedupe
        window.
        """
        window = self._dedupe_ms
        if not window:
            return [None] * len(digests)
        # This slice and the one before; and later ones, where the clock was set back.
        latest = max(now_ms, min(self._latest_ms, now_ms + 2 * window))
        latest_entries: list[Entry | None] = [None] * len(digests)
        for start in range((now_ms - window) // window, latest // window + 1):
            entries = self.get([encoding.name_of_id(d, start * window, window) for d in digests])
            latest_entries = [one or other for one, other in zip(entries, latest_entries, strict=True)]
        return [e if e is not None and e.born_ms > now_ms - window else None for e in latest_entries]

    def cancelled_mask(self, due_ms: Int64s, seq: Int64s) -> Mask:
        """Which of the messages with these due times and seqs are cancelled."""
        return self._singly_cancelled(due_ms, seq) | self.cancelled_jobs.mask(due_ms, seq)

    def _singly_cancelled(self, due_ms: Int64s, seq: Int64s) -> Mask:
        rows = len(seq)
        if self._db is None or not rows:
            return np.zeros(rows, np.bool_)
        if rows > GETS_MAX:
            cancelled = self._cancelled_among(due_ms, seq)
            if cancelled is not None:
                return np.isin(seq, cancelled)
        wanted = encoding.cancellations(due_ms, seq)
        return np.array([x is not None for x in self._guarded(lambda: self._db.get(wanted))], np.bool_)

    def _cancelled_among(self, due_ms: Int64s, seq: Int64s) -> Int64s | None:
        """The cancelled seqs in the span of these rows; None when there are far more of them than rows."""
        order = np.lexsort((seq, due_ms))[[0, -1]]
        low, high = (encoding.cancellation(int(due_ms[i]), int(seq[i])) for i in order)
        cancellations = list(self._range(low, high + b"\0", 4 * len(seq)))
        if len(cancellations) == 4 * len(seq):
            return None
        return np.array([int.from_bytes(raw[9:], "big") for raw in cancellations], np.int64)

    def cancelled_between(self, after: tuple[int, int], until_ms: int, rows_max: int) -> tuple[Int64s, Int64s]:
        """Due times and seqs of the first cancelled messages from a place on and before a moment."""
        low, high = encoding.cancellation(*after), encoding.cancellation(until_ms, 0)
        places = b"" if self._db is None else b"".join(raw[1:] for raw in self._range(low, high, rows_max))
        return encoding.decode_places(places)

    def _range(self, low: bytes, high: bytes, rows_max: int) -> Iterator[bytes]:
        def read() -> list[bytes]:
            keys: list[bytes] = []
            at = self._db.iter()
            at.seek(low)
            while at.valid() and len(keys) < rows_max and (raw := at.key()) < high:
                keys.append(raw)
                at.next()
            at.status()
            return keys

        yield from self._guarded(read)

    def _guarded(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:
            if self._closed:
                # A reader that met close(): nothing is wrong with what is on disk.
                raise ClosedError("the broker is closed") from error
            # Damage on disk. The registry is derived: the next start makes it again.
            self._files.remove(self._directory / "CURRENT")
            raise CorruptError(f"{self._directory} is damaged: {error}; the next start makes it again") from error


def _put(changes: Changes, entries: Iterable[tuple[bytes, Entry]]) -> None:
    for name, entry in entries:
        changes.put(name, entry.to_bytes())
        if name[:1] != encoding.ID:
            changes.put(encoding.expiry(entry.due_ms, name), b"")


def _copies(batch: pa.RecordBatch) -> set[int]:
    """Dead letters, and what was respawned: they have the names of the messages that they are copies of, which may
    have been given to others since.
    """
    properties = batch.column("properties")
    if has_none(properties):
        return set()
    rows = enumerate(properties.to_pylist())
    return {row for row, pairs in rows if pairs and any(name.startswith(_COPIED) for name, _ in pairs)}
