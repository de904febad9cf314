"""Listing what is pending: against a model, while messages move through wheel, intake, store and out."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crash.tools import World
from tests.examples import examples

from tarry.api.outcome import Outcome
from tarry.api.views import Page
from tarry.base.errors import InvalidArgumentError, InvalidMessageError
from tarry.base.types import Key
from tarry.broker import Broker
from tarry.broker.queries import listing, sources
from tarry.broker.queries.cursor import Cursor, decode, encode
from tarry.message import handle
from tarry.message.schema import SCHEMA
from tarry.store import stage as stage_function
from tarry.testing import TestBroker, open_broker

HOUR_MS = 3_600_000
SMALL_WHEEL = {"horizon_ms": 2000, "wheel_bytes_max": 20_000}


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of four rows, and files of a few."""
    import importlib

    module = importlib.import_module(stage_function.__module__)
    monkeypatch.setattr(module, "GROUP_ROWS_MAX", 4)
    monkeypatch.setattr(module, "FILE_BYTES_MIN", 1)
    monkeypatch.setattr(sources, "INTAKE_ROWS", 4)


def pages(broker: Broker, **asked: Any) -> Iterator[Page]:
    cursor = None
    while True:
        page = broker.list_pending(cursor=cursor, **asked)
        assert page.rows.schema == SCHEMA
        assert page.rows.num_rows <= asked.get("limit", 100)
        yield page
        cursor = page.cursor
        if cursor is None:
            return


def ids(broker: Broker, **asked: Any) -> list[str]:
    return [i for page in pages(broker, **asked) for i in page.rows["id"].to_pylist()]


def spread(broker: World) -> list[str]:
    """Messages in the store, the intake and the wheel, many of them due in the same instants; ids in due order."""
    w = broker
    w.schedule("a", [500 * k for k in range(1, 30)] + [HOUR_MS] * 10, body=100)
    w.schedule("b", [700 * k for k in range(1, 30)] + [HOUR_MS] * 10)
    w.pipeline_commits()
    w.b.step()
    w.schedule("a", [1500 * k for k in range(1, 20)] + [HOUR_MS] * 10)
    return sorted(w.due_ms, key=lambda i: (w.due_ms[i], int(i[1:])))


@pytest.fixture
def w(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, settings=SMALL_WHEEL)
    world.open()
    yield world
    world.b.close()


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("patience_s", [0.0, 10.0])
def test_everything_once_and_in_order_wherever_it_is(
    w: World, limit: int, patience_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "FIND_S", patience_s)
    monkeypatch.setattr(listing, "READ_S", patience_s)
    expected = spread(w)
    assert ids(w.b, limit=limit) == expected
    assert ids(w.b, limit=limit, topic="b") == [i for i in expected if i[0] == "b"]
    middle = w.due_ms[expected[40]]
    assert ids(w.b, limit=limit, after_ms=middle) == [i for i in expected if w.due_ms[i] >= middle]
    assert ids(w.b, limit=limit, until_ms=middle) == [i for i in expected if w.due_ms[i] < middle]
    assert ids(w.b, limit=limit, topic="nothing") == []
    for one in (expected[0], expected[50], expected[-1]):
        assert ids(w.b, limit=limit, id=one) == [one]
    assert ids(w.b, limit=limit, id="nobody") == []


def test_rows_are_whole(tmp_path: Path) -> None:
    with open_broker(tmp_path, horizon_ms=2000) as broker:
        for delay in (1, 3600, 7200):
            broker.schedule(
                "a",
                b"body",
                delay=delay,
                key=f"k{delay}",
                tag="t",
                properties={"p": "1"},
                ttl="1d",
                tries=3,
                id=f"i{delay}",
            )
        broker.step()
        rows = broker.list_pending().rows
        assert rows["body"].to_pylist() == [b"body"] * 3
        assert rows["properties"].to_pylist() == [[("p", "1")]] * 3
        assert (rows["key"].to_pylist(), rows["tag"].to_pylist()) == (["k1", "k3600", "k7200"], ["t"] * 3)
        bare = broker.list_pending(bodies=False).rows
        assert bare["body"].to_pylist() == [b""] * 3
        body = SCHEMA.get_field_index("body")
        assert bare.remove_column(body).equals(rows.remove_column(body))


