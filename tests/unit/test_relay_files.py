"""What a delivery reads: each row once, in whatever steps clock and store move on."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.relay_store import SHARDS, Stored

from tarry_relay.deliver import DeliverPlan, DeliverWork
from tarry_relay.files import FileTracker, Reached

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 60), min_size=1, max_size=8)),
        st.tuples(st.just("clock"), st.integers(1, 20)),
        st.tuples(st.just("rewrite"), st.integers(0, 1)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=examples(40), deadline=None)
@given(steps)
def test_each_row_is_delivered_once_when_it_is_due(tmp_path_factory: object, some: list) -> None:
    world = Stored(tmp_path_factory.mktemp("tracker"))  # type: ignore[attr-defined]
    at, now, tracker = Reached(0, 0), 0, FileTracker(world.uri, 0, 0)
    work = DeliverWork(world.settings, world.uri)
    seen: dict[int, int] = {}

    def deliver() -> None:
        nonlocal at
        while True:
            tracker.follow(at)
            end = Reached(now, tracker.version)
            files = tracker.wanted(at, end)
            counted = sum(tracker.count(file, at, end) for file in files)
            rows = 0
            for shard in range(SHARDS):
                of_shard = tuple(f for f in files if shard in f.shards(SHARDS))
                for batch in work.rows(DeliverPlan(shard, at, end, of_shard, (), 0), at, end):
                    rows += batch.num_rows
                    assert (np.diff(batch["due_ms"].to_numpy()) >= 0).all()
                    for seq, due_ms in zip(batch["seq"].to_pylist(), batch["due_ms"].to_pylist(), strict=True):
                        assert seq not in seen
                        seen[seq] = due_ms
            assert counted == rows
            at = end
            if not tracker.held_up:
                return

    for what, value in [*some, ("clock", 100)]:
        if what == "add":
            world.add(value)
        elif what == "rewrite":
            world.rewrite(bool(value))
        elif what == "restart":
            tracker = FileTracker(world.uri, 0, at.v)
        else:
            now += value
            deliver()
            assert seen == {seq: due_ms for seq, due_ms in world.due.items() if due_ms <= now}
    assert seen == world.due


def test_places() -> None:
    assert Reached(5, 2).joined(Reached(3, 4)) == Reached(5, 4)
