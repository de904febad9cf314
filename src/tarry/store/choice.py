"""Choice of files that are rewritten together, and of how much one task may read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tarry.store.snapshot import FileColumns

FILES_MAX = 16
"""Most files that are merged at once where they are small: a row group of each is in memory."""
WORK_BYTES_MAX = 2 << 30
"""About the most that one Work reads: a task takes as long as that takes."""

Chosen = tuple[str, list[int], bool]
"""Reason of a rewrite, its files by their places in the snapshot; True if these are of cancellations."""


def portions(files: FileColumns, rows: Sequence[int]) -> Iterator[list[int]]:
    """Divide some of the files, by due time, into what one task may read."""
    portion: list[int] = []
    for i in sorted(rows, key=lambda i: (files.due_min_ms[i], files.seq_min[i])):
        total = int(files.size[portion].sum()) + int(files.size[i])
        if portion and (len(portion) == FILES_MAX or total > WORK_BYTES_MAX):
            yield portion
            portion = []
        portion.append(i)
    if portion:
        yield portion
