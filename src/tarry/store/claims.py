"""Checks that a file of the store holds what is said of it, by the rows and bounds in its footer.

No data is read.

A commit takes over what the author of its files says of them, and from then on readers believe the log: with wrong
bounds, messages are not looked for where they are; with a wrong number of rows, counts are wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from tarry.api.jobs import StagedFile
from tarry.base.errors import CorruptError, InvalidArgumentError, StaleCommitError
from tarry.store.columns import instant_text
from tarry.store.parquet import RowGroup, groups
from tarry.store.place import Place

THREADS = 8
"""Footers that are read at once: each is one small read, on object storage one round trip."""


class FileContent(NamedTuple):
    """Number of rows of a file and their bounds, inclusive.

    A bound is None if the file has no rows or its footer does not have it.
    """

    rows: int
    due_min_ms: int | None
    due_max_ms: int | None
    seq_min: int | None
    seq_max: int | None
    topic_min: str | None
    topic_max: str | None

    @classmethod
    def of(cls, groups: Iterable[RowGroup]) -> FileContent:
        """Return the content of a file that has these row groups."""
        parts = [group for group in groups if group.rows]
        if not parts:
            return cls(0, None, None, None, None, None, None)
        topics = [(group.topic_min, group.topic_max) for group in parts]
        return cls(
            rows=sum(group.rows for group in parts),
            due_min_ms=min(group.due_min_ms for group in parts),
            due_max_ms=max(group.due_max_ms for group in parts),
            seq_min=min(group.seq_min for group in parts),
            seq_max=max(group.seq_max for group in parts),
            topic_min=None if None in (low for low, _ in topics) else min(str(low) for low, _ in topics),
            topic_max=None if None in (high for _, high in topics) else max(str(high) for _, high in topics),
        )


def differences(claimed: FileContent, content: FileContent) -> Iterator[str]:
    """Return each claim about a file that is wrong, with both values."""
    for name, claim, value in zip(FileContent._fields, claimed, content, strict=True):
        if claim != value:
            yield f"{name} {claim}, but its footer says {value}"


def check_present(place: Place, files: Sequence[StagedFile], oldest_ms: int | None = None) -> None:
    """Check that the files are there, with the right sizes.

    With ``oldest_ms`` (UTC), check that they were written then or later.

    Raises:
        StaleCommitError: a file is missing, has another size, or is older.
    """
    # A driver that slept for hours may find its files removed as orphans; a worker on another machine may have written
    # them to its own disk. A commit of a file that is not there would lose its messages.
    found = place.look_at(f.path for f in files)
    for file, (size, written_ms) in zip(files, found, strict=True):
        if oldest_ms is not None and written_ms is not None and written_ms < oldest_ms:
            raise StaleCommitError(
                f"staged file {file.path} under {place.uri} is of {instant_text(written_ms)}; allowed: of "
                f"{instant_text(oldest_ms)} or later, for older ones may be removed as orphans; nothing was committed"
            )
        if size != file.size:
            is_there = "missing" if size is None else f"{size} bytes long"
            raise StaleCommitError(
                f"staged file {file.path} under {place.uri} is {is_there}; "
                f"expected: {file.size} bytes; nothing was committed"
            )


def check_claims(root: str, files: Sequence[StagedFile]) -> None:
    """Check what the author of staged files says of them, by their footers.

    Raises:
        StaleCommitError: a file is missing, or has another size. InvalidArgumentError: it is no sound Parquet file with
        a store's columns, or holds something else.
    """
    place = Place.of(root)
    check_present(place, files)
    pool = ThreadPoolExecutor(min(THREADS, max(1, len(files))), "tarry-footers")
    try:
        for _ in pool.map(partial(_check, place), files):
            pass
    finally:
        pool.shutdown(cancel_futures=True)


def _check(place: Place, file: StagedFile) -> None:
    try:
        content = FileContent.of(groups(place, file.path))
    except (CorruptError, KeyError) as error:
        raise InvalidArgumentError(
            f"staged file {file.path} cannot be committed: {error}; allowed: a whole Parquet file of a store"
        ) from error
    claimed = FileContent(*(getattr(file, name) for name in FileContent._fields))
    if wrong := "; ".join(differences(claimed, content)):
        raise InvalidArgumentError(f"staged file {file.path} is said to have {wrong}; nothing was committed")
