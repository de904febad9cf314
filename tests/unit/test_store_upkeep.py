"""What is rewritten and what goes: plans that end, bounds that hold, and no message lost, doubled or brought back."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

import tarry.store.find as store_find
from tarry.api.jobs import StagedFile
from tarry.message.bulk import first_seq
from tarry.message.schema import SCHEMA, cancellations
from tarry.store import FileColumns, Snapshot, StaleCommitError, Store, read_window, stage
from tarry.store.find import find
from tarry.store.layout import DAY_MS, HOUR_MS, MINUTE_MS, bucket_starts, buckets_between, label
from tarry.store.locallog import record_path
from tarry.store.rewrite import Rewritten, Work, rewrite
from tarry.store.run import RunWriter
from tarry.store.upkeep import BUCKETS_MIN, TIER_FILES, Cancelled, Memory, Sizes, expired, plan

from .test_store_table import before_the_next_commit

NOW_MS = 1_795_264_000_000
LOWEST = -(2**63)
FILE_BYTES = 4 << 20
"""So small that a test's files are of every kind: small is less than 64 KiB, more than 512 KiB may be split."""


def messages(due: Sequence[int], seq: Sequence[int], *, body: int = 40) -> pa.Table:
    n = len(due)
    rng = np.random.default_rng(int(seq[0]) % 2**32 if n else 0)
    known = {
        "seq": pa.array(np.asarray(seq, np.int64)),
        "topic": pa.array(["orders"] * n),
        "due_ms": pa.array(np.asarray(due, np.int64)),
        "body": pa.array([rng.bytes(body) for _ in range(n)], pa.binary()),
        "born_ms": pa.array(np.full(n, NOW_MS)),
        "kind": pa.array(np.zeros(n, np.int8)),
    }
    return pa.table([known.get(f.name, pa.nulls(n, f.type)) for f in SCHEMA], schema=SCHEMA)


def gone(due: Sequence[int], seq: Sequence[int], first_seq: int) -> pa.Table:
    """Cancellations of these messages, with seqs from ``first_seq`` on."""
    targets = messages(due, seq).select(["seq", "due_ms", "topic"]).to_batches()[0]
    rows = cancellations(targets, NOW_MS)
    numbers = pa.array(np.arange(first_seq, first_seq + len(due), dtype=np.int64))
    return pa.Table.from_batches([rows.add_column(0, SCHEMA.field(0), numbers)])


class Stored:
    """A store, and what was put into it."""

    def __init__(self, root: Path) -> None:
        self.store = Store.open(str(root))
        self.at = 0
        self.now_ms = NOW_MS

    def put(self, table: pa.Table) -> list[StagedFile]:
        files = stage(table, self.store.root, "intake-x", self.now_ms)
        self.store.commit(files, self.at, self.at + table.num_rows)
        self.at += table.num_rows
        return files

    def add(self, due: Sequence[int], **how: int) -> np.ndarray:
        seq = np.arange(self.at, self.at + len(due))
        self.put(messages(due, seq, **how))
        return seq

    def cancel(self, due: Sequence[int], seq: Sequence[int]) -> None:
        self.put(gone(due, seq, self.at))

    def keep(self, *, floor_ms: int = LOWEST, rounds: int = 30, jobs: Cancelled = ()) -> list[tuple[Work, Rewritten]]:
        """Expire and rewrite until nothing is left to do; all that was done."""
        memory, done = Memory(), []
        for _ in range(rounds):
            snapshot = self.store.snapshot()
            if passed := expired(snapshot, floor_ms, jobs):
                snapshot = self.store.replace(passed, [])
            works = plan(
                snapshot, self.now_ms, floor_ms=floor_ms, cancelled_jobs=jobs, file_bytes_max=FILE_BYTES, memory=memory
            )
            did = [(work, rewrite(pickle.loads(pickle.dumps(work)))) for work in works]
            for work, result in did:
                memory.note(work, result)
                self.store.replace(result.removed, result.files)
            done += did
            if not any(result.removed for _, result in did):
                return done
        raise AssertionError(f"no end after {rounds} rounds; the last: {[w.reason for w in works]}")

    def read(self) -> list[tuple[int, int]]:
        batches = read_window(self.store.snapshot(), (LOWEST, 0), 2**62, batch_rows=5000)
        found = [k for b in batches for k in zip(b["due_ms"].to_pylist(), b["seq"].to_pylist(), strict=True)]
        assert found == sorted(found)
        return found

    def by_bucket(self) -> dict[str, list[int]]:
        files, found = self.store.snapshot().files, {}
        for low, high, size in zip(
            files.due_min_ms.tolist(), files.due_max_ms.tolist(), files.size.tolist(), strict=True
        ):
            found.setdefault(label(low, high), []).append(size)
        return found


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path / "store")


