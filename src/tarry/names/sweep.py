"""Forgetting old names, ids and cancellations.

These are names whose messages were delivered long ago, ids whose window has passed, and cancellations of messages that
were due long ago.
"""

from __future__ import annotations

from tarry.names import encoding
from tarry.names.database import Database, new_batch
from tarry.names.encoding import NameEntry

RIPE_MS = 60_000
"""Old cancellations are forgotten a minute's worth at a time."""
SWEPT_ROWS = 4096
"""Names examined at a time."""


def sweep(database: Database, due_until_ms: int, ids_until_ms: int, rows_max: int) -> int:
    """Forget what is old, and return the number of names examined, at most ``rows_max`` of each kind.

    Keys, series and cancellations are old if they were due before ``due_until_ms``; ids, if their slice of time began
    before ``ids_until_ms``.
    """
    looked = 0
    for about in (encoding.KEY, encoding.SERIES):
        for _ in range(0, rows_max, SWEPT_ROWS):
            swept = _sweep_names(database, about, due_until_ms)
            looked += swept
            if swept < SWEPT_ROWS:
                break
    ripe = encoding.cancellation(due_until_ms - RIPE_MS, 0)
    _forget(database, encoding.CANCELLED, encoding.cancellation(due_until_ms, 0), ripe)
    low, high = encoding.ids_before(ids_until_ms)
    _forget(database, low, high, high)
    return looked


def _forget(database: Database, low: bytes, high: bytes, ripe: bytes) -> None:
    """Delete a range, if it has something below ``ripe``.

    Each range deletion is an entry that every later read has to examine until RocksDB merges it away: one a second, for
    nothing, made a quiet broker slower by the hour.
    """
    if database.keys_between(low, ripe, 1):
        changes = new_batch()
        changes.delete_range(low, high)
        database.delete(changes)


def _sweep_names(database: Database, about: bytes, due_until_ms: int) -> int:
    expiries = database.keys_between(encoding.EXPIRY + about, encoding.expiries_end(about, due_until_ms), SWEPT_ROWS)
    if expiries:
        changes, named = new_batch(), [encoding.decode_expiry(raw) for raw in expiries]
        values = database.get([name for _, name in named])
        for raw, (due_ms, name), value in zip(expiries, named, values, strict=True):
            # A name may have been given to a later message since; that one has an expiry of its own.
            if value is not None and due_ms == NameEntry.of_bytes(value).due_ms:
                changes.delete(name)
            changes.delete(raw)
        database.delete(changes)
    return len(expiries)
