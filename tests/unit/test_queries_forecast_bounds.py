"""Forecasts against a count of the same rows, whatever was committed, cancelled, moved, rewritten and fired, and
however little time, room for counts or patience there is: exact, or within their bound.
"""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.crash.tools import World
from tests.examples import examples

from tarry.api.views import UNITS_MS
from tarry.base.errors import UnavailableError
from tarry.broker.queries import forecast as module
from tarry.store import Store, due_counts, rewrite
from tarry.store.due_counts import DueCounter, DueCounts
from tarry.store.rewrite import Work

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 24 * 3_600_000
TOPICS = ["a", "b", "c"]
DELAYS_MS = st.one_of(
    st.sampled_from([1, 1500, 2001, MINUTE_MS, 3 * MINUTE_MS, HOUR_MS, HOUR_MS, 5 * HOUR_MS, 3 * DAY_MS]),
    st.integers(0, 10 * MINUTE_MS),
    st.integers(0, 40 * DAY_MS),
)
STEPS = st.one_of(
    st.tuples(st.just("schedule"), st.sampled_from(TOPICS), st.lists(DELAYS_MS, min_size=1, max_size=20)),
    st.tuples(st.just("herd"), st.sampled_from(TOPICS), DELAYS_MS, st.integers(100, 130)),
    st.tuples(st.just("commit"), st.booleans()),
    st.tuples(st.just("cancel"), st.integers(1, 8), st.integers(0, 1 << 20)),
    st.tuples(st.just("move"), st.integers(0, 1 << 20), DELAYS_MS),
    st.tuples(st.just("bulk"), st.sampled_from(TOPICS), st.lists(DELAYS_MS, min_size=1, max_size=20), st.booleans()),
    st.tuples(st.just("rewrite")),
    st.tuples(st.just("advance"), st.sampled_from([1, 700, MINUTE_MS, HOUR_MS])),
    st.tuples(st.just("reopen")),
)


class Limits(NamedTuple):
    """How little there may be of what makes a forecast exact."""

    footers_s: float
    rows_s: float
    dead_rows: int
    intake_bytes: int


PATIENT = Limits(60, 60, 10_000, 1 << 30)
HASTY = [
    Limits(-100, -1, 10_000, 1 << 30),
    Limits(60, -100, 10_000, 1 << 30),
    Limits(60, -100, 3, 1 << 30),
    Limits(60, 60, 3, 1 << 30),
    Limits(60, 60, 10_000, 0),
    Limits(-100, -1, 3, 0),
]


