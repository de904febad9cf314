"""Reading what bulk jobs brought: the rows of some of them, and how many of one there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tarry.base.types import Key, at_or_after
from tarry.message.bulk import among, first_seq
from tarry.message.schema import count_topics
from tarry.store.damaged import OnDamage
from tarry.store.parquet import groups, read_group
from tarry.store.place import Place
from tarry.store.scan import Alive
from tarry.store.snapshot import Snapshot
from tarry.store.window import read_window

_LOWEST = np.iinfo(np.int64).min
COLUMNS = ("due_ms", "seq", "topic")


def read_jobs(
    snapshot: Snapshot, numbers: Sequence[int], until_ms: int, batch_rows: int, on_damage: OnDamage | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield messages of these jobs with ``due_ms < until_ms``, in order of ``(due_ms, seq)``.

    ``on_damage``: as in :func:`tarry.store.window.read_window`.

    Raises:
        CorruptError: while iterating, when a file is missing or damaged, without ``on_damage``.
    """
    of_jobs = snapshot.of_jobs(numbers)
    for batch in read_window(of_jobs, Key(_LOWEST, 0), until_ms, batch_rows=batch_rows, on_damage=on_damage):
        which = among(batch.column("seq").to_numpy(), numbers)
        if which.all():
            yield batch
        elif which.any():
            yield batch.filter(pa.array(which))


def count_job(snapshot: Snapshot, number: int, after: Key, alive: Alive) -> Counter[str]:
    """Return the numbers of living messages of a job from ``after`` on, by topic.

    Reads three columns of its files.

    Raises:
        CorruptError: a file is missing or damaged.
    """
    place, counts = Place.of(snapshot.root), Counter[str]()
    files = snapshot.of_jobs([number]).files
    for path, due_max in zip(files.path, files.due_max_ms.tolist(), strict=True):
        if due_max < after[0]:
            continue
        for group in groups(place, path):
            if (group.due_max_ms, group.seq_max) >= after and group.seq_max >= first_seq(number):
                _count(read_group(place, path, group.number, COLUMNS), number, after, alive, counts)
    return counts


def _count(batch: pa.RecordBatch, number: int, after: Key, alive: Alive, counts: Counter[str]) -> None:
    due, seq = batch.column("due_ms").to_numpy(), batch.column("seq").to_numpy()
    which = among(seq, [number]) & at_or_after(due, seq, after)
    which[which] = alive(due[which], seq[which])
    count_topics(batch.column("topic").filter(pa.array(which)), counts)
