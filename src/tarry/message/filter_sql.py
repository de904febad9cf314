"""A property filter: SQLite evaluates a condition over the properties of a batch.

The connection is in memory, has one table with a column a property, and an authorizer that knows nothing but reading
it; each evaluation is a transaction that is rolled back, so that a batch leaves nothing behind. A filter that takes too
long is ended by SQLite's progress handler. What counts is the CPU time of the evaluating thread: a filter is not slow
for a machine that has other things to do.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.errors import InvalidArgumentError
from tarry.base.printable import shown
from tarry.message.filter_conditions import GRAMMAR, translate

EVALUATION_S_MAX = 5.0
"""Seconds of CPU time that a look at one batch may take."""
PART_BYTES = 1 << 20
"""About the most bytes of properties that are looked at together."""
TAGS = "TAGS"
"""The name under which a condition sees the message's tag, as RocketMQ has it."""

_FUNCTIONS = frozenset({"instr", "substr", "lower", "glob"})
_STEPS_MAX, _STEPS_MIN = 10_000, 20
"""Of SQLite's machine between two looks at the clock: well below a millisecond..."""
_STEP_BYTES = 50_000_000
"""Bytes of two compared texts, multiplied, that count as a step of SQLite's."""
_LIMITS = {
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 1000,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 2,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 3,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


class FilterTooSlowError(Exception):
    """A condition took more time than it was given. It is for who evaluates it to say what follows."""


class SqlFilter:
    """A condition, compiled. Any thread may call :meth:`mask`; a lock lets one at a time."""

    matches_all = False

    def __init__(self, text: str, condition: str) -> None:
        """``text`` is what the user wrote, ``condition`` the part of it after ``sql:``.

        Raises:
            InvalidArgumentError: it is no condition, or beyond a limit; says where and why.
        """
        self.text = text
        self._lock = threading.Lock()
        self._deadline = _Deadline()
        try:
            translated = translate(condition)
            self._names = list(dict.fromkeys(name for name, _ in translated.columns))
            # It must not refer to self, which then would never be let go.
            self._connection = _connect(translated.columns)
            weakref.finalize(self, self._connection.close)
            numbers = [self._names.index(name) + 1 for name, _ in translated.columns]
            self._insert = f"INSERT INTO m VALUES ({', '.join(f'?{n}' for n in numbers) or 'NULL'})"
            self._select = f"SELECT rowid FROM m WHERE {translated.sql}"
            self._connection.execute(self._select)  # SQLite compiles it now, or says why not
        except (sqlite3.Error, InvalidArgumentError) as error:
            raise InvalidArgumentError(f"filter {shown(text)}: {error}; allowed: {GRAMMAR}") from error

    def __str__(self) -> str:
        return self.text

    @property
    def is_busy(self) -> bool:
        """True while another thread evaluates it."""
        return self._lock.locked()

    def mask(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Mark the rows of ``batch`` (:data:`tarry.message.schema.SCHEMA`) that the condition is true for.

        Raises:
            InvalidArgumentError: it took longer than :data:`EVALUATION_S_MAX`.
        """
        try:
            return self.mask_within(batch, EVALUATION_S_MAX)
        except FilterTooSlowError as error:
            raise InvalidArgumentError(str(error)) from error

    def mask_within(self, batch: pa.RecordBatch, cpu_s_max: float) -> npt.NDArray[np.bool_]:
        """:meth:`mask`, in so many seconds of CPU time.

        Raises:
            FilterTooSlowError: it took longer than that.
        """
        with self._lock:
            masks, left_s = [np.zeros(0, np.bool_)], cpu_s_max
            try:
                for part in _parts(batch):
                    mask, spent_s = self._evaluate(part, left_s)
                    masks.append(mask)
                    left_s -= spent_s
            except sqlite3.Error as error:
                said = f"filter {shown(self.text)} on {batch.num_rows} messages"
                if self._deadline.is_over:
                    raise FilterTooSlowError(f"{said}: not done after {cpu_s_max:g} s of CPU time") from error
                raise InvalidArgumentError(f"{said}: {error}") from error
            return np.concatenate(masks)

    def _evaluate(self, batch: pa.RecordBatch, left_s: float) -> tuple[npt.NDArray[np.bool_], float]:
        """Return the matching rows, and the CPU time that SQLite took."""
        arrays = [_values(batch, name) for name in self._names]
        longest = max((pc.max(pc.binary_length(array)).as_py() or 0 for array in arrays), default=0)
        steps = max(_STEPS_MIN, min(_STEPS_MAX, _STEP_BYTES // (longest * len(self.text) + 1)))
        columns = [array.to_pylist() for array in arrays]
        rows = zip(*columns, strict=True) if columns else [()] * batch.num_rows
        matching = np.zeros(batch.num_rows, np.bool_)
        self._connection.set_progress_handler(self._deadline.passed, steps)
        began_s = time.thread_time()
        self._deadline.at_s = began_s + left_s
        try:
            self._connection.execute("BEGIN")
            self._connection.executemany(self._insert, rows)
            rowids = [rowid for (rowid,) in self._connection.execute(self._select)]
        finally:
            self._deadline.is_over = self._deadline.passed()
            self._deadline.at_s = math.inf
            self._connection.rollback()
        matching[np.array(rowids, np.int64) - 1] = True
        return matching, time.thread_time() - began_s


class _Deadline:
    at_s = math.inf
    is_over = False
    """It was, when the last evaluation ended."""

    def passed(self) -> bool:
        return time.thread_time() >= self.at_s


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows that are looked at together: their texts are in memory twice more meanwhile."""
    size = batch.column("properties").nbytes
    rows = max(1, batch.num_rows * PART_BYTES // max(size, PART_BYTES))
    return (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))


def _values(batch: pa.RecordBatch, name: str) -> pa.Array:
    # A name given twice: the last, as in a dict.
    return batch.column("tag") if name == TAGS else pc.map_lookup(batch.column("properties"), name, "last")


def _connect(columns: tuple[tuple[str, str], ...]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    declared = ", ".join(f"c{number} {sql_type}" for number, (_, sql_type) in enumerate(columns))
    connection.execute(f"CREATE TABLE m ({declared or 'c0'})")
    for limit, value in _LIMITS.items():
        connection.setlimit(limit, value)
    connection.set_authorizer(_authorize)
    return connection


def _authorize(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
    """All that may be compiled on such a connection: what this file says itself, and conditions."""
    match action:
        case sqlite3.SQLITE_SELECT | sqlite3.SQLITE_TRANSACTION:
            fine = True
        case sqlite3.SQLITE_READ | sqlite3.SQLITE_INSERT:
            fine = first == "m"
        case sqlite3.SQLITE_FUNCTION:
            fine = second in _FUNCTIONS
        case _:
            fine = False
    return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY
