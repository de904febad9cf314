"""How far a batch reaches, what of it was handed on already, and what the store says of it."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.clock import SystemClock
from tarry.base.errors import InvalidArgumentError
from tarry.store import StaleCommitError, Store
from tarry.store.creation import CHECKPOINT_COMMITS
from tarry_relay.deliver import marker_of, reached
from tarry_relay.files import Reached
from tarry_relay.markers import Marker
from tarry_relay.positions import (
    NUMBERS_MAX,
    OFFSET_MAX,
    At,
    OffsetRange,
    SourcePositions,
    changes,
    number_of,
    ranges,
    seq_of,
    shard_of,
)  # fmt: skip
from tarry_relay.prepare import discard_unless, fits_store
from tarry_relay.schedule import Cuts, SchedulePlan, ShardResult
from tarry_relay.table import RelayStore

numbers = st.integers(0, NUMBERS_MAX - 1)
offsets = st.integers(0, OFFSET_MAX)


@given(numbers, offsets, numbers, offsets)
def test_seqs_are_places(one: int, a: int, other: int, b: int) -> None:
    assert 0 <= seq_of(one, a) < 2**62
    assert (seq_of(one, a) < seq_of(other, b)) == ((one, a) < (other, b))
    assert number_of(seq_of(one, a)) == one


@pytest.mark.parametrize(("number", "offset"), [(NUMBERS_MAX, 0), (0, OFFSET_MAX + 1), (-1, 0), (0, -1)])
def test_a_place_that_has_no_room(number: int, offset: int) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed"):
        seq_of(number, offset)


partitions = st.tuples(st.sampled_from(["a", "b.c", "d"]), st.integers(0, 5))
ends = st.dictionaries(partitions, st.integers(0, 10_000), max_size=12)


@given(ends, ends, st.integers(1, 5_000), st.integers(1, 5))
def test_batches_cover_everything_once(begins: dict, growth: dict, rows_max: int, shards: int) -> None:
    """Batch after batch until nothing is new: each record is in one range of one shard, in order."""
    at = SourcePositions(0, 0, {}).with_new(begins)
    latest = {p: begins[p] + growth.get(p, 0) for p in begins}
    read = {p: begins[p] for p in begins}
    for _ in range(10_000 * len(begins) + 1):
        end = SourcePositions.from_json(at.advanced(latest, rows_max, 1_000).to_json())
        if end == at:
            break
        by_shard = ranges(at, end, shards)
        assert sum(r.end - r.start for some in by_shard.values() for r in some) <= rows_max + len(begins)
        for shard, some in by_shard.items():
            for r in some:
                assert shard_of(r.number, shards) == shard
                assert read[r.topic, r.partition] == r.start < r.end
                read[r.topic, r.partition] = r.end
        assert {p: to.offset for p, (_, to) in changes(at, end).items()}.items() <= read.items()
        at = end
    assert read == latest


def test_a_topic_that_was_made_anew_gets_another_number() -> None:
    at = SourcePositions(0, 0, {}).with_new({("a", 0): 5, ("a", 1): 0})
    again = at.with_new({("a", 0): 0})
    assert again.at == {("a", 0): At(2, 0), ("a", 1): At(1, 0)}
    assert (again.next_number, ranges(at, again, 2)) == (3, {})
    assert changes(at, again) == {("a", 0): (5, At(2, 0))}
    with pytest.raises(InvalidArgumentError, match="more than 65536"):
        SourcePositions(0, NUMBERS_MAX, {}).with_new({("b", 0): 0})


def cuts(marker: Marker, start: int, end: int, cut_ms: int) -> Cuts:
    return Cuts(marker, OffsetRange("t", 0, 3, start, end), cut_ms)


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.booleans()), max_size=30))
def test_no_record_is_divided_in_two_ways(steps: list[tuple[int, bool, bool]]) -> None:
    """Batches of any length from where the store is; each may die after Kafka's commit, or before it. Whatever was
    handed on keeps the cut by which it was, until the store has the rest of it.
    """
    store_at, marker, handed = 0, Marker(None), {}
    for number, (rows, committed, stored) in enumerate(steps):
        start, end, cut_ms = store_at, store_at + rows, 1_000 + number
        some = cuts(marker, start, end, cut_ms)
        by = {offset: some.of(offset) for offset in range(start, end)}
        for offset in range(start, min(some.done_to, end)):
            assert by[offset] == handed[offset]
        if committed and some.done_to < end:
            for offset in range(some.done_to, end):
                assert offset not in handed
                handed[offset] = by[offset]
            marker = Marker(end, {"cuts": some.all, "number": 3})
        if (committed or some.done_to >= end) and stored:
            store_at = end
    assert set(handed) >= set(range(store_at))


def test_the_marker_of_a_topic_that_was_there_before_says_nothing() -> None:
    former = Marker(10, {"cuts": [[10, 7]], "number": 2})
    assert cuts(former, 0, 5, 100).of(0) == 100
    assert cuts(former, 0, 5, 100).done_to == 0


def test_plain_data_travels() -> None:
    plan = SchedulePlan(1, 5, (OffsetRange("t", 0, 3, 0, 9),))
    assert pickle.loads(pickle.dumps(plan)) == plan
    done = ShardResult(1, Counter(read=2))
    done.lateness_ms.record([5, 7])
    back = pickle.loads(pickle.dumps(done))
    assert (back.shard, back.counts, back.lateness_ms.summary()) == (1, {"read": 2}, done.lateness_ms.summary())
    assert reached(marker_of(Reached(5, 6), 2)) == Reached(5, 6)
    assert reached(Marker(None)) is None
    with pytest.raises(InvalidArgumentError, match="committed by another program"):
        reached(Marker(7))


def committed(store: RelayStore, start: SourcePositions, end: SourcePositions) -> int:
    return store.commit_records([], changes(start, end), end.next_number).version


def test_the_store_knows_how_far_kafka_was_read(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    store = RelayStore.open_relay(uri)
    empty = SourcePositions(0, 0, {})
    first = empty.with_new({("a", 0): 0, ("b", 1): 7})
    assert committed(store, empty, first) == 1
    second = first.advanced({("a", 0): 10}, 100, 5)
    assert committed(store, first, second) == 2
    assert committed(store, first, second) == 2  # a replay
    with pytest.raises(StaleCommitError, match="nothing was committed"):
        committed(store, first, first.advanced({("a", 0): 11}, 100, 5))
    again = RelayStore.look(uri)
    assert again.positions_of([("a", 0), ("b", 1), ("c", 0)]) == (2, {("a", 0): At(0, 10), ("b", 1): At(1, 7)})
    anew = second.with_new({("a", 0): 0})
    assert committed(again, second, anew) == 3
    assert store.positions_of([("a", 0)]) == (3, {("a", 0): At(2, 0)})
    assert fits_store(anew.to_json(), None, store)
    assert fits_store(anew.advanced({("a", 0): 4}, 100, 9).to_json(), anew.to_json(), store)
    assert not fits_store(second.to_json(), first.to_json(), store)


def test_two_drivers_that_take_up_different_partitions_do_not_share_a_number(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    one, other = RelayStore.open_relay(uri), RelayStore.look(uri)
    empty = SourcePositions(0, 0, {})
    committed(one, empty, empty.with_new({("a", 0): 0}))
    with pytest.raises(StaleCommitError):
        committed(other, empty, empty.with_new({("b", 0): 0}))


@pytest.mark.rest
def test_versions_stay_in_the_log_while_delivery_is_behind(tmp_path: Path) -> None:
    store = RelayStore.open_relay(str(tmp_path / "store"))
    at = SourcePositions(0, 0, {}).with_new({("a", 0): 0})
    committed(store, SourcePositions(0, 0, {}), at)

    def checkpoints(commits: int) -> int:
        nonlocal at
        for _ in range(commits):
            end = at.advanced({("a", 0): at.at["a", 0].offset + 1}, 100, 5)
            committed(store, at, end)
            at = end
        return len(list((tmp_path / "store" / "_delta_log").glob("*.checkpoint.parquet")))

    assert checkpoints(CHECKPOINT_COMMITS) == 0
    store.delivered = Reached(SystemClock().now_ms(), 0)
    assert checkpoints(CHECKPOINT_COMMITS) == 1
    assert store.positions_of([("a", 0)]) == (1, {("a", 0): At(0, 2 * CHECKPOINT_COMMITS)})


def test_a_brokers_store_is_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    Store.open(uri).commit([], 0, 5)
    with pytest.raises(InvalidArgumentError, match="is a broker's"):
        RelayStore.open_relay(uri)
    assert RelayStore.open_relay(uri, shard=1).positions_of([("a", 0)]) == (0, {})


@pytest.mark.parametrize(
    ("offset", "kept"), [('{"t": 9, "v": 3}', True), ('{"t": 9, "v": 4}', False), ("no JSON", False)]
)
def test_a_checkpoint_of_another_store_is_discarded(tmp_path: Path, offset: str, kept: bool) -> None:
    offsets = tmp_path / "deliver" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text(f"v1\n{{}}\n{offset}")
    discard_unless(tmp_path / "deliver", lambda end, _: end["v"] <= 3)
    assert offsets.exists() == kept
