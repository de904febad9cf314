"""Keys and ids: what becomes of a message whose name is in use."""

from __future__ import annotations

import errno
import itertools
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crash.tools import World
from tests.examples import examples

from tarry.api.outcome import Outcome
from tarry.base import descriptors
from tarry.base.errors import ClosedError, DiskFullError, InvalidArgumentError, InvalidMessageError, KeyExistsError
from tarry.broker.commands.register_keys import RegisterKeys
from tarry.broker.commands.schedule_named import ScheduleNamed
from tarry.intake import NO_ROWS, Submission
from tarry.log.files import OsFiles
from tarry.message.admission import MessageLimits, admit, key_policies
from tarry.message.bulk import SEQ_MIN
from tarry.message.schema import SCHEMA, UNNUMBERED
from tarry.names import Registry, database, digest_of_id, name_of_key
from tarry.names.encoding import ID, MARK, META, name_of_id
from tarry.testing import TestBroker, open_broker


def bodies(broker: TestBroker, topic: str = "t") -> list[bytes]:
    batch = broker.receive(topic, "g", max_messages=10_000)
    broker.ack(topic, "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
    return batch["body"].to_pylist()


def batch(**columns: Any) -> pa.RecordBatch:
    rows = len(next(iter(columns.values())))
    given = {"topic": ["t"] * rows, "body": [str(i).encode() for i in range(rows)], "delay_ms": [1000] * rows}
    return pa.record_batch({**given, **columns})


# -- keys ------------------------------------------------------------------------------------------------------------


def test_a_debounce_delivers_the_last_alone(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        outcomes = []
        for number in range(20):
            outcomes.append(broker.schedule("t", f"{number}", delay=5, key="k").outcome)
            broker.advance(4.9)
        assert outcomes == ["scheduled", *["replaced"] * 19]
        assert bodies(broker) == []
        broker.advance(0.1)
        assert bodies(broker) == [b"19"]
        assert broker.schedule("t", "again", delay=1, key="k").outcome == "scheduled", "delivered: the key is free"


def test_keep_and_refuse(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        first = broker.schedule("t", "first", delay=5, key="k", id="i")
        kept = broker.schedule("t", "second", delay=1, key="k", on_key="keep")
        assert kept.outcome == "kept"
        assert (kept.seq, kept.due_ms, kept.handle) == (first.seq, first.due_ms, first.handle)
        with pytest.raises(KeyExistsError, match="row 0: key 'k' is pending in its topic; allowed"):
            broker.schedule("t", "third", delay=1, key="k", on_key="refuse")
        assert broker.schedule("u", "other topic", delay=1, key="k", on_key="refuse").outcome == "scheduled"
        assert broker.cancel_key("t", "k") is Outcome.DONE
        assert broker.schedule("t", "fourth", delay=1, key="k", on_key="refuse").outcome == "scheduled"
        broker.advance(10)
        assert bodies(broker) == [b"fourth"]
        with pytest.raises(InvalidMessageError, match="on_key is 'sometimes'; allowed: replace, keep, refuse"):
            broker.schedule("t", "x", key="k", on_key="sometimes")


def test_a_batch_decides_row_by_row(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        old = broker.schedule("t", "old", delay=1, key="b")
        accepted = broker.schedule_batch(
            batch(
                key=["a", "a", None, "b", "a", "b", "c", "c"],
                on_key=[None, "replace", None, "keep", "keep", "replace", None, None],
            )
        )
        receipts = accepted.receipts([None] * 8)
        words = [r.outcome for r in receipts]
        assert words == ["scheduled", "replaced", "scheduled", "kept", "kept", "replaced", "scheduled", "replaced"]
        assert receipts[3].handle == old.handle
        assert receipts[4].seq == receipts[1].seq
        assert [broker.find_key("t", k).seq for k in "abc"] == [receipts[i].seq for i in (1, 5, 7)]
        outcomes = broker.cancel_many([r.handle for r in receipts])
        done, cancelled = Outcome.DONE, Outcome.CANCELLED
        # The first of "a" and of "c" were replaced; kept ones name another message, which comes again further on.
        assert outcomes == [cancelled, done, done, cancelled, cancelled, done, cancelled, done]
        broker.advance(5)
        assert bodies(broker) == []


def test_a_refused_row_refuses_the_batch_and_changes_nothing(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("t", "old", delay=1, key="a")
        broker.schedule("t", "old", delay=1, key="b")
        with pytest.raises(KeyExistsError) as refused:
            broker.schedule_batch(
                batch(key=["a", "new", "b"], on_key=["replace", "replace", "refuse"], id=["x", "y", "z"])
            )
        assert refused.value.row == 2
        assert broker.find_key("t", "new") is None
        # Nor are their ids known: the rows were not accepted, and may be sent again.
        again = broker.schedule_batch(batch(key=["a", "new"], id=["x", "y"])).receipts(["x", "y"])
        assert [r.outcome for r in again] == ["replaced", "scheduled"]
        broker.advance(2)
        assert sorted(bodies(broker)) == [b"0", b"1", b"old"]


def test_find_and_cancel_and_move_by_key(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        assert broker.find_key("t", "k") is None
        assert broker.cancel_key("t", "k") is Outcome.UNKNOWN
        assert broker.reschedule_key("t", "k", delay=1).outcome is Outcome.UNKNOWN
        first = broker.schedule("t", "x", delay=50, key="k", id="mine")
        assert broker.find_key("t", "k") == first
        assert broker.find_key("t", "k").id == "mine"
        moved = broker.reschedule_key("t", "k", delay=1)
        assert moved.outcome is Outcome.DONE
        assert broker.find_key("t", "k") == moved.receipt
        assert broker.cancel_keys("t", ["k", "none"]) == [Outcome.DONE, Outcome.UNKNOWN]
        assert broker.cancel_key("t", "k") is Outcome.CANCELLED
        assert broker.find_key("t", "k") is None
        broker.schedule("t", "y", delay=0, key="k")
        broker.advance(0)
        assert broker.cancel_key("t", "k") is Outcome.DELIVERED
        for key, allowed in (("", "a text of 1 to 255 bytes"), ("x" * 256, "a text of 1 to 255 bytes"), (7, "texts")):
            with pytest.raises(InvalidArgumentError, match=f"allowed: {allowed}"):
                broker.cancel_key("t", key)  # type: ignore[arg-type]


def test_keys_are_forgotten_when_their_messages_are(tmp_path: Path) -> None:
    with open_broker(tmp_path, retention_ms=60_000) as broker:
        broker.schedule_batch(batch(key=[f"k{i}" for i in range(100)], id=[f"i{i}" for i in range(100)]))
        broker.schedule("t", "far", delay="1d", key="far")
        registry = broker.components.registry
        assert len([e for e in registry.get([name_of_key("t", f"k{i}") for i in range(100)]) if e]) == 100
        broker.advance(700)
        for _ in range(3):
            broker.advance(300)
        assert not any(registry.get([name_of_key("t", f"k{i}") for i in range(100)]))
        assert registry._database.keys_between(ID, ID + b"\xff", 1) == []  # noqa: SLF001 - what a reader sees in the middle of a step
        assert broker.find_key("t", "far") is not None


# -- ids -------------------------------------------------------------------------------------------------------------


def test_a_second_send_gets_the_first_answer(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        clock = broker.clock
        first = broker.schedule("t", "x", delay=5, id="a")
        again = broker.schedule("t", "y", delay=9, id="a")
        assert (again.outcome, again.handle, again.due_ms) == ("duplicate", first.handle, first.due_ms)
        assert broker.schedule("u", "x", delay=5, id="a").outcome == "scheduled", "ids are a topic's"
        both = broker.schedule_batch(batch(id=["b", None, "b", "a"])).receipts(["b", None, "b", "a"])
        assert [r.outcome for r in both] == ["scheduled", "scheduled", "duplicate", "duplicate"]
        assert both[2].handle == both[0].handle
        assert both[3].handle == first.handle
    with open_broker(tmp_path, clock=clock) as broker:
        again = broker.schedule("t", "z", id="a")
        assert (again.outcome, again.handle) == ("duplicate", first.handle)
        broker.advance(20)
        assert sorted(bodies(broker)) == [b"0", b"1", b"x"]
        assert broker.schedule("t", "after its delivery", id="a").outcome == "duplicate"
        broker.advance("10m")
        assert broker.schedule("t", "after the window", id="a").outcome == "scheduled"


@pytest.mark.parametrize("back_ms", [1, 5 * 60_000, 9 * 60_000])
def test_a_clock_that_is_set_back_forgets_no_id(tmp_path: Path, back_ms: int) -> None:
    with open_broker(tmp_path) as broker:
        clock = broker.clock
        first = broker.schedule("t", "x", delay="1h", id="a")
        clock.advance_ms(-back_ms)
        assert broker.schedule("t", "x", id="a").handle == first.handle
    with open_broker(tmp_path, clock=clock) as broker:
        assert broker.schedule("t", "x", id="a").handle == first.handle


def test_the_window_is_a_setting(tmp_path: Path) -> None:
    with open_broker(tmp_path, dedupe_ms=0) as broker:
        assert [broker.schedule("t", "x", id="a").outcome for _ in range(2)] == ["scheduled"] * 2
        assert not broker.components.registry.exists, "what is not used costs nothing"


def test_a_send_that_was_refused_may_be_sent_again(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.open()
    w.files.full = True
    for name in ({"id": "a"}, {"key": "k"}):
        with pytest.raises(DiskFullError):
            w.b.schedule("t", "x", delay=1, **name)
    w.files.full = False
    assert w.b.schedule("t", "x", delay=1, id="a").outcome == "scheduled"
    assert w.b.schedule("t", "y", delay=1, key="k").outcome == "scheduled"
    assert w.b.schedule("t", "z", delay=1, key="k").outcome == "replaced"
    w.files.full = True
    with pytest.raises(DiskFullError):
        w.b.schedule("t", "z", delay=1, key="k")
    w.files.full = False
    w.b.advance(2)
    assert sorted(bodies(w.b)) == [b"x", b"z"], "what could not be replaced is delivered"
    w.b.close()


def test_a_copy_does_not_take_the_names_of_its_message(tmp_path: Path) -> None:
    """Tried in vain, buried, respawned; meanwhile its key was given to another."""
    for restarts in (False, True):
        with open_broker(tmp_path / str(restarts), lease_ms=1000) as broker:
            clock = broker.clock
            first = broker.schedule("t", "x", key="k", id="i", tries=1)
            broker.step()
            broker.receive("t", "g")
            broker.advance(2)
            assert broker.receive("t", "g").num_rows == 0
            second = broker.schedule("t", "y", delay="1h", key="k")
            broker.step()
            assert broker.dead_letters("t", "g").num_rows == 1
            assert broker.respawn("t", "g") == 1
            broker.schedule("t", "z", delay="1h", key="other")
            if not restarts:
                assert broker.find_key("t", "k") == second
                assert broker.schedule("t", "x", id="i").handle == first.handle
        with open_broker(tmp_path / str(restarts), clock=clock) as broker:
            assert broker.find_key("t", "k") == second
            assert broker.schedule("t", "x", id="i").handle == first.handle


# -- the registry ----------------------------------------------------------------------------------------------------

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["t", "u"]),
        st.integers(-5, 5) | st.integers(-(1 << 62), 1 << 62),
        st.none() | st.sampled_from(["a", "b", "\0", "é" * 100]),
        st.none() | st.text(max_size=3),
        st.booleans(),
    ),
    max_size=20,
)


def registry(path: Path) -> Registry:
    return Registry(OsFiles(), path, history_ms=0, dedupe_ms=10)


def as_rows(rows: list[Any], first: int) -> pa.RecordBatch:
    found = []
    for seq, (topic, due, key, id, cancels) in enumerate(rows, first):
        row = {"seq": seq, "topic": topic, "due_ms": due, "born_ms": 0, "kind": int(cancels), "body": b""}
        row |= {"body": max(0, seq - 1).to_bytes(8, "little")} if cancels else {"key": key, "id": id}
        found.append(row)
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)


@settings(max_examples=examples(60))
@given(ROWS, st.lists(st.integers(0, 20), max_size=3))
def test_applying_again_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], cuts: list[int]
) -> None:
    """After a crash, what came after some point is applied once more."""
    base = tmp_path_factory.mktemp("registry")
    whole = as_rows(rows, 0)
    once, twice, backwards = (registry(base / name) for name in ("once", "twice", "backwards"))
    once.apply(whole)
    for cut in [*cuts, 0]:
        twice.apply(whole)
        twice.close()
        assert twice.recover() == any(r[2] is not None or r[3] is not None or r[4] for r in rows)
        twice.apply(whole.slice(cut))
    for row in reversed(range(len(rows))):
        backwards.apply(whole.slice(row, 1), in_order=False)
    wanted = [name_of_key(t, k) for t, k in itertools.product("tu", ["a", "b", "\0", "é" * 100])]
    wanted += [name_of_id(digest_of_id(r[0], r[3]), 0, 10) for r in rows if r[3] is not None]
    assert once.get(wanted) == twice.get(wanted) == backwards.get(wanted)
    last: dict[bytes, int] = {}
    for seq, (topic, _, key, _, cancels) in enumerate(rows):
        if key is not None and not cancels:
            last[name_of_key(topic, key)] = seq
    assert {n: e.seq for n, e in zip(wanted, once.get(wanted), strict=True) if e and n in last} == last
    due, seq = whole["due_ms"].to_numpy(), whole["seq"].to_numpy()
    gone = {(r[1], max(0, s - 1)) for s, r in enumerate(rows) if r[4]}
    expected = [(int(d), int(s)) in gone for d, s in zip(due, seq, strict=True)]
    assert once.cancelled_mask(due, seq).tolist() == twice.cancelled_mask(due, seq).tolist() == expected
    for each in (once, twice, backwards):
        each.close()


PRODUCED = st.lists(
    st.lists(
        st.lists(
            st.fixed_dictionaries(
                {
                    "topic": st.sampled_from(["t", "u"]),
                    "id": st.none() | st.sampled_from(["1", "2", "é" * 40]) | st.text(min_size=1, max_size=3),
                    "key": st.none() | st.none() | st.sampled_from(["a", "b"]),
                    "body": st.just(b""),
                    "delay_ms": st.integers(1, 50),
                    "properties": st.sampled_from([None, {"colour": "red"}]),
                    "repeat": st.none() | st.none() | st.just('{"every": 3600000}'),
                    "on_key": st.sampled_from(["replace", "keep", "refuse"]),
                }
            ),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=4,
)
"""Rounds of the intake's writer: submissions of rows."""


@settings(max_examples=examples(30))
@given(PRODUCED, st.sampled_from([20, 30]))
def test_what_was_decided_is_registered_as_its_rows_are(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[Any], dedupe_ms: int
) -> None:
    """After a crash the rows of the intake are all there is to know names by; ids of this age are not forgotten."""
    base = tmp_path_factory.mktemp("decided")
    with open_broker(base / "broker", dedupe_ms=dedupe_ms) as broker:
        for submissions in rounds:
            commit_together(broker, submissions)
            broker.advance(0.004)
        applied = Registry(OsFiles(), base / "applied", history_ms=0, dedupe_ms=dedupe_ms)
        intake = broker.components.intake
        for rows in intake.read(intake.first_seq, intake.published_seq):
            applied.apply(rows)
        assert entries_of(broker.components.registry) == entries_of(applied)
        applied.close()


def commit_together(broker: TestBroker, submissions: list[list[dict[str, Any]]]) -> None:
    """One commit of several producers' rows, whatever becomes of each; of one with a copy, which has no names."""
    parts, answers, found = broker.components, list[Any](), list[Submission]()
    for rows in submissions:
        data = pa.RecordBatch.from_pylist(
            rows, pa.schema([UNNUMBERED.field(n) if n in UNNUMBERED.names else (n, OTHER[n]) for n in rows[0]])
        )
        batch = admit(data, broker.clock.now_ms(), MessageLimits(1 << 40, 1 << 20, 1 << 20))
        if not any(row["repeat"] or row["key"] for row in rows):
            batch = as_copies(batch) if rows[0]["delay_ms"] == 1 else batch
        command = ScheduleNamed(batch, key_policies(data), answers.append, secret=b"s", dedupe=True)
        found.append(Submission(batch, answers.append, command))
    parts.writer.commit(found)
    assert len(answers) == len(found)


def test_a_key_of_a_bulk_job_that_is_scheduled_again_in_the_same_commit_stays_with_the_later(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        parts, answers = broker.components, list[Any]()
        brought = pa.record_batch(
            {"seq": [SEQ_MIN], "topic": ["t"], "due_ms": [broker.clock.now_ms() + 50], "key": ["k"], "born_ms": [1]}
        )
        data = batch(key=["k"])
        row = admit(data, broker.clock.now_ms(), MessageLimits(1 << 40, 1 << 20, 1 << 20))
        first = RegisterKeys(brought, parts.registry, answers.append)
        second = ScheduleNamed(row, key_policies(data), answers.append, secret=b"s", dedupe=True)
        parts.writer.commit([Submission(NO_ROWS, answers.append, first), Submission(row, answers.append, second)])
        assert [answer if answer is None else answer.outcomes for answer in answers] == [None, ["replaced"]]
        [entry] = parts.registry.get([name_of_key("t", "k")])
        assert entry is not None
        assert entry.seq < SEQ_MIN


OTHER = {"delay_ms": pa.int64(), "on_key": pa.string()}


def as_copies(batch: pa.RecordBatch) -> pa.RecordBatch:
    copied = pa.array([[("tarry.only", "g")]] * batch.num_rows, SCHEMA.field("properties").type)
    return batch.set_column(batch.schema.get_field_index("properties"), UNNUMBERED.field("properties"), copied)


def entries_of(registry: Registry) -> dict[bytes, bytes | None]:
    """All that a registry has, but for what says of itself."""
    database = registry._database  # noqa: SLF001 - to compare what no question asks for, too
    keys = database.keys_between(b"", b"\xff", 10_000)
    keys = [key for key in keys if key[:1] not in (META, MARK)]
    return dict(zip(keys, database.get(keys), strict=True))


def test_many_rows_are_judged_as_few_are(tmp_path: Path) -> None:
    rng = random.Random(3)
    r = registry(tmp_path / "r")
    due = [rng.randint(-1000, 1000) for _ in range(3000)]
    gone = rng.sample(range(3000), 700)
    rows = [
        {"seq": 5000 + i, "topic": "t", "due_ms": due[s], "born_ms": 0, "kind": 1, "body": s.to_bytes(8, "little")}
        for i, s in enumerate(gone)
    ]
    r.apply(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    column = pa.array(due, pa.int64()).to_numpy()
    seq = pa.array(range(3000), pa.int64()).to_numpy()
    expected = [s in set(gone) for s in range(3000)]
    assert r.cancelled_mask(column, seq).tolist() == expected
    assert [
        bool(x) for i in range(0, 3000, 100) for x in r.cancelled_mask(column[i : i + 100], seq[i : i + 100])
    ] == expected
    r.close()


def test_a_reader_that_meets_the_end_finds_no_damage(tmp_path: Path) -> None:
    r = registry(tmp_path / "r")
    r.apply(as_rows([("t", 1, "a", None, False)], 0))
    db, r_get = r._database._db, r.get  # noqa: SLF001 - what a reader sees in the middle of a step
    r.close()
    r._database._db = db  # noqa: SLF001 - what a reader sees in the middle of a step
    with pytest.raises(ClosedError):
        r_get([name_of_key("t", "a")])
    r._database._db = None  # noqa: SLF001 - what a reader sees in the middle of a step
    assert r.recover()
    assert r.get([name_of_key("t", "a")])[0] is not None
    r.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_full_disk_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """It is neither thrown away nor called damaged: nothing is lost of it."""
    monkeypatch.setattr(descriptors, "WAIT_S_MAX", 0.0)

    class Full:
        def __init__(self, *_: object) -> None:
            raise RuntimeError(f"IO error: {os.strerror(number)}: While appending to file: 000004.log")

        get = write = __init__

    r = registry(tmp_path / "r")
    r.apply(as_rows([("t", 1, "a", None, False)], 0))
    with monkeypatch.context() as patch:
        patch.setattr(r._database, "_db", Full.__new__(Full))  # noqa: SLF001 - RocksDB's own error, without filling a disk
        with pytest.raises(OSError, match=os.strerror(number)):
            r.get([name_of_key("t", "a")])
        with pytest.raises(OSError, match=os.strerror(number)):
            r.apply(as_rows([("t", 1, "b", None, False)], 1))
    r.close()
    with monkeypatch.context() as patch:
        patch.setattr(database, "Rdict", Full)
        with pytest.raises(OSError, match=os.strerror(number)):
            r.recover()
    assert r.recover()
    assert r.get([name_of_key("t", "a")])[0] is not None
    r.close()
