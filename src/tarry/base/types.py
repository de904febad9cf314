"""Types of numeric columns, and the order of delivery: by due time, then by arrival.

Functions on columns take ``due_ms`` and ``seq`` of the same rows: two arrays of one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

try:
    import numpy as np
    import numpy.typing as npt
except ImportError:  # a client without the native link: requests name these types, and nothing is computed
    if TYPE_CHECKING:
        raise
    np = npt = None

if TYPE_CHECKING or np is not None:
    Int64s: TypeAlias = npt.NDArray[np.int64]
    Int32s: TypeAlias = npt.NDArray[np.int32]
    Float64s: TypeAlias = npt.NDArray[np.float64]
    Mask: TypeAlias = npt.NDArray[np.bool_]
    """One truth value a row."""
    Rows: TypeAlias = npt.NDArray[np.intp]
    """Numbers of rows in a batch, as NumPy indexes with."""
else:
    Int64s = Int32s = Float64s = Mask = Rows = Sequence


FEW_VALUES = 16

NEVER_MS = -(1 << 62)
"""A moment before all due times."""


class Key(NamedTuple):
    """A place in the order of delivery: by due time, then by arrival."""

    due_ms: int
    seq: int


def extremes(values: Int64s) -> tuple[int, int]:
    """Return the lowest and highest value. For a few, NumPy would take several times as long."""
    if len(values) <= FEW_VALUES:
        few = values.tolist()
        return min(few), max(few)
    return int(values.min()), int(values.max())


def at_or_after(due_ms: Int64s, seq: Int64s, key: tuple[int, int]) -> Mask:
    """Mark the rows at ``key`` or after it."""
    mask: Mask = (due_ms > key[0]) | ((due_ms == key[0]) & (seq >= key[1]))
    return mask


def before(due_ms: Int64s, seq: Int64s, key: tuple[int, int]) -> Mask:
    """Mark the rows before ``key``."""
    mask: Mask = (due_ms < key[0]) | ((due_ms == key[0]) & (seq < key[1]))
    return mask


def count_before(due_ms: Int64s, seq: Int64s, key: tuple[int, int]) -> int:
    """Count the rows before ``key`` by binary search: they are in the order of delivery."""
    low = int(due_ms.searchsorted(key[0], "left"))
    if key[1] <= 0:  # as most are: no seq is below
        return low
    high = int(due_ms.searchsorted(key[0], "right"))
    return low + int(seq[low:high].searchsorted(key[1], "left"))


def is_in_order(due_ms: Int64s, seq: Int64s) -> bool:
    """Return whether the rows are in the order of delivery, no two at the same place."""
    step = np.diff(due_ms)
    return bool(((step > 0) | ((step == 0) & (np.diff(seq) > 0))).all())
