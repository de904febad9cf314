"""Plans rewrites and removals of files: pure functions of a snapshot's files, bounds and sizes.

Think of a log-structured merge tree whose levels are buckets of due time. Five reasons to rewrite, in this order; all
sizes are parts of ``file_bytes_max`` (256 MiB), in brackets what that comes to:

- **near**: what overlaps the next hour shall be one sorted run. Runs are merged from the smallest on, as far as the
  next is at most four times as large as those before it together, or all come to no more than *cheap* (4 MiB). So a
  run of 20 GB is not rewritten for a file of 1 MB, and there are at most logarithmically many.
- **split**: a file of more than *split* (32 MiB) in three or more buckets is cut by bucket, once: ``run.py`` makes none
  that would be chosen again. A file of a month is chosen when its first day is a month away, one of a day when its
  first hour is a day away.
- **small**: four files of one bucket and one class of size below *small* (4 MiB; the classes grow by four) become one,
  with all that are smaller still.
- **deep**: four or more runs of one bucket that overlap, of files between *small* and *full* (128 MiB), where the
  largest is no larger than the others together.
- **purge**: where a quarter of a file's rows may be cancelled, it is looked into, and rewritten if they are; a file of
  cancellations, where a quarter of the messages has gone.

So a row is rewritten a few times in each level, however much there is; and in each bucket there are at most twelve
small files, a logarithm of deep runs, and otherwise files of :data:`small` or more. What has fired goes without being
read (:func:`expired`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tarry.base.types import at_or_after
from tarry.message.bulk import first_seq
from tarry.store.choice import FILES_MAX, WORK_BYTES_MAX, Chosen, portions
from tarry.store.layout import HOUR_MS, buckets_between, label
from tarry.store.older import choose_older
from tarry.store.rewrite import Rewritten, Work
from tarry.store.run import FILE_BYTES_MAX
from tarry.store.snapshot import FileColumns, Snapshot

NEAR_MS = HOUR_MS
NEAR_RATIO = 4
TIER_FILES = 4
TIER_GROWTH = 4
DEEP_RUNS = 4
BUCKETS_MIN = 3
PURGE_SHARE = 0.25
LEFT_BEHIND_ROWS_MIN = 8192
"""Least cancellations that are worth a look; fewer go when they are merged."""
WORKS_MAX = 64

Cancelled = Sequence[Sequence[int]]
"""``[number, due_ms, seq]`` of each bulk job that is cancelled: its messages from that place on."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes in bytes that tell small from large files, all derived from the largest size of a file."""

    file: int = FILE_BYTES_MAX

    @property
    def full(self) -> int:
        """Size from which on a file that is due far from now is not merged any more."""
        return self.file // 2

    @property
    def split(self) -> int:
        """A file of more bytes that lies in several buckets is cut by bucket."""
        return self.file // 8

    @property
    def small(self) -> int:
        """Files of fewer bytes are merged whether they overlap or not."""
        return self.file // 64

    def tier(self, size: int) -> int:
        """Return the class of size of a small file: each is four times the one before."""
        tier, end = 0, self.file // 4096
        while size >= end:
            tier, end = tier + 1, end * TIER_GROWTH
        return tier


@dataclass(slots=True)
class Memory:
    """A planner's memory, so that it does nothing twice in vain.

    ``settled``: files that a rewrite made, and that it could not make fewer or narrower. ``looked``: by path, the share
    of cancelled rows that was guessed when it was looked into, and the cancelled jobs. ``damaged``: files that could
    not be read, and the state they were in then (:func:`tarry.store.damaged.state_of`).
    """

    settled: set[str] = field(default_factory=set)
    looked: dict[str, tuple[float, frozenset[int]]] = field(default_factory=dict)
    damaged: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def note(self, work: Work, result: Rewritten) -> None:
        """Remember what came of a work that was planned with this memory."""
        sizes = Sizes(work.file_bytes_max)
        for file in result.files:
            wide = buckets_between(file.due_min_ms, file.due_max_ms, work.now_ms) >= BUCKETS_MIN
            if work.reason == "split" and file.size > sizes.split and wide:
                self.settled.add(file.path)
            if work.reason == "small" and file.size < sizes.small and len(result.files) >= len(work.files):
                self.settled.add(file.path)

    def forget_all_but(self, paths: Iterable[str]) -> None:
        """Forget files that are in the table no more."""
        present = set(paths)
        self.settled &= present
        for known in (self.looked, self.damaged):
            for path in known.keys() - present:
                del known[path]


def expired(snapshot: Snapshot, floor_ms: int, cancelled_jobs: Cancelled = ()) -> list[str]:
    """Files of which no row is needed: all due before ``floor_ms``, or all of one cancelled bulk job."""
    paths = []
    for files in (snapshot.files, snapshot.cancellations):
        unneeded = files.due_max_ms < floor_ms
        for number, due_ms, seq in cancelled_jobs if files is snapshot.files else ():
            alone = (files.seq_min >= first_seq(number)) & (files.seq_max < first_seq(number + 1))
            # Messages before that place were delivered, and may be needed again after a crash.
            after = at_or_after(files.due_min_ms, files.seq_min, (due_ms, seq))
            unneeded = unneeded | (alone & after)
        paths += [files.path[i] for i in np.flatnonzero(unneeded)]
    return paths