def test_by_key_and_tag_all_that_is_given_must_hold(w: World) -> None:
    def schedule(n: int, delay: int) -> None:
        # A topic each: a key names one pending message of its topic.
        names = {"id": f"{n}-{delay}", "key": f"k{n % 3}", "tag": [None, "x", "y"][n % 3]}
        w.b.schedule(f"t{n}.{delay}", b"", delay=delay, **names)

    for n in range(12):
        for delay in (1, 3600):
            schedule(n, delay)
    w.pipeline_commits()
    w.b.step()
    for n in range(12, 15):
        schedule(n, 3600)
    found = ids(w.b, key="k1", limit=2)
    assert found == [f"{n}-{d}" for d in (1, 3600) for n in (1, 4, 7, 10, 13) if (n, d) != (13, 1)]
    assert ids(w.b, tag="x") == found
    assert ids(w.b, tag="x", key="k2") == []
    assert ids(w.b, tag="y", id="5-3600") == ["5-3600"]


def test_the_message_of_a_key_is_found_without_a_search(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(60):
        w.b.schedule("a", b"%d" % n, delay=60 + n, key=f"k{n % 50}", id=f"i{n}")
    w.pipeline_commits()
    w.b.step()
    looked = count_groups(monkeypatch)
    for n in range(50):
        looked.clear()
        expected = n + 50 if n < 10 else n
        page = w.b.list_pending(topic="a", key=f"k{n}")
        assert (page.rows["id"].to_pylist(), page.cursor) == ([f"i{expected}"], None)
        assert len(looked) <= 2
    assert w.b.list_pending(topic="a", key="nobody").cursor is None
    assert w.b.list_pending(topic="b", key="k1").rows.num_rows == 0
    assert w.b.list_pending(topic="a", key="k1", tag="x").rows.num_rows == 0
    w.b.cancel_key("a", "k1")
    assert w.b.list_pending(topic="a", key="k1").rows.num_rows == 0
    w.b.advance(75)
    assert w.b.list_pending(topic="a", key="k12").rows.num_rows == 0


def count_groups(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Row groups that are read, from now on."""
    looked: list[object] = []
    read_group = sources.read_places.__globals__["read_group"]

    def counting(*args: Any) -> Any:
        looked.append(args)
        return read_group(*args)

    monkeypatch.setitem(sources.read_places.__globals__, "read_group", counting)
    return looked


def test_an_id_that_the_broker_made(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    receipts = [w.b.schedule("a", b"%d" % n, delay=[1, 3600][n % 2]) for n in range(20)]
    w.pipeline_commits()
    w.b.step()
    receipts += [w.b.schedule("a", b"%d" % n, delay=3600) for n in range(20, 25)]
    looked = count_groups(monkeypatch)
    for n, receipt in enumerate(receipts):
        looked.clear()
        page = w.b.list_pending(id=receipt.id)
        assert (page.rows["body"].to_pylist(), page.cursor) == ([b"%d" % n], None)
        assert len(looked) <= 4, "row groups that cannot hold that seq were read"
        assert w.b.list_pending(id=receipt.id, topic="b").rows.num_rows == 0
        assert w.b.list_pending(id=receipt.id, until_ms=receipt.due_ms).rows.num_rows == 0
    w.b.advance(2)
    assert ids(w.b, id=receipts[0].id) == [], "it was delivered"


def test_an_id_that_only_looks_like_the_brokers(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in a second step, which the cursor remembers."""
    monkeypatch.setattr(listing, "FIND_S", 0.0)
    mine = [f"{n:016x}" for n in (1, 5, 1 << 60)]
    w.b.schedule("a", b"", delay=1, id="other")
    for n, id in enumerate(mine):
        w.b.schedule("a", b"%d" % n, delay=3600 + n, id=id)
    w.pipeline_commits()
    w.b.step()
    w.b.schedule("a", b"", delay=4000)
    for id in mine:
        assert ids(w.b, id=id, limit=1) == [id]


def test_cursors_mean_the_same_after_a_restart(w: World) -> None:
    expected = spread(w)
    first = w.b.list_pending(limit=33)
    w.reopen()
    w.b.step()
    second = w.b.list_pending(limit=1000, cursor=first.cursor)
    assert first.rows["id"].to_pylist() + second.rows["id"].to_pylist() == expected


def test_what_a_restart_has_yet_to_find_out_about_is_not_pending(w: World) -> None:
    """Delivered since the last checkpoint: still in the intake, and known from the ready log alone."""
    w.schedule("a", [1000, 1001, 5000, 70_000])
    w.clock.advance_ms(1001)
    parts = w.b.components
    parts.loader.step()
    assert parts.dispatcher.step()
    parts.ready.sync(parts.ready.ticket())
    w.crashed(None)
    w.open()
    assert ids(w.b) == ["a2", "a3"]
    assert [(t.pending, t.next_due_ms) for t in w.b.pending()] == [(2, w.due_ms["a2"])]
    w.b.step()
    assert ids(w.b) == ["a2", "a3"]


def test_a_page_has_no_more_bytes_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE_BYTES_MAX", 5000)
    monkeypatch.setattr(sources, "INTAKE_UNIT_ROWS", 2)
    with open_broker(tmp_path) as broker:
        for n in range(20):
            broker.schedule("a", b"x" * 2000, delay=3600, id=f"{n:02}")
        found = list(pages(broker))
        assert [i for p in found for i in p.rows["id"].to_pylist()] == [f"{n:02}" for n in range(20)]
        assert max(p.rows.num_rows for p in found) == 4
        assert len(list(pages(broker, bodies=False))) == 1


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"topic": "no topic"}, "topic 'no topic'"),
        ({"key": 7}, "key is 7; allowed: a text"),
        ({"id": b"x"}, "id is b'x'"),
        ({"tag": ["x"]}, "tag is"),
        ({"after_ms": "now"}, "after_ms is 'now'"),
        ({"until_ms": 1 << 63}, "until_ms is 9223372036854775808"),
        ({"after_ms": True}, "after_ms is True"),
        ({"after_ms": 2, "until_ms": 1}, "after_ms is 2, until_ms 1"),
        ({"limit": 0}, "limit is 0; allowed: 1 to 1000"),
        ({"limit": 1001}, "limit is 1001"),
        ({"limit": True}, "limit is True"),
        ({"cursor": "x"}, "not a cursor"),
        ({"cursor": 5}, "not a cursor"),
        ({"cursor": "é" * 30}, "not a cursor"),
    ],
)
def test_what_is_not_allowed_is_refused(asked: dict[str, Any], text: str, tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker, pytest.raises(InvalidArgumentError, match="allowed") as refusal:
        broker.list_pending(**asked)
    assert text in str(refusal.value)
    assert isinstance(refusal.value, InvalidMessageError) == ("topic" in asked)


@given(st.integers(0, 1), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_cursors_come_back_as_they_went(step: int, due_ms: int, seq: int) -> None:
    text = encode(Cursor(step, Key(due_ms, seq)))
    assert decode(text) == Cursor(step, Key(due_ms, seq))
    for at in range(len(text)):
        damaged = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        with pytest.raises(InvalidArgumentError):
            decode(damaged)
    with pytest.raises(InvalidArgumentError):
        decode(text[:-1])


# -- cancelled messages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settled", [False, True])
def test_what_is_cancelled_is_left_out_wherever_it_is(w: World, settled: bool) -> None:
    receipts = [w.b.schedule("a", b"", delay=delay) for delay in (1, 1, 1.5, 1.5, 3600, 3600, 7200, 7200)]
    w.pipeline_commits()
    w.b.step()
    receipts += [w.b.schedule("a", b"", delay=delay) for delay in (1, 1, 3600, 3600)]
    assert {o.value for o in w.b.cancel_many([r.handle for r in receipts[::2]])} == {"done"}
    if settled:
        w.pipeline_commits()
        w.b.step()
        w.reopen()
    left = sorted(receipts[1::2], key=lambda r: (r.due_ms, r.seq))
    for limit in (1, 100):
        rows = [p.rows for p in pages(w.b, limit=limit)]
        assert [s for r in rows for s in r["seq"].to_pylist()] == [r.seq for r in left]
    for n, receipt in enumerate(receipts):
        assert w.b.list_pending(id=receipt.id).rows.num_rows == n % 2
    assert [(t.pending, t.next_due_ms) for t in w.b.pending()] == [(6, left[0].due_ms)]
    assert w.b.forecast(unit="minute", until_ms=w.clock.now_ms() + 9_000_000).rows == 6


def test_thousands_that_are_cancelled_in_front_of_one_that_is_not(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "INTAKE_ROWS", 64)
    batch = pa.record_batch({"topic": ["a"] * 3000, "delay_ms": [HOUR_MS] * 3000, "body": [b""] * 3000})
    gone = w.b.schedule_batch(batch)
    last = w.b.schedule("a", b"last", delay=3601)
    w.b.cancel_many(gone.handles())
    for _ in range(2):
        assert [r for p in pages(w.b, limit=5) for r in p.rows["body"].to_pylist()] == [b"last"]
        assert [(t.pending, t.next_due_ms) for t in w.b.pending()] == [(1, last.due_ms)]
        w.pipeline_commits()
        w.b.step()


def test_rescheduled_and_replaced_messages_are_where_they_are_now(w: World) -> None:
    moved = w.b.schedule("a", b"moved", delay=1, id="m")
    w.b.schedule("a", b"old", delay=3600, key="k")
    w.b.step()
    assert w.b.reschedule(moved.handle, delay=7200).receipt is not None
    w.b.schedule("a", b"new", delay=1, key="k")
    assert [b for p in pages(w.b) for b in p.rows["body"].to_pylist()] == [b"new", b"moved"]
    assert w.b.list_pending(key="k").rows["body"].to_pylist() == [b"new"]
    assert w.b.list_pending(id="m").rows["body"].to_pylist() == [b"moved"]


def test_of_a_series_the_next_occurrence_is_pending(w: World) -> None:
    w.b.schedule("a", b"tick", delay=1, repeat={"every": "10m"})
    for _ in range(3):
        [due] = w.b.list_pending().rows["due_ms"].to_pylist()
        w.pipeline_commits()
        w.b.advance_to(due)
    assert w.b.list_pending().rows["due_ms"].to_pylist() == [due + 600_000]


# -- against a model -------------------------------------------------------------------------------------------------

MOVES = st.sampled_from(["schedule", "late", "cancel", "commit", "advance", "leap", "reopen", "seal"])


@pytest.mark.rest
@settings(max_examples=examples(80))
@given(
    seed=st.integers(0, 1 << 16),
    limit=st.sampled_from([1, 2, 5, 40]),
    patience_s=st.sampled_from([0.0, 10.0]),
    before=st.lists(MOVES, max_size=12),
    between=st.lists(st.lists(MOVES, max_size=3), max_size=30),
)
def test_pages_hold_what_was_pending_all_the_while_once(
    seed: int, limit: int, patience_s: float, before: list[str], between: list[list[str]]
) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "FIND_S", patience_s)
        patch.setattr(listing, "READ_S", patience_s)
        w = World(Path(directory), settings=SMALL_WHEEL)
        w.open()
        rng = random.Random(seed)
        for move in ["schedule", *before]:
            do(w, move, rng)
        at_first = left(w)
        seen: list[str] = []
        cursor, steps = None, iter(between)
        while True:
            page = w.b.list_pending(limit=limit, cursor=cursor)
            here = page.rows["id"].to_pylist()
            assert [w.due_ms[i] for i in here] == page.rows["due_ms"].to_pylist()
            assert set(here) <= left(w), "what is not pending"
            seen += here
            cursor = page.cursor
            if cursor is None:
                break
            for move in next(steps, []):
                do(w, move, rng)
        assert len(set(seen)) == len(seen), "twice"
        assert at_first & left(w) <= set(seen), "left out"
        keys = [(w.due_ms[i], int(i[1:])) for i in seen]
        assert keys == sorted(keys)
        w.b.close()


def left(w: World) -> set[str]:
    """What has not become due: the model. What is cancelled is not in :attr:`World.accepted` any more."""
    return {i for i, due in w.due_ms.items() if due > w.clock.now_ms() and i in w.accepted}


def do(w: World, move: str, rng: random.Random) -> None:
    broker: TestBroker = w.b
    match move:
        case "schedule":
            delays = [rng.choice([1, 900, 1999, 2000, 5000, 70_000, HOUR_MS]) + rng.randint(0, 3) for _ in range(9)]
            w.schedule(rng.choice("ab"), delays, body=rng.choice([10, 900]))
        case "late":
            w.schedule("a", [rng.randint(1, 40)])
        case "cancel":
            some = sorted(left(w))
            for i in rng.sample(some, min(len(some), rng.choice([1, 6]))):
                # Without its handle, as a person would: by looking it up.
                [seq] = [s for p in pages(broker, id=i) for s in p.rows["seq"].to_pylist()]
                token = handle.sign(broker.components.secret, seq, 1)
                assert broker.cancel(handle.encode(seq, w.due_ms[i], seq, 1, token)) is Outcome.DONE
                w.accepted.discard(i)
        case "commit":
            w.pipeline_commits()
            broker.step()
        case "advance":
            broker.advance(rng.choice([0.001, 0.5, 1.2]))
        case "leap":
            broker.advance(rng.choice([5, 80]))
        case "reopen":
            w.reopen()
            if rng.random() < 0.5:
                w.b.step()
        case "seal":
            broker.step()