class Life:
    """A broker, and which of its messages are pending: topic and due time by id."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.w = World(directory, settings={"horizon_ms": 2000, "wheel_bytes_max": 20_000})
        self.w.open()
        self.patch = patch
        self.pending: dict[str, tuple[str, int]] = {}
        self.made = 0

    def names(self, topic: str, dues: list[int]) -> list[str]:
        ids = [f"m{self.made + n}" for n in range(len(dues))]
        self.made += len(dues)
        self.pending.update({i: (topic, due) for i, due in zip(ids, dues, strict=True)})
        return ids

    def schedule(self, topic: str, delays: list[int]) -> None:
        dues = [self.w.clock.now_ms() + delay for delay in delays]
        ids = self.names(topic, dues)
        rows = {"topic": [topic] * len(ids), "due_ms": dues, "key": ids, "body": [b"x" * 20] * len(ids)}
        self.w.b.schedule_batch(pa.record_batch(rows))

    def herd(self, topic: str, delay: int, rows: int) -> None:
        self.schedule(topic, [delay] * rows)

    def commit(self, has_counts: bool) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if not has_counts:
                patch.setattr(DueCounter, "counts", lambda _: None)
            self.w.pipeline_commits()
        self.w.b.step()

    def alive(self) -> list[str]:
        now = self.w.clock.now_ms()
        return [i for i, (_, due) in self.pending.items() if due > now and not i.startswith("bulk")]

    def cancel(self, count: int, at: int) -> None:
        for id in (alive := self.alive())[at % (len(alive) or 1) :][:count]:
            topic, _ = self.pending.pop(id)
            assert self.w.b.cancel_key(topic, id).name == "DONE"

    def move(self, at: int, delay: int) -> None:
        if alive := self.alive():
            id = alive[at % len(alive)]
            topic, _ = self.pending[id]
            due = self.w.clock.now_ms() + delay
            self.w.b.schedule(topic, b"", due=due, key=id)
            self.pending[id] = topic, due

    def bulk(self, topic: str, delays: list[int], is_cancelled: bool) -> None:
        bulk, now = self.w.b.components.bulk, self.w.clock.now_ms()
        job = f"job{self.made}"
        attempt = bulk.begin(job)
        dues = [now + MINUTE_MS + delay for delay in delays]
        rows = {"topic": [topic] * len(dues), "due_ms": dues, "body": [b"x"] * len(dues)}
        files, topics = bulk.stage(attempt.number, [pa.record_batch(rows)])
        bulk.commit(attempt.number, files, topics)
        self.w.b.step()
        self.made += 1
        if is_cancelled:
            try:
                assert bulk.cancel(job).outcome == "done"
            except UnavailableError:  # what it brought for the present is not all in the wheel, which is full
                is_cancelled = False
        if not is_cancelled:
            self.pending.update({f"bulk{self.made}-{n}": (topic, due) for n, due in enumerate(dues)})
        self.w.b.step()

    def rewrite(self) -> None:
        """What the upkeep does, of all files: what is left in them is of several commits and jobs, and smaller."""
        store = Store.open(self.w.b.intake_state()["store_uri"])
        now = store.snapshot()
        if len(now.files):
            work = Work("test", now.root, 0, now.files, now.cancellations, False, self.w.clock.now_ms(), 0)
            done = rewrite(work)
            store.replace(done.removed, done.files)
            self.w.b.store_committed()
            self.w.b.step()

    def advance(self, by_ms: int) -> None:
        self.w.b.advance_to(self.w.clock.now_ms() + by_ms)

    def reopen(self) -> None:
        self.w.reopen()
        self.w.b.step()

    def check(self, unit: str, topic: str | None, limits: Limits) -> None:
        for name, value in zip(("FOOTERS_S", "ROWS_S", "DEAD_ROWS_MAX", "INTAKE_BYTES_MAX"), limits, strict=True):
            self.patch.setattr(module, name, value)
        now = self.w.clock.now_ms()
        found = self.w.b.forecast(unit=unit, topic=topic, until_ms=now + 50 * min(UNITS_MS[unit], DAY_MS))
        dues = [due for of, due in self.pending.values() if topic in (None, of) and now < due < found.until_ms]
        expected, herds = Counter(due // UNITS_MS[unit] * UNITS_MS[unit] for due in dues), Counter(dues)
        for load in found.loads:
            assert abs(load.rows - expected[load.from_ms]) <= load.unsure, (load, expected[load.from_ms])
        for herd in found.herds:
            assert herd.rows <= herds[herd.due_ms]
        if limits == PATIENT:
            assert not any(load.unsure for load in found.loads)
            assert {h.due_ms: h.rows for h in found.herds} == {due: rows for due, rows in herds.items() if rows >= 100}


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    steps=st.lists(STEPS, min_size=1, max_size=14),
    unit=st.sampled_from(sorted(UNITS_MS)),
    topic=st.sampled_from([None, *TOPICS]),
    limits=st.sampled_from(HASTY),
    cells_max=st.sampled_from([3, 8192]),
    topics_max=st.sampled_from([1, 256]),
)
@example(
    steps=[("herd", "a", 1, 201), ("herd", "b", 1, 100), ("schedule", "a", [1]), ("commit", True)],
    unit="day",
    topic="b",
    limits=HASTY[0],
    cells_max=3,
    topics_max=1,
)
def test_a_forecast_is_exact_or_within_its_bound(
    steps: list[tuple[Any, ...]],
    unit: str,
    topic: str | None,
    limits: Limits,
    cells_max: int,
    topics_max: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stage = importlib.import_module("tarry.store.stage")
        patch.setattr(stage, "GROUP_ROWS_MAX", 4)
        patch.setattr(stage, "FILE_BYTES_MIN", 2000)
        patch.setattr(due_counts, "CELLS_MAX", cells_max)
        patch.setattr(due_counts, "CELLS_FREE", cells_max)
        patch.setattr(due_counts, "TOPICS_MAX", topics_max)
        life = Life(tmp_path_factory.mktemp("life"), patch)
        try:
            for name, *arguments in steps:
                getattr(life, name)(*arguments)
                life.w.b.step()
            life.w.b.step()
            life.check(unit, topic, limits)
            life.check(unit, topic, PATIENT)
        finally:
            life.w.b.close()


@given(
    groups=st.lists(
        st.lists(
            st.tuples(st.integers(-(1 << 50), 1 << 50) | st.integers(0, 50), st.sampled_from("abcdef")), max_size=60
        ),
        max_size=6,
    ),
    cells_max=st.sampled_from([4, 8192]),
    topics_max=st.sampled_from([2, 256]),
)
def test_what_a_footer_counts_is_what_was_written(
    groups: list[list[tuple[int, str]]], cells_max: int, topics_max: int
) -> None:
    rows = sorted(row for group in groups for row in group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(due_counts, "CELLS_MAX", cells_max)
        patch.setattr(due_counts, "CELLS_FREE", cells_max)
        patch.setattr(due_counts, "TOPICS_MAX", topics_max)
        counter, at = DueCounter(), 0
        for group in groups:
            part = rows[at : at + len(group)]
            at += len(group)
            dues, topics = pa.array([due for due, _ in part], pa.int64()), pa.array([t for _, t in part], pa.string())
            counter.add(pa.record_batch({"due_ms": dues, "topic": topics}))
        counts = counter.counts()
    if counts is None:
        assert not rows or len({due // due_counts.SPANS_MS[-1] for due, _ in rows}) > cells_max
        return
    read = DueCounts.of_bytes(counts.to_bytes())
    assert read is not None
    assert read.rows == len(rows)
    assert len(read.cells) <= cells_max
    for topic in (None, *"abcdef"):
        mine = [due for due, of in rows if topic in (None, of)]
        spans, is_sure = read.cells_of(topic)
        expected = Counter(due // read.span_ms for due in mine)
        if is_sure:
            assert dict(spans.tolist()) == expected
        else:
            assert all(dict(spans.tolist()).get(span, 0) >= count for span, count in expected.items())
        instants = Counter(mine)
        assert all(instants[due] == count >= due_counts.HERD_ROWS_MIN for due, count in read.herds_of(topic).tolist())
    every = Counter(due for due, _ in rows)
    assert dict(read.herds_of(None).tolist()) == {due: n for due, n in every.items() if n >= due_counts.HERD_ROWS_MIN}


@pytest.mark.parametrize("raw", [b"", b"no base64!", b"aGVsbG8=", b"\xff\x00"])
def test_what_somebody_else_wrote_is_no_count(raw: bytes) -> None:
    assert DueCounts.of_bytes(raw) is None
