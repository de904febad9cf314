"""The wheel against a sorted list."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.examples import examples

from tarry.base.types import Key
from tarry.message.schema import SCHEMA
from tarry.wheel.run import Run
from tarry.wheel.wheel import RUNS_MAX, SLOT_MS, Wheel

NOW = 1_000_000


def batch(keys: list[Key], body: int = 10) -> pa.RecordBatch:
    columns = {
        "seq": [k.seq for k in keys],
        "due_ms": [k.due_ms for k in keys],
        "topic": ["a"] * len(keys),
        "body": [b"x" * body] * len(keys),
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(len(keys), f.type) for f in SCHEMA],
        schema=SCHEMA,
    )


def keys_of(rows: pa.RecordBatch | pa.Table) -> list[Key]:
    return [Key(*k) for k in zip(rows["due_ms"].to_pylist(), rows["seq"].to_pylist(), strict=True)]


def keys_in(runs: list[Run]) -> list[Key]:
    """Of the rows themselves, at once: a wheel may have thousands of runs of one row."""
    return keys_of(pa.Table.from_batches([piece for run in runs for piece in run.pieces()], SCHEMA))


def loaded_wheel(now: int = NOW) -> Wheel:
    """As it is when the loader has been at work: loaded for the next minute, and slots from now on."""
    wheel = Wheel(Key(now - 10_000, 0), Key(0, 0))
    wheel.loaded = wheel.safe = Key(now + 60_000, 0)
    return wheel


class WheelMachine(RuleBasedStateMachine):
    @initialize(now=st.integers(NOW, NOW + 5000))
    def start(self, now: int) -> None:
        self.now, self.seq = now, 0
        self.wheel = loaded_wheel(now)
        self.model: list[Key] = []
        self.stored: set[int] = set()
        self.takes = 1
        self.bytes = 0.0  # of what came in, less what was taken or cut off

    def make(self, offsets: list[int]) -> list[Key]:
        keys = [Key(self.now + o, self.seq + i) for i, o in enumerate(offsets)]
        self.seq += len(keys)
        return keys

    @rule(
        offsets=st.lists(
            st.sampled_from([-3000, -1, 0, 1, 700, 999, 1000, 2500, 2500, 70_000]), min_size=1, max_size=15
        ),
        stored=st.booleans(),
        body=st.sampled_from([1, 400]),
    )
    def arrives(self, offsets: list[int], stored: bool, body: int) -> None:
        keys = self.make(offsets)
        below = [k for k in keys if k < self.wheel.loaded]
        before = min((k.due_ms for k in self.model), default=None)
        arrival = self.wheel.prepare(batch(keys, body), 100 * len(keys))
        rows = batch(below, body) if stored else None
        with self.wheel.lock:
            sooner = self.wheel.accept(arrival) if rows is None else self.wheel.add(Run.of(rows, stored=True))
        lowest = min((k.due_ms for k in below), default=None)
        assert sooner == (lowest is not None and (before is None or lowest < before))
        self.model += below
        self.bytes += (100 * len(below) if rows is None else rows.nbytes) if below else 0
        if stored:
            self.stored |= {k.seq for k in below}

    @rule(count=st.integers(1, 3))
    def trickles(self, count: int) -> None:
        for _ in range(count * RUNS_MAX):
            self.arrives([4200], stored=False, body=1)

    @rule(by=st.sampled_from([0, 1, 500, 1000, 4000]))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule(by=st.sampled_from([1, 3000]))
    def clock_steps_back(self, by: int) -> None:
        self.now -= by

    @rule()
    def join_small(self) -> None:
        self.wheel.join_small()

    @rule()
    def make_near(self) -> None:
        self.wheel.make_near(self.now)

    @rule(ahead=st.sampled_from([-2000, 0, 1000, 60_000]))
    def safe_moves(self, ahead: int) -> None:
        with self.wheel.lock:
            self.wheel.safe = min(max(self.wheel.fired, Key(self.now + ahead, 0)), self.wheel.loaded)

    @rule(rows_max=st.sampled_from([1, 3, 1000]))
    def take(self, rows_max: int) -> None:
        until = min(Key(self.now + 1, 0), self.wheel.safe)
        expected = sorted(k for k in self.model if k < until)[:rows_max]
        with self.wheel.lock:
            due = self.wheel.take_due(self.now, rows_max)
        if not expected:
            assert due is None
            return
        assert due is not None
        assert keys_of(due.batch) == expected
        assert due.due_ms.tolist() == [k.due_ms for k in expected]
        assert due.stored_rows == sum(k.seq in self.stored for k in expected)
        self.model = sorted(set(self.model) - set(expected))
        self.bytes -= due.bytes
        self.takes += 1
        assert self.wheel.fired > expected[-1]

    @rule(ahead=st.sampled_from([0, 900, 1000, 2500, 30_000]), seq=st.sampled_from([0, 5, 1 << 40]))
    def truncate(self, ahead: int, seq: int) -> None:
        key = max(Key(self.now + ahead, seq), self.wheel.fired)
        before = self.wheel.bytes
        with self.wheel.lock:
            self.wheel.truncate(key)
        # Rows of one run weigh the same, so the share of a run that is cut off is known to the wheel alone.
        self.bytes -= before - self.wheel.bytes
        self.model = [k for k in self.model if k < key]
        assert self.wheel.loaded <= key
        assert self.wheel.safe <= key

    @rule(share=st.sampled_from([0.1, 0.5, 0.99]))
    def key_at_bytes(self, share: float) -> None:
        if not self.model:
            return
        with self.wheel.lock:
            key = self.wheel.key_at_bytes(share * self.wheel.bytes)
        # How many bytes lie below it: test_the_key_at_some_bytes_has_so_many_below.
        assert any(k < key for k in self.model)
        assert key <= Key(max(self.model).due_ms, max(self.model).seq + 1)

    @invariant()
    def it_agrees_with_the_list(self) -> None:
        if not hasattr(self, "wheel"):
            return
        wheel = self.wheel
        assert wheel.rows == len(self.model)
        assert sorted(keys_in(wheel.runs())) == sorted(self.model)
        assert wheel.next_due() == min((k.due_ms for k in self.model), default=None)
        assert wheel.bytes == pytest.approx(sum(run.bytes for run in wheel.runs()), abs=1)
        assert wheel.bytes == pytest.approx(self.bytes, abs=self.takes), "each take rounds down to whole bytes"
        lowest = min(self.model, default=None)
        if lowest is not None and lowest < wheel.safe and wheel.next_fireable() is not None:
            assert wheel.next_fireable() == lowest.due_ms
        if not self.model:
            assert wheel.bytes == 0

    def teardown(self) -> None:
        if not hasattr(self, "wheel"):
            return
        with self.wheel.lock:
            self.wheel.safe = self.wheel.loaded = Key(1 << 60, 0)
            got = list[Key]()
            # A take looks at every run that is due: by sevens, thousands of them would take minutes.
            some = max(7, len(self.model) // 20)
            while (due := self.wheel.take_due(1 << 59, some)) is not None:
                got += keys_of(due.batch)
        assert got == sorted(self.model)
        assert self.wheel.rows == 0
        assert self.wheel.bytes == 0


TestWheel = WheelMachine.TestCase
TestWheel.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)

KEYS = st.lists(st.builds(Key, st.integers(0, 5), st.integers(0, 1000)), min_size=1, max_size=40, unique=True)


@given(KEYS, st.builds(Key, st.integers(-1, 6), st.integers(0, 1000)))
def test_a_run_is_sorted_and_counts_what_is_below(keys: list[Key], key: Key) -> None:
    run = Run.of(batch(keys), stored=False)
    assert keys_of(run.batch) == sorted(keys)
    assert run.below(key) == sum(k < key for k in keys)
    part = run.slice(1, run.rows)
    assert keys_of(part.batch) == sorted(keys)[1:]
    assert part.bytes == pytest.approx(run.bytes * (run.rows - 1) / run.rows)


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 5000)), min_size=1, max_size=60),
    st.floats(0.01, 0.99),
    st.booleans(),
)
def test_the_key_at_some_bytes_has_so_many_below(rows: list[tuple[int, int]], share: float, near: bool) -> None:
    wheel = loaded_wheel()
    weights = {Key(NOW + offset, seq): size for seq, (offset, size) in enumerate(rows)}
    with wheel.lock:
        for key, size in weights.items():
            wheel.add(Run.of(batch([key]), stored=key.seq % 2 == 0, size=size))
    if near:
        # Joined rows weigh what they weigh on the average.
        wheel.make_near(NOW)
        weights = {key: run.row_bytes for run in wheel.runs() for key in keys_of(run.batch)}
    with wheel.lock:
        key = wheel.key_at_bytes(share * wheel.bytes)
    below = sorted(k for k in weights if k < key)
    assert below
    assert sum(weights[k] for k in below[:-1]) < share * wheel.bytes, "one row more than it should be, at the most"
    if len(below) < len(weights):
        following = min(k for k in weights if k >= key)
        assert sum(weights[k] for k in [*below, following]) >= share * wheel.bytes - 1e-6


def test_a_slot_of_many_small_runs_is_joined() -> None:
    wheel = loaded_wheel()
    for seq in range(20 * RUNS_MAX):
        with wheel.lock:
            wheel.add(Run.of(batch([Key(NOW + 30_000, seq)]), stored=seq % 2 == 0))
        if seq % 200 == 0:
            wheel.join_small()
    wheel.join_small()
    assert len(wheel.runs()) < 2 * RUNS_MAX
    assert wheel.rows == 20 * RUNS_MAX


@pytest.mark.parametrize("how", ["many", "near"])
def test_joined_runs_count_with_what_they_weigh(how: str) -> None:
    # Otherwise each message of a trickle leaves some bytes behind, until the wheel believes itself to be full.
    wheel = loaded_wheel()
    with wheel.lock:
        for seq in range(2 * RUNS_MAX if how == "many" else RUNS_MAX // 2):
            wheel.add(Run.of(batch([Key(NOW + 2000, seq)]), stored=False, size=2000))
    wheel.join_small()
    wheel.make_near(NOW + 1000)
    assert wheel.bytes == pytest.approx(sum(run.bytes for run in wheel.runs()))
    with wheel.lock:
        assert wheel.take_due(NOW + 2000, 1000) is not None
    assert wheel.rows == 0
    assert wheel.bytes == pytest.approx(0)


@pytest.mark.parametrize("limit_before", [0, 5, 100])
def test_prepare_takes_what_is_below_and_lets_go_of_the_rest(limit_before: int) -> None:
    wheel = Wheel(Key(NOW, 0), Key(0, 0))
    keys = [Key(NOW - 1, i) if i < limit_before else Key(NOW + 1, i) for i in range(100)]
    arrival = wheel.prepare(batch(keys, body=1000), 100_000)
    assert arrival.limit.due_ms == NOW
    if not limit_before:
        assert arrival.parts == []
        return
    [(number, run)] = arrival.parts
    assert number == (NOW - 1) // SLOT_MS
    assert keys_of(run.batch) == keys[:limit_before]
    assert run.bytes == pytest.approx(1000 * limit_before)
    if limit_before == 5:
        assert run.batch["body"].buffers()[2].size < 50_000, "a view would keep the whole batch in memory"


def test_rows_kept_by_a_cut_do_not_keep_the_batch_they_came_with() -> None:
    wheel = loaded_wheel()
    with wheel.lock:
        wheel.add(Run.of(batch([Key(NOW + 30_000 + i, i) for i in range(100)], body=1000), stored=False))
        wheel.truncate(Key(NOW + 30_003, 0))
    [run] = wheel.runs()
    assert run.rows == 3
    assert run.batch["body"].buffers()[2].size < 10_000


@pytest.mark.parametrize(
    ("sizes", "share"),
    [
        ([100], 0.01),
        ([1, 1, 1, 1], 0.3),
        pytest.param(
            [5000, 10],
            0.5,
        ),
    ],
)
def test_a_cut_leaves_at_least_one_row(sizes: list[int], share: float) -> None:
    wheel = loaded_wheel()
    with wheel.lock:
        for seq, size in enumerate(sizes):
            wheel.add(Run.of(batch([Key(NOW + 100 * seq, seq)], body=size), stored=False))
        wheel.truncate(wheel.key_at_bytes(share * wheel.bytes))
    assert wheel.rows >= 1


def test_rows_due_wait_for_what_the_loader_still_brings_from_below_them() -> None:
    wheel = Wheel(Key(NOW, 0), Key(0, 0))
    with wheel.lock:
        wheel.loaded = Key(NOW + 100, 0)
        wheel.add(Run.of(batch([Key(NOW + 5, 9)]), stored=False))
        assert wheel.take_due(NOW + 50, 10) is None
        assert wheel.next_fireable() is None
        assert wheel.next_due() == NOW + 5
        wheel.add(Run.of(batch([Key(NOW + 1, 3)]), stored=True))
        wheel.safe = wheel.loaded
        due = wheel.take_due(NOW + 50, 10)
    assert due is not None
    assert keys_of(due.batch) == [(NOW + 1, 3), (NOW + 5, 9)]
    assert due.stored_rows == 1


def test_what_is_taken_has_about_its_bytes_and_one_row_at_least() -> None:
    wheel = loaded_wheel()
    with wheel.lock:
        for first in (0, 1):
            wheel.add(Run.of(batch([Key(NOW, first + 2 * k) for k in range(50)], body=1000), stored=False))
        rows = []
        while (due := wheel.take_due(NOW, 1000, 10_000)) is not None:
            rows.append(due.batch["seq"].to_pylist())
            if len(rows) == 3:
                break
        assert all(5 <= len(part) <= 10 for part in rows)
        due = wheel.take_due(NOW, 1000, 1)
        assert due is not None
        rows.append(due.batch["seq"].to_pylist())
        assert len(rows[-1]) == 1
        due = wheel.take_due(NOW, 1000, 1 << 30)
        assert due is not None
        rows.append(due.batch["seq"].to_pylist())
    assert [seq for part in rows for seq in part] == list(range(100))


def test_order_within_a_millisecond_is_the_order_of_arrival() -> None:
    wheel = loaded_wheel()
    rng = np.random.default_rng(1)
    with wheel.lock:
        for part in np.array_split(rng.permutation(5000), 40):
            wheel.add(Run.of(batch([Key(NOW, int(s)) for s in part]), stored=bool(part[0] % 2)))
        got: list[int] = []
        while (due := wheel.take_due(NOW, 512)) is not None:
            got += due.batch["seq"].to_pylist()
    assert got == list(range(5000))