def plan(
    snapshot: Snapshot,
    now_ms: int,
    *,
    shard: int = 0,
    floor_ms: int,
    cancelled_jobs: Cancelled = (),
    file_bytes_max: int = FILE_BYTES_MAX,
    memory: Memory | None = None,
    older: bool = False,
) -> list[Work]:
    """Return the rewrites that are worth it, the most urgent first; no file is in two.

    Args:
        floor_ms: messages due before it have fired durably. cancelled_jobs: as the broker tells them. memory:
        kept by the caller from plan to plan. older: where nothing else is, all files that lack a column
        (:func:`tarry.store.older.choose_older`).
    """
    memory = memory or Memory()
    unneeded = {*expired(snapshot, floor_ms, cancelled_jobs), *memory.damaged}
    planner = _Planner(snapshot.files, unneeded, Sizes(file_bytes_max), now_ms, memory)
    other = _Planner(snapshot.cancellations, unneeded, Sizes(file_bytes_max), now_ms, memory)
    chosen = [
        *planner.messages(snapshot.cancellations, frozenset(number for number, _, _ in cancelled_jobs)),
        *other.cancellations(snapshot.files),
    ]
    if older and not chosen:
        chosen = choose_older(snapshot, unneeded)
    works = []
    for reason, rows, cancellations in chosen[:WORKS_MAX]:
        own, others = snapshot.files, snapshot.cancellations
        if cancellations:
            own, others = others, own
        files = own.take(sorted(rows))
        within = (others.due_max_ms >= files.due_min_ms.min()) & (others.due_min_ms <= files.due_max_ms.max())
        against = others.take(np.flatnonzero(within).tolist())
        works.append(
            Work(
                reason=reason,
                root=snapshot.root,
                shard=shard,
                files=files,
                against=against,
                cancellations=cancellations,
                now_ms=now_ms,
                floor_ms=floor_ms,
                cancelled_jobs=tuple((number, due_ms, seq) for number, due_ms, seq in cancelled_jobs),
                file_bytes_max=file_bytes_max,
                dead_share_min=PURGE_SHARE if reason == "purge" else 0.0,
            )
        )
    return works


_Key = tuple[int, int]
_LOWEST, _HIGHEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


