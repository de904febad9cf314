"""The types that columns of numbers have everywhere, and the order of delivery: by due time, then by arrival."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]
Int32s: TypeAlias = npt.NDArray[np.int32]
Mask: TypeAlias = npt.NDArray[np.bool_]
"""One truth value a row."""


class Key(NamedTuple):
    """A place in the order of delivery: by due time, then by arrival."""

    due_ms: int
    seq: int


def at_or_after(due_ms: Int64s, seq: Int64s, key: tuple[int, int]) -> Mask:
    """Which of the rows with these due times and seqs (arrays of one length) stand at ``key`` or after it."""
    mask: Mask = (due_ms > key[0]) | ((due_ms == key[0]) & (seq >= key[1]))
    return mask


def before(due_ms: Int64s, seq: Int64s, key: tuple[int, int]) -> Mask:
    """Which of the rows with these due times and seqs (arrays of one length) stand before ``key``."""
    mask: Mask = (due_ms < key[0]) | ((due_ms == key[0]) & (seq < key[1]))
    return mask
