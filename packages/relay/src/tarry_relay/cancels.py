"""Cancellations: the rows that fall due and are not delivered.

A cancellation names a source partition and a key, and cancels all records of that key before it: those with a lower
seq. So only the last cancellation of a key matters.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.types import Int64s
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place
from tarry_relay.positions import OFFSET_BITS

_COLUMNS = ("key", "seq")


class Cancels:
    """The cancellations of some files. Files that were read are kept in memory, as they never change."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, dict[tuple[str, int], int]] = OrderedDict()
        self._last: dict[tuple[str, int], int] = {}
        self._keys = pa.array([], pa.string())

    def load(self, root: str, paths: Sequence[str]) -> None:
        """Replace the loaded cancellations with those of exactly these files."""
        if list(self._files) == list(paths):
            return
        place = Place.of(root)
        self._files = OrderedDict((path, self._files.get(path) or _read(place, path)) for path in paths)
        self._last = {}
        for of_file in self._files.values():
            for name, seq in of_file.items():
                self._last[name] = max(seq, self._last.get(name, -1))
        self._keys = pa.array(sorted({key for key, _ in self._last}), pa.string())

    def alive(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows of a batch that are not cancelled: one boolean a row."""
        mask = np.ones(batch.num_rows, np.bool_)
        if not self._last:
            return mask
        has_key = pc.is_in(batch.column("key"), value_set=self._keys).to_numpy(zero_copy_only=False)
        seq: Int64s = batch.column("seq").to_numpy()
        rows = np.flatnonzero(has_key)
        keys = batch.column("key").take(pa.array(rows)).to_pylist()
        for row, key in zip(rows.tolist(), keys, strict=True):
            mask[row] = self._last.get((key, int(seq[row]) >> OFFSET_BITS), -1) <= int(seq[row])
        return mask


def _read(place: Place, path: str) -> dict[tuple[str, int], int]:
    last: dict[tuple[str, int], int] = {}
    for group in groups(place, path):
        batch = read_group(place, path, group.number, _COLUMNS)
        for key, seq in zip(batch.column("key").to_pylist(), batch.column("seq").to_pylist(), strict=True):
            name = (key, seq >> OFFSET_BITS)
            last[name] = max(seq, last.get(name, -1))
    return last
