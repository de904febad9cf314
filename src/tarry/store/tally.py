"""Numbers of messages due in each unit of time: certain, possible, and the best guess between."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tarry.base.types import Float64s, Int64s, Key, Mask, at_or_after


@dataclass(slots=True)
class Tally:
    """Messages from the place ``after`` on and before ``until_ms``, by unit of ``unit_ms``.

    The first unit begins at ``start_ms``, and also has what is overdue.
    """

    after: Key
    until_ms: int
    start_ms: int
    unit_ms: int
    units: int = field(init=False)
    _counted: Int64s = field(init=False)
    _missing: Int64s = field(init=False)
    _steps: Int64s = field(init=False)
    _guess_steps: Float64s = field(init=False)
    _guessed: Float64s = field(init=False)

    def __post_init__(self) -> None:
        self.units = -(-(self.until_ms - self.start_ms) // self.unit_ms)
        self._counted, self._missing = np.zeros(self.units, np.int64), np.zeros(self.units, np.int64)
        self._guessed = np.zeros(self.units)
        # Rows that span several units, as differences: how many more, or fewer, each unit has than the one before.
        self._steps, self._guess_steps = np.zeros(self.units + 1, np.int64), np.zeros(self.units + 1)

    def wanted(self, due_ms: Int64s, seq: Int64s) -> Mask:
        """Return which of these messages lie between the bounds."""
        mask: Mask = at_or_after(due_ms, seq, self.after) & (due_ms < self.until_ms)
        return mask

    def count(self, due_ms: Int64s, rows: Int64s | int = 1) -> None:
        """Messages that are due then, one by one, or ``rows`` of each; negative: what was counted and is none."""
        if isinstance(rows, np.ndarray):
            within = due_ms < self.until_ms
            counts = np.bincount(self._unit(due_ms[within]), rows[within], self.units)
            self._counted += counts.astype(np.int64)
        else:
            self._counted += self.numbers(due_ms) * rows

    def numbers(self, due_ms: Int64s) -> Int64s:
        """Return how many of these due times lie in each unit."""
        return np.bincount(self._unit(due_ms[due_ms < self.until_ms]), minlength=self.units).astype(np.int64)

    def count_perhaps_not(self, due_ms: Int64s, share: float) -> None:
        """Messages of those that were counted may not be there; ``share``: how many of them, at a guess."""
        rows = self.numbers(due_ms)
        self._missing += rows
        self._guessed -= share * rows

    def lack(self, from_ms: int, rows: int, share: float, certain: Int64s) -> None:
        """Note that up to ``rows`` messages due from ``from_ms`` on are not there; ``share`` is the guess.

        This excludes those that are ``certain`` in each unit.
        """
        first = int(self._unit(np.array([min(from_ms, self.until_ms - 1)]))[0])
        low, guess, _ = self.bounds()
        self._missing[first:] += np.clip(low - certain, 0, rows)[first:]
        self._guessed[first:] -= share * np.maximum(guess - certain, 0)[first:]

    def spread(self, low_ms: Int64s, high_ms: Int64s, rows: Int64s, share: float) -> None:
        """Add ``rows`` of messages, each lot due somewhere from its ``low_ms`` to its ``high_ms``.

        An estimated ``share`` of them is wanted.
        """
        low, high = np.maximum(low_ms, self.after.due_ms), np.minimum(high_ms, self.until_ms - 1)
        may = low <= high
        low, high, rows, low_ms, high_ms = low[may], high[may], rows[may], low_ms[may], high_ms[may]
        first, last = self._unit(low), self._unit(high)
        np.add.at(self._steps, first, rows)
        np.add.at(self._steps, last + 1, -rows)
        within = (high - low + 1.0) / (high_ms.astype(np.float64) - low_ms + 1.0)
        each = rows * share * within / (last - first + 1)
        np.add.at(self._guess_steps, first, each)
        np.add.at(self._guess_steps, last + 1, -each)

    def is_one_unit(self, low_ms: Int64s, high_ms: Int64s, seq_min: int) -> Mask:
        """Return which of these spans lie in one unit, and between the bounds.

        A number of messages is enough to count them.
        """
        mask: Mask = at_or_after(low_ms, np.full(len(low_ms), seq_min), self.after) & (high_ms < self.until_ms)
        mask &= self._unit(low_ms) == self._unit(high_ms)
        return mask

    def bounds(self) -> tuple[Int64s, Float64s, Int64s]:
        """Return the least number, the best guess, and the most of each unit."""
        low = np.maximum(self._counted - self._missing, 0)
        high = np.maximum(self._counted + np.cumsum(self._steps)[:-1], low)
        guess = self._counted + self._guessed + np.cumsum(self._guess_steps)[:-1]
        return low, np.clip(guess, low, high), high

    def _unit(self, due_ms: Int64s) -> Int64s:
        return np.maximum((due_ms - self.start_ms) // self.unit_ms, 0)