class _Planner:
    def __init__(self, files: FileColumns, unneeded: set[str], sizes: Sizes, now_ms: int, memory: Memory) -> None:
        self._files, self._sizes, self._now_ms, self._memory = files, sizes, now_ms, memory
        self._size, self._low, self._high = files.size.tolist(), files.due_min_ms.tolist(), files.due_max_ms.tolist()
        self._used = {i for i, path in enumerate(files.path) if path in unneeded}

    def messages(self, cancellations: FileColumns, jobs: frozenset[int]) -> list[Chosen]:
        chosen = [("near", rows, False) for rows in self._claim(self._near())]
        chosen += [("split", rows, False) for rows in self._claim(self._wide())]
        for files in self._by_bucket().values():
            chosen += [("small", rows, False) for rows in self._claim(self._small(files))]
            chosen += [("deep", rows, False) for rows in self._claim(self._deep(files))]
        return chosen + [("purge", [i], False) for i in self._suspects(cancellations, jobs)]

    def cancellations(self, messages: FileColumns) -> list[Chosen]:
        chosen = [("small", rows, True) for rows in self._claim(self._small(self._free))]
        chosen += [("deep", rows, True) for rows in self._claim(self._deep(self._free))]
        return chosen + [("purge", [i], True) for i in self._left_behind(messages)]

    def _claim(self, works: Iterable[list[int]]) -> list[list[int]]:
        lists = list(works)
        self._used.update(i for rows in lists for i in rows)
        return lists

    @property
    def _free(self) -> list[int]:
        return [i for i in range(len(self._size)) if i not in self._used]

    def _by_bucket(self) -> dict[str, list[int]]:
        # By its bounds, not by its partition: a foreign writer may have put more into one.
        rows: dict[str, list[int]] = defaultdict(list)
        for i in self._free:
            rows[label(self._low[i], self._high[i])].append(i)
        return rows

    # -- the five reasons --------------------------------------------------------------------------------------------

    def _near(self) -> Iterator[list[int]]:
        near = [i for i in self._free if self._low[i] < self._now_ms + NEAR_MS]
        yield from self._merge(near, ratio=NEAR_RATIO, runs_min=2, cheap=self._sizes.small)

    def _wide(self) -> Iterator[list[int]]:
        groups: dict[str, list[int]] = defaultdict(list)
        for i in self._free:
            if self._size[i] <= self._sizes.split or self._files.path[i] in self._memory.settled:
                continue
            if buckets_between(self._low[i], self._high[i], self._now_ms) >= BUCKETS_MIN:
                groups[label(self._low[i], self._high[i])].append(i)
        for rows in groups.values():
            yield from portions(self._files, rows)

    def _small(self, files: list[int]) -> Iterator[list[int]]:
        tiers: dict[int, list[int]] = defaultdict(list)
        for i in files:
            if self._size[i] < self._sizes.small and self._files.path[i] not in self._memory.settled:
                tiers[self._sizes.tier(self._size[i])].append(i)
        full = [tier for tier, rows in tiers.items() if len(rows) >= TIER_FILES]
        if full:
            rows = [i for tier in sorted(tiers) if tier <= max(full) for i in tiers[tier]]
            yield from (portion for portion in portions(self._files, rows) if len(portion) > 1)

    def _deep(self, files: list[int]) -> Iterator[list[int]]:
        middle = [i for i in files if self._sizes.small <= self._size[i] < self._sizes.full]
        yield from self._merge(middle, ratio=1, runs_min=DEEP_RUNS, cheap=0)

    def _suspects(self, cancellations: FileColumns, jobs: frozenset[int]) -> Iterator[int]:
        for i in self._free:
            share = self._cancelled_share(i, cancellations)
            its_jobs = frozenset(n for n in jobs if self._may_have(i, n))
            if share < PURGE_SHARE and not its_jobs:
                continue
            path = self._files.path[i]
            before, before_jobs = self._memory.looked.get(path, (0.0, frozenset()))
            if share > 1.25 * before or not its_jobs <= before_jobs:
                self._memory.looked[path] = (share, its_jobs | before_jobs)
                yield i

    def _left_behind(self, messages: FileColumns) -> Iterator[int]:
        """Files of cancellations of which a quarter of the messages has gone since they were looked into."""
        for i in self._free:
            messages_now = _spread(messages, self._low[i], self._high[i])
            before, _ = self._memory.looked.get(self._files.path[i], (np.inf, frozenset()))
            if self._files.rows[i] >= LEFT_BEHIND_ROWS_MIN and messages_now < (1 - PURGE_SHARE) * before:
                self._memory.looked[self._files.path[i]] = (messages_now, frozenset())
                yield i

    # -- their parts -------------------------------------------------------------------------------------------------

    def _merge(self, rows: list[int], *, ratio: int, runs_min: int, cheap: int) -> Iterator[list[int]]:
        runs = sorted(self._runs(rows), key=self._bytes)[:FILES_MAX]
        count, total = 0, 0
        for number, run in enumerate(runs, 1):
            size = self._bytes(run)
            if number > 1 and (size <= ratio * total or total + size <= cheap):
                count = number
            total += size
        if count < runs_min:
            return
        chosen: list[int] = []
        read = 0
        for i in sorted((i for run in runs[:count] for i in run), key=self._start):
            if chosen and read + self._size[i] > WORK_BYTES_MAX:
                break
            chosen.append(i)
            read += self._size[i]
        if len(self._runs(chosen)) > 1:
            yield chosen

    def _runs(self, rows: list[int]) -> list[list[int]]:
        """Divide files into few sorted runs: in each no two overlap.

        The largest files come first, so that a large run stays one.
        """
        runs: list[list[tuple[_Key, _Key, int]]] = []
        for i in sorted(rows, key=lambda i: (-self._size[i], self._start(i))):
            entry = (self._start(i), self._end(i), i)
            for run in runs:
                at = bisect_left(run, entry)
                if (at == 0 or run[at - 1][1] <= entry[0]) and (at == len(run) or entry[1] <= run[at][0]):
                    insort(run, entry)
                    break
            else:
                runs.append([entry])
        return [[i for _, _, i in run] for run in runs]

    def _start(self, i: int) -> _Key:
        # Of a herd in several files, each has seqs of its own. Otherwise files that share one moment do not overlap.
        low = self._low[i]
        return low, int(self._files.seq_min[i]) if low == self._high[i] else _HIGHEST

    def _end(self, i: int) -> _Key:
        high = self._high[i]
        return high, int(self._files.seq_max[i]) if high == self._low[i] else _LOWEST

    def _bytes(self, rows: list[int]) -> int:
        return sum(self._size[i] for i in rows)

    def _may_have(self, i: int, job: int) -> bool:
        return bool(self._files.seq_min[i] < first_seq(job + 1) and self._files.seq_max[i] >= first_seq(job))

    def _cancelled_share(self, i: int, cancellations: FileColumns) -> float:
        """Return about which share of the messages in the span of a file are cancelled.

        It assumes that all are spread evenly.
        """
        if len(cancellations) == 0:
            return 0.0
        bounds = self._low[i], self._high[i]
        return _spread(cancellations, *bounds) / max(1.0, _spread(self._files, *bounds))


def _spread(files: FileColumns, low: int, high: int) -> float:
    """Return about how many rows of ``files`` are due from ``low`` to ``high``.

    It assumes that they are spread evenly within each.
    """
    first, last = files.due_min_ms.astype(np.float64), files.due_max_ms.astype(np.float64)
    overlap = np.minimum(last, high) + 1 - np.maximum(first, low)
    return float((files.rows * np.clip(overlap / (last + 1 - first), 0, 1)).sum())