def overlapping(files: FileColumns, due_ms: int) -> int:
    return int(((files.due_min_ms <= due_ms) & (files.due_max_ms >= due_ms)).sum())


# -- buckets -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-400 * DAY_MS, 900 * DAY_MS), min_size=1, max_size=40), st.integers(1, 3))
def test_buckets_begin_where_the_label_of_a_neighbour_changes(after: list[int], reach: int) -> None:
    due = np.sort(np.array(after)) + NOW_MS
    starts = bucket_starts(due, NOW_MS, reach=reach)
    assert starts == sorted(set(starts))
    assert all(0 < start < len(due) for start in starts)
    for piece in np.split(due, starts):
        assert label(int(piece[0]), int(piece[-1])) != "all"
    # One after the other, with the last due time before, gives the same.
    assert [i for i in range(1, len(due)) if bucket_starts(due[i - 1 : i + 1], NOW_MS, reach=reach)] == starts


@pytest.mark.parametrize(
    ("low_ms", "high_ms", "buckets"),
    [
        (0, 0, 1),
        (0, 30 * MINUTE_MS, 2),
        (0, 5 * HOUR_MS, 6),
        (25 * HOUR_MS, 30 * HOUR_MS, 1),
        (25 * HOUR_MS, 25 * HOUR_MS + 3 * DAY_MS, 4),
        (45 * DAY_MS, 46 * DAY_MS, 1),
        (45 * DAY_MS, 135 * DAY_MS, 4),
    ],
)
def test_how_many_buckets_lie_between(low_ms: int, high_ms: int, buckets: int) -> None:
    now = NOW_MS // DAY_MS * DAY_MS + 30 * MINUTE_MS
    assert buckets_between(now + low_ms, now + high_ms, now) == buckets


