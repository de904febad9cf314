"""Cancellations: which rows that fall due are not delivered.

A cancellation is of a source partition and a key, and of all records before it: it takes those with a lower seq. The
last one of a key says all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.types import Int64s
from tarry.relay.positions import OFFSET_BITS
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place

_COLUMNS = ("key", "seq")


class Cancels:
    """The cancellations of some files; the files once read are kept, for they never change."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, dict[tuple[str, int], int]] = OrderedDict()
        self._last: dict[tuple[str, int], int] = {}
        self._keys = pa.array([], pa.string())

    def load(self, root: str, paths: Sequence[str]) -> None:
        """Know those of exactly these files."""
        if list(self._files) == list(paths):
            return
        place = Place.of(root)
        self._files = OrderedDict((path, self._files.get(path) or _read(place, path)) for path in paths)
        self._last = {}
        for found in self._files.values():
            for name, seq in found.items():
                self._last[name] = max(seq, self._last.get(name, -1))
        self._keys = pa.array(sorted({key for key, _ in self._last}), pa.string())

    def alive(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which rows of a batch are not cancelled."""
        mask = np.ones(batch.num_rows, np.bool_)
        if not self._last:
            return mask
        here = pc.is_in(batch.column("key"), value_set=self._keys).to_numpy(zero_copy_only=False)
        seq: Int64s = batch.column("seq").to_numpy()
        rows = np.flatnonzero(here)
        keys = batch.column("key").take(pa.array(rows)).to_pylist()
        for row, key in zip(rows.tolist(), keys, strict=True):
            mask[row] = self._last.get((key, int(seq[row]) >> OFFSET_BITS), -1) <= int(seq[row])
        return mask


def _read(place: Place, path: str) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for group in groups(place, path):
        batch = read_group(place, path, group.number, _COLUMNS)
        for key, seq in zip(batch.column("key").to_pylist(), batch.column("seq").to_pylist(), strict=True):
            name = (key, seq >> OFFSET_BITS)
            found[name] = max(seq, found.get(name, -1))
    return found