# -- runs --------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_a_run_has_every_row_in_files_that_do_not_overlap(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("run")
    rows = data.draw(st.integers(1, 20_000))
    spread = data.draw(st.sampled_from([1, 1000, HOUR_MS, 90 * DAY_MS]))
    bytes_max = data.draw(st.sampled_from([1 << 20, 4 << 20]))
    rng = np.random.default_rng(rows)
    table = messages(
        np.sort(NOW_MS + rng.integers(0, spread, rows)), range(rows), body=data.draw(st.sampled_from([0, 100]))
    )
    writer = RunWriter(str(root), "run-x", NOW_MS, shard=0, bytes_max=bytes_max, cancelled=False)
    step = data.draw(st.integers(max(1, rows // 40), rows))
    for start in range(0, rows, step):
        writer.add(table.slice(start, step).combine_chunks().to_batches()[0])
    files = writer.finish()
    assert sum(f.rows for f in files) == rows
    for before, after in pairwise(files):
        assert before.due_max_ms <= after.due_min_ms
        assert before.size > bytes_max // 64, "only the last may be small"
    for file in files:
        assert file.size <= 1.1 * bytes_max
        assert file.bucket == label(file.due_min_ms, file.due_max_ms)
        starts = bucket_starts(np.array([file.due_min_ms, file.due_max_ms]), NOW_MS, reach=2)
        assert not starts or file.size <= 2 * (bytes_max // 16) + (64 << 10), "several buckets share small files only"
    columns = snapshot_of(root, files)
    got = pa.Table.from_batches(read_window(columns, (LOWEST, 0), 2**62, batch_rows=700), SCHEMA)
    assert got.equals(table.combine_chunks()) or got.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("spread_ms", [HOUR_MS, DAY_MS, 90 * DAY_MS])
def test_what_compresses_well_makes_no_small_files(tmp_path: Path, spread_ms: int) -> None:
    due = NOW_MS + np.arange(30_000) * spread_ms // 30_000
    writer = RunWriter(str(tmp_path), "run-x", NOW_MS, shard=0, bytes_max=1 << 20, cancelled=False)
    for start in range(0, 30_000, 500):
        part = messages(due[start : start + 500], range(start, start + 500), body=0)
        writer.add(part.combine_chunks().to_batches()[0])
    files = writer.finish()
    assert sum(f.rows for f in files) == 30_000
    assert all(f.size >= (1 << 20) // 64 for f in files[:-1])


def snapshot_of(root: Path, staged: Sequence[StagedFile]) -> Snapshot:
    names = ("due_min_ms", "due_max_ms", "seq_min", "seq_max", "rows", "size")
    columns = FileColumns(
        path=[f.path for f in staged],
        **{n: np.array([getattr(f, n) for f in staged], np.int64) for n in names},
        topic_min=[f.topic_min for f in staged],
        topic_max=[f.topic_max for f in staged],
    )
    return Snapshot(str(root), 1, 0, columns)


def test_a_run_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored(tmp_path / "store")
    for _ in range(4):
        stored.add(NOW_MS + np.arange(3000) * 997_000, body=200)
    (work,) = plan(stored.store.snapshot(), NOW_MS, floor_ms=LOWEST, file_bytes_max=1 << 20)[:1]
    before = sorted(p for p in tmp_path.rglob("*.parquet"))
    real, made = RunWriter._close, []  # noqa: SLF001 - a crash in this step

    def close(self: RunWriter) -> None:
        made.append(1)
        if len(made) == 3:
            raise OSError(28, "No space left on device")
        real(self)

    monkeypatch.setattr(RunWriter, "_close", close)
    with pytest.raises(OSError, match="No space"):
        rewrite(work)
    assert sorted(p for p in tmp_path.rglob("*.parquet")) == before


# -- plans, on paper ---------------------------------------------------------------------------------------------------


def on_paper(works: list[Work], files: dict[str, tuple[int, int, int]], number: int) -> int:
    """Do what a rewrite does to bounds and sizes, as if rows were spread evenly; the next free number."""
    for work in works:
        assert len(set(work.files.path)) == len(work.files)
        sizes = Sizes(work.file_bytes_max)
        spans = [files.pop(path) for path in work.files.path]
        low, high, total = min(s[0] for s in spans), max(s[1] for s in spans), sum(s[2] for s in spans)
        moments = np.linspace(low, high, 200).astype(np.int64)
        cuts = {0, *bucket_starts(moments, work.now_ms, reach=2), 200}
        held, first = 0, 0
        for start, stop in zip(sorted(cuts)[:-1], sorted(cuts)[1:], strict=True):
            for at in range(start, stop):
                held += total // 200
                several = any(first < cut <= at for cut in cuts)
                if held >= sizes.file * 9 // 10 or (several and held >= sizes.file // 16):
                    files[f"{number}"] = (int(moments[first]), int(moments[at]), held)
                    number, held, first = number + 1, 0, at + 1
            if held >= sizes.file // 32:
                files[f"{number}"] = (int(moments[first]), int(moments[stop - 1]), held)
                number, held, first = number + 1, 0, stop
        if held:
            files[f"{number}"] = (int(moments[min(first, 199)]), high, held)
            number += 1
    return number


SPAN = st.tuples(
    st.one_of(st.integers(0, 2 * HOUR_MS), st.integers(0, 40 * DAY_MS), st.integers(0, 700 * DAY_MS)),
    st.one_of(st.just(0), st.integers(0, HOUR_MS), st.integers(0, 60 * DAY_MS)),
    st.one_of(st.integers(3000, 60_000), st.integers(60_000, 4 << 20)),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(SPAN, min_size=1, max_size=60))
def test_plans_end_and_leave_few_files(spans: list[tuple[int, int, int]]) -> None:
    files = {f"f{i}": (NOW_MS + low, NOW_MS + low + width, size) for i, (low, width, size) in enumerate(spans)}
    sizes, number, total = Sizes(FILE_BYTES), 0, sum(s[2] for s in spans)
    for _ in range(40):
        works = plan(paper(files), NOW_MS, floor_ms=LOWEST, file_bytes_max=FILE_BYTES)
        chosen = [path for work in works for path in work.files.path]
        assert len(chosen) == len(set(chosen)), "a file is in two works"
        if not works:
            break
        number = on_paper(works, files, number)
    assert not works, f"no end: {[(w.reason, len(w.files)) for w in works]}"
    buckets: dict[str, list[int]] = {}
    for low, high, size in files.values():
        buckets.setdefault(label(low, high), []).append(size)
        assert size <= sizes.split or buckets_between(low, high, NOW_MS) < BUCKETS_MIN
    for held in buckets.values():
        small = [size for size in held if size < sizes.small]
        assert len(small) <= (TIER_FILES - 1) * (sizes.tier(sizes.small) + 1)
        assert len(held) - len(small) <= total / sizes.small


def paper(files: dict[str, tuple[int, int, int]]) -> Snapshot:
    names = sorted(files, key=lambda name: files[name])
    low, high, size = (np.array([files[n][k] for n in names], np.int64) for k in range(3))
    seq = np.arange(len(names)) * 10**6
    none: list[str | None] = [None] * len(names)
    return Snapshot(
        "nowhere", 1, 10**12, FileColumns(names, low, high, seq, seq + 10**5, size // 100, size, none, none)
    )


def test_files_of_other_writers_without_bounds_are_planned_with() -> None:
    files = {f"f{i}": (LOWEST, 2**63 - 1, 1 << 20) for i in range(5)}
    (work,) = plan(paper(files), NOW_MS, floor_ms=LOWEST)
    assert len(work.files) == 5
    assert expired(paper(files), NOW_MS) == []
    assert plan(paper({"f": (LOWEST, 2**63 - 1, 100 << 20)}), NOW_MS, floor_ms=LOWEST)[0].reason == "split"


def test_a_large_run_is_not_rewritten_for_a_small_file() -> None:
    hour = NOW_MS + 10 * MINUTE_MS
    large = {f"l{i}": (hour + i * 1000, hour + (i + 1) * 1000, 256 << 20) for i in range(80)}
    small = {"s": (hour, hour + 80_000, 1 << 20)}
    assert plan(paper(large | small), NOW_MS, floor_ms=LOWEST) == []
    more = {f"s{i}": (hour, hour + 80_000, 1 << 20) for i in range(4)}
    (work,) = plan(paper(large | more), NOW_MS, floor_ms=LOWEST)
    assert sorted(work.files.path) == sorted(more)


def test_a_herd_in_several_files_is_one_run() -> None:
    files = {f"h{i}": (NOW_MS + 1000, NOW_MS + 1000, 256 << 20) for i in range(4)}
    around = {"a": (NOW_MS, NOW_MS + 1000, 256 << 20), "b": (NOW_MS + 1000, NOW_MS + 2000, 256 << 20)}
    assert plan(paper(files | around), NOW_MS, floor_ms=LOWEST) == []


@pytest.mark.rest
def test_a_month_is_cut_into_days_once_as_it_comes_near(stored: Stored) -> None:
    due = NOW_MS + 70 * DAY_MS + np.arange(40_000) * (20 * DAY_MS // 40_000)
    for part in range(4):
        stored.add(due[part::4], body=100)
    stored.keep()
    assert all(name.startswith("1mo-") or name == "all" for name in stored.by_bucket())
    stored.now_ms += 45 * DAY_MS
    first = stored.keep()
    assert [work.reason for work, _ in first] == ["split"]
    assert sum(name.startswith("1d-") for name in stored.by_bucket()) >= 15
    assert stored.keep() == []
    assert sorted(seq for _, seq in stored.read()) == list(range(40_000))


# -- what is in the store afterwards -----------------------------------------------------------------------------------


@settings(max_examples=examples(5), deadline=None)
@given(data=st.data())
def test_no_message_is_lost_doubled_or_brought_back(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stored = Stored(tmp_path_factory.mktemp("store") / "s")
    alive: dict[int, int] = {}
    cancelled: set[int] = set()
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    for _ in range(data.draw(st.integers(1, 5))):
        for _ in range(data.draw(st.integers(1, 6))):
            n = int(rng.integers(1, 300))
            spread = data.draw(st.sampled_from([1, HOUR_MS, DAY_MS, 300 * DAY_MS]))
            due = stored.now_ms + rng.integers(0, spread, n)
            alive.update(zip(stored.add(due, body=int(rng.integers(0, 600))).tolist(), due.tolist(), strict=True))
        victims = [s for s in alive if rng.random() < data.draw(st.sampled_from([0.02, 0.5]))]
        if victims:
            stored.cancel([alive[s] for s in victims], victims)
            cancelled.update(victims)
        stored.now_ms += data.draw(st.sampled_from([0, HOUR_MS, 20 * DAY_MS]))
        stored.keep(floor_ms=stored.now_ms)
        there = {seq: due for due, seq in stored.read()}
        wanted = {s: d for s, d in alive.items() if d >= stored.now_ms}
        assert {s: d for s, d in wanted.items() if s not in cancelled}.items() <= there.items()
        assert there.items() <= alive.items()
        left = stored.store.snapshot().cancellations
        assert len(left) == 0 or left.due_max_ms.min() >= stored.now_ms
        # A cancellation stays as long as its message does.
        held = {s for s in there if s in cancelled and there[s] >= stored.now_ms}
        assert held <= set(targets(stored))
    stored.now_ms += 1000 * DAY_MS
    stored.keep(floor_ms=stored.now_ms)
    assert len(stored.store.snapshot().files) == len(stored.store.snapshot().cancellations) == 0


def targets(stored: Stored) -> list[int]:
    snapshot = stored.store.snapshot()
    batches = read_window(
        dataclasses.replace(snapshot, files=snapshot.cancellations), (LOWEST, 0), 2**62, batch_rows=999
    )
    return [int.from_bytes(body, "little", signed=True) for b in batches for body in b["body"].to_pylist()]


def test_rows_that_were_cancelled_go_and_then_what_cancelled_them(stored: Stored) -> None:
    due = NOW_MS + 3 * DAY_MS + np.arange(20_000) * 10_000
    seq = stored.add(due, body=100)
    stored.keep()
    stored.cancel(due[::2], seq[::2])
    done = stored.keep()
    assert {work.reason for work, _ in done} == {"purge"}
    assert len(stored.store.snapshot().cancelled) == 0
    assert [s for _, s in stored.read()] == seq[1::2].tolist()


def test_few_cancellations_are_merged_and_stay_as_long_as_their_messages(stored: Stored) -> None:
    due = NOW_MS + 3 * DAY_MS + np.arange(2000) * 10_000
    seq = stored.add(due)
    for i in range(TIER_FILES):
        stored.cancel(due[i::500], seq[i::500])
    assert [(w.reason, w.cancellations) for w, r in stored.keep() if r.removed] == [("small", True)]
    assert len(targets(stored)) == 16
    assert len(stored.read()) == 2000
    for _ in range(TIER_FILES):
        stored.add(due)
    stored.keep()
    assert len(stored.read()) == 5 * 2000 - 16
    for i in range(TIER_FILES - 1):
        stored.cancel(due[7 + i : 8 + i], seq[7 + i : 8 + i])
    stored.keep()
    assert len(targets(stored)) == TIER_FILES - 1


def test_where_few_are_cancelled_nothing_is_rewritten_for_it(stored: Stored) -> None:
    due = NOW_MS + 3 * DAY_MS + np.arange(20_000) * 10_000
    seq = stored.add(due, body=100)
    stored.keep()
    stored.cancel(due[::10], seq[::10])
    assert all(not result.removed for work, result in stored.keep())
    stored.cancel(due[1:2], seq[1:2])
    assert stored.keep() == [], "and it is not looked into again for every cancellation"


def test_a_cancelled_job_goes_unread_and_what_it_shared_is_rewritten(stored: Stored) -> None:
    def job(number: int, rows: int) -> np.ndarray:
        return first_seq(number) + np.arange(rows)

    due = NOW_MS + 3 * DAY_MS + np.arange(3000) * 10_000
    for number in (3, 4):
        stored.store.replace([], stage(messages(due, job(number, 3000)), stored.store.root, "bulk-x", NOW_MS))
    mixed = messages(np.repeat(due, 2), np.column_stack([job(5, 3000), np.arange(3000)]).ravel())
    stored.store.replace([], stage(mixed, stored.store.root, "run-x", NOW_MS))
    assert len(expired(stored.store.snapshot(), LOWEST, [[3, LOWEST, 0], [5, LOWEST, 0]])) == 1
    stored.keep(jobs=[[3, LOWEST, 0], [5, LOWEST, 0]])
    assert sorted(s for _, s in stored.read()) == sorted([*range(3000), *job(4, 3000).tolist()])


def test_what_has_fired_goes_and_what_was_due_later_stays(stored: Stored) -> None:
    stored.add(NOW_MS + np.arange(100))
    stored.add(NOW_MS + np.arange(50, 150))
    stored.cancel([NOW_MS + 5], [5])
    snapshot = stored.store.snapshot()
    assert expired(snapshot, NOW_MS + 99) == snapshot.cancelled
    assert len(expired(snapshot, NOW_MS + 100)) == 2
    (work,) = plan(snapshot, NOW_MS, floor_ms=NOW_MS + 99)
    assert work.reason == "near"
    stored.store.replace(work.files.path, rewrite(work).files)
    assert sorted({due - NOW_MS for due, _ in stored.read()}) == list(range(99, 150))


def test_a_lookup_reads_about_one_row_group_of_a_near_run(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    for _ in range(8):
        stored.add(NOW_MS + rng.integers(MINUTE_MS, 40 * MINUTE_MS, 5000), body=100)
    assert overlapping(stored.store.snapshot().files, NOW_MS + 20 * MINUTE_MS) == 8
    stored.keep()
    snapshot = stored.store.snapshot()
    assert all(overlapping(snapshot.files, NOW_MS + m * MINUTE_MS) <= 1 for m in range(1, 40))
    read: list[tuple[str, int]] = []
    real = store_find.read_group

    def counted(place: object, path: str, number: int, *columns: object) -> object:
        read.append((path, number))
        return real(place, path, number, *columns)  # type: ignore[arg-type]

    monkeypatch.setattr(store_find, "read_group", counted)
    keys = stored.read()
    for due, seq in keys[:: len(keys) // 100]:
        (batch,) = find(snapshot, np.array([due]), np.array([seq]))
        assert batch["seq"].to_pylist() == [seq]
    assert len(read) <= 1.1 * 101, "about one row group for a message"


# -- exchanging files --------------------------------------------------------------------------------------------------


def near_work(stored: Stored) -> Work:
    for start in (0, 10, 20):
        stored.add(NOW_MS + np.arange(start, start + 30))
    (work,) = plan(stored.store.snapshot(), NOW_MS, floor_ms=LOWEST)
    return work


def test_two_rewritings_of_the_same_file_do_not_both_succeed(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    work, other = near_work(stored), Store.open(stored.store.root)
    mine, theirs = rewrite(work), rewrite(work)
    # It has seen that the files are there; before it writes, they are replaced.
    before_the_next_commit(monkeypatch, lambda: stored.store.replace(mine.removed, mine.files))
    with pytest.raises(StaleCommitError, match="not in the store"):
        other.replace(theirs.removed, theirs.files)
    assert len(stored.read()) == 90
    assert len(set(stored.read())) == 90
    with pytest.raises(StaleCommitError, match="not in the store"):
        stored.store.replace(theirs.removed, theirs.files)


def test_an_optimize_of_another_program_in_between_doubles_nothing(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = near_work(stored)
    mine = rewrite(work)
    before_the_next_commit(monkeypatch, lambda: DeltaTable(stored.store.root).optimize.compact())
    with pytest.raises(StaleCommitError, match="not in the store"):
        stored.store.replace(mine.removed, mine.files)
    assert len(stored.read()) == 90


def test_an_append_and_a_rewriting_at_once_both_succeed(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    result, other = rewrite(near_work(stored)), Store.open(stored.store.root)
    files = stage(messages([NOW_MS + 5], [90]), other.root, "intake-x", NOW_MS)
    raced = list[Snapshot]()
    before_the_next_commit(monkeypatch, lambda: raced.append(stored.store.replace(result.removed, result.files)))
    assert other.commit(files, 90, 91).committed_seq == 91
    assert len(raced) == 1
    assert len(stored.read()) == 91
    # The other way round.
    (work,) = plan(stored.store.snapshot(), NOW_MS, floor_ms=LOWEST)
    last = rewrite(work)
    more = stage(messages([NOW_MS], [91]), other.root, "intake-x", NOW_MS)
    before_the_next_commit(monkeypatch, lambda: other.commit(more, 91, 92))
    assert stored.store.replace(last.removed, last.files).committed_seq == 92
    assert len(stored.read()) == 92


def test_works_that_share_no_file_are_committed_from_the_same_version(stored: Stored) -> None:
    stored.add(NOW_MS + np.arange(50))
    stored.add(NOW_MS + 40 * DAY_MS + np.arange(50))
    one, two = Store.open(stored.store.root), Store.open(stored.store.root)
    near, far = stored.store.snapshot().files.path
    one.replace([near], [])
    two.replace([far], [])
    assert stored.read() == []


def test_a_missing_file_is_not_put_in_the_place_of_another(stored: Stored) -> None:
    result = rewrite(near_work(stored))
    Path(stored.store.root, result.files[0].path).unlink()
    with pytest.raises(StaleCommitError, match="missing"):
        stored.store.replace(result.removed, result.files)
    assert len(stored.read()) == 90


@pytest.mark.parametrize("lost", ["add", "remove", "half"])
def test_a_torn_exchange_did_not_happen(stored: Stored, lost: str) -> None:
    result = rewrite(near_work(stored))
    version = stored.store.replace(result.removed, result.files).version
    entry = Path(stored.store.root, "_delta_log", f"{version:020d}.json")
    content = entry.read_bytes()
    lines = content.splitlines(keepends=True)
    at = next((i for i, line in enumerate(lines) if line.startswith(b'{"%s"' % lost.encode())), None)
    entry.write_bytes(content[: len(content) // 2] if at is None else b"".join(lines[:at] + lines[at + 1 :]))
    record_path(entry).unlink()  # it is written when the entry is durable, which this one never was
    again = Store.open(stored.store.root).snapshot()
    assert (again.version, len(again.files), again.committed_seq) == (version - 1, 3, 90)


def test_a_whole_exchange_is_kept(stored: Stored) -> None:
    result = rewrite(near_work(stored))
    version = stored.store.replace(result.removed, result.files).version
    again = Store.open(stored.store.root).snapshot()
    assert (again.version, len(again.files), again.committed_seq) == (version, 1, 90)
    assert Store.open(stored.store.root).replace(again.files.path, []).version == version + 1
    assert Store.open(stored.store.root).snapshot().version == version + 1


def test_the_table_says_how_long_files_are_kept(stored: Stored) -> None:
    assert stored.store.kept_hours == 24
    version = stored.store.snapshot().version
    stored.store.keep_for(36)
    stored.store.keep_for(36)
    assert (stored.store.kept_hours, stored.store.snapshot().version) == (36, version + 1)
    assert Store.open(stored.store.root).kept_hours == 36
    stored.add([NOW_MS])
    assert stored.read() == [(NOW_MS, 0)]


WORKER = """
import pathlib, sys
import numpy as np
from tarry.store import StaleCommitError, Store, rewrite, stage
from tarry.store.upkeep import Memory, plan

root, now_ms, stop = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
store, memory, won = Store.open(root), Memory(), 0
while True:
    last = stop.exists()
    works = plan(store.snapshot(), now_ms, floor_ms=-(2**63), memory=memory)
    for work in works:
        result = rewrite(work)
        try:
            store.replace(result.removed, result.files)
            won += 1
        except StaleCommitError:
            pass
    if last and not works:
        break
print(won)
"""


@pytest.mark.rest
def test_two_processes_rewrite_while_a_third_appends(stored: Stored, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    command = [sys.executable, "-c", WORKER, stored.store.root, str(NOW_MS), str(stop)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        rng = np.random.default_rng(1)
        while stored.at < 400 or len(stored.store.snapshot().files) > stored.at // 20:
            stored.add(NOW_MS + rng.integers(0, HOUR_MS, 10))
        for _ in range(20):
            stored.add(NOW_MS + rng.integers(0, HOUR_MS, 10))
        stop.touch()
        won = [int(worker.communicate(timeout=60)[0]) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert sum(won) >= 1
    assert sorted(seq for _, seq in stored.read()) == list(range(stored.at))
    assert stored.store.snapshot().committed_seq == stored.at
    assert plan(stored.store.snapshot(), NOW_MS, floor_ms=LOWEST) == []
