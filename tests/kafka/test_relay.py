"""The relay against a real Kafka: what goes in by headers comes out when it is due, whole, once."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tarry.base.errors import InvalidArgumentError
from tarry_relay.clients import FencedError
from tarry_relay.headers import CANCEL, DELAY, DELAY_MS, DUE, DUE_MS, REASON, TOPIC
from tarry_relay.job import Relay
from tarry_relay.long_tasks import in_process
from tarry_relay.markers import Marker
from tarry_relay.table import RelayStore
from tarry_relay.writer import KafkaRecord, KafkaWriter
from tests.waiting import wait_until

from .conftest import World, now_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.rest]

START_S = 180.0
"""The first relay of a run waits for Spark's first Python processes, too, which may have little of a processor."""


def header(message: Any, name: str) -> bytes | None:
    return dict(message.headers() or []).get(name)


def test_all_ways_through(spark: SparkSession, world: World) -> None:
    """By each header, by a fixed delay, without any, to another topic; cancelled; and what cannot be scheduled."""
    fixed, other, dead = f"{world.name}-delay-3s", f"{world.name}-other", f"{world.name}-dead-letters"
    world.make(fixed, f"{fixed}-due", other)
    with world.relaying(spark) as relay:
        # What is due when it is read cannot be cancelled any more: so not before the relay reads.
        wait_until(partial(_reads, relay), START_S, relay.status.as_dict)
        before = now_ms()
        own = [("trace", b"\xff\x00"), ("trace", None), ("tenant", b"a")]
        world.send(b"plain", own, key=b"\xfe key", timestamp=before - 5)
        world.send(b"late", [(DUE_MS, b"%d" % (before - 60_000))], key=b"k")
        due = before + 6_000
        world.send(b"by due ms", [(DUE_MS, b"%d" % due), *own], key=b"\xfe key", timestamp=before - 7)
        world.send(b"by due", [(DUE, datetime.fromtimestamp(due / 1000, UTC).isoformat().encode())], key=b"k1")
        world.send(b"by delay ms", [(DELAY_MS, b"6000")], key=b"k2", timestamp=before)
        world.send(b"by delay", [(DELAY, b"6s")], key=b"k3", timestamp=before)
        world.send(None, [(DELAY, b"6s")], key=b"k4", timestamp=before)  # a tombstone of the target's
        world.send(b"elsewhere", [(DELAY, b"6s"), (TOPIC, other.encode())], key=b"k5", timestamp=before)
        world.send(b"cancelled", [(DELAY, b"20s")], key=b"k6", timestamp=before - 14_000)
        world.send(None, [(CANCEL, b"")], key=b"k6")
        world.send(b"after it", [(DELAY, b"20s")], key=b"k6", timestamp=before - 14_000)
        world.send(b"fixed", key=b"k", topic=fixed, timestamp=before)
        world.send(b"own delay", [(DELAY, b"6s")], key=b"k", topic=fixed, timestamp=before)
        bad = [[("tarry-dealy", b"1s")], [(DELAY, b"soon")], [(DUE, b"2030-01-01T00:00:00")], [(DELAY_MS, b"-1")]]
        bad += [[(DELAY, b"1s"), (DUE_MS, b"1")], [(DUE_MS, b"\xff")], [(DELAY, b"99999d")], [(CANCEL, b"k")]]
        bad += [[(DELAY, b"6s"), (TOPIC, b"no/topic")], [(DELAY, b"1s"), (TOPIC, b"not-there")]]
        for number, headers in enumerate(bad):
            world.send(b"bad %d" % number, headers, key=b"k7", timestamp=before - 2_000)
        world.flush()

        expected = {b"plain", b"late", b"by due ms", b"by due", b"by delay ms", b"by delay", None, b"after it"}
        got = world.received(lambda messages: len(messages) >= len(expected))
        assert sorted(m.value() or b"" for m in got) == sorted(v or b"" for v in expected)
        by_value = {m.value(): m for m in got}
        assert world.values(1, other) == [b"elsewhere"]
        assert sorted(v or b"" for v in world.values(2, f"{fixed}-due")) == [b"fixed", b"own delay"]
        dead_letters = world.received(lambda messages: len(messages) >= len(bad), dead)
        status = relay.status.as_dict()
    assert sorted(m.value() for m in dead_letters) == sorted(b"bad %d" % i for i in range(len(bad)))
    assert all(header(m, REASON) for m in dead_letters)
    reasons = {m.value(): header(m, REASON).decode() for m in dead_letters}  # type: ignore[union-attr]
    assert "'tarry-dealy' is unknown" in reasons[b"bad 0"]
    assert "does not exist" in reasons[b"bad 9"]
    for value in (b"plain", b"by due ms"):
        message = by_value[value]
        assert message.headers()[:3] == own
        assert message.key() == b"\xfe key"
        assert message.timestamp()[1] == before - (5 if value == b"plain" else 7)
        assert header(message, "tarry-source-topic") == world.orders.encode()
    assert header(by_value[b"by due ms"], "tarry-was-due-ms") == b"%d" % due
    assert header(by_value[b"plain"], "tarry-was-due-ms") is None
    assert status["lateness_ms"]["min"] >= 0
    assert status["counts"]["cancelled"] == 1
    assert {status[q]["error"] for q in ("schedule", "deliver")} == {None}


def many(world: World, rows: int, due_ms: int) -> set[bytes]:
    for i in range(rows):
        # Half of it is handed on at once, half goes through the store.
        headers = [(DUE_MS, b"%d" % (due_ms + i % 7))] if i % 2 else []
        world.send(b"%d" % i, headers, key=b"k%d" % (i % 50))
    world.flush()
    return {b"%d" % i for i in range(rows)}


def crash_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool, when: Any) -> list[int]:
    """Have a call fail once, before or after it was done, as if the process had died there."""
    real, crashed = getattr(owner, name), []

    def dies(self: Any, *given: Any, **more: Any) -> Any:
        if crashed or not when(self, *given):
            return real(self, *given, **more)
        crashed.append(1)
        if after:
            real(self, *given, **more)
        raise RuntimeError("the driver dies here")

    monkeypatch.setattr(owner, name, dies)
    return crashed


def _pause(monkeypatch: pytest.MonkeyPatch, pause_s: float) -> None:
    for module in ("job", "attempts"):
        monkeypatch.setattr(f"tarry_relay.{module}.PAUSE_S_MIN", pause_s)


def _is_of(query: str, _: Any, markers: Any) -> bool:
    return ("cuts" in next(iter(markers.values())).data) == (query == "schedule")


def _has_records(_: Any, files: Any, moved: Any, __: Any) -> bool:
    return any(begin is not None for begin, _ in moved.values())


def _restarts(relay: Relay) -> list[int]:
    now = relay.status.as_dict()
    return [now[query]["restarts"] for query in ("schedule", "deliver")]


def _reads(relay: Relay) -> bool:
    return bool(relay.status.as_dict()["schedule"]["batches"])


@pytest.mark.parametrize("after", [True, pytest.param(False, marks=pytest.mark.kafka_slow)])
def test_exactly_once_when_a_query_dies(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Each query dies before or after one shard has committed its transaction; the first also before the store's
    commit, when what waits for nothing is handed on already. Spark replays the batches.
    """
    _pause(monkeypatch, 0.1)
    crashes = [
        crash_once(monkeypatch, KafkaWriter, "commit", after=after, when=partial(_is_of, "schedule")),
        crash_once(monkeypatch, KafkaWriter, "commit", after=after, when=partial(_is_of, "deliver")),
        crash_once(monkeypatch, RelayStore, "commit_records", after=False, when=_has_records),
    ]
    with world.relaying(spark, in_process) as relay:
        wait_until(partial(_reads, relay), START_S, relay.status.as_dict)
        expected = many(world, 600, now_ms() + 8_000)
        got = world.values(600)
        wait_until(lambda: _restarts(relay) == [2, 1])
        assert relay.status.as_dict()["counts"]["stored"] > 0
        world.send(b"the last", key=b"k")
        world.flush()
        got = world.values(601)
    assert all(crashes)
    assert sorted(got, key=str) == sorted([*expected, b"the last"], key=str)


@pytest.mark.kafka_slow
@pytest.mark.parametrize("lost", [False, True], ids=["checkpoint kept", "checkpoint lost"])
@pytest.mark.parametrize("after", [False, True], ids=["before Kafka's commit", "between it and Spark's"])
@pytest.mark.parametrize("query", ["schedule", "deliver"])
def test_exactly_once_when_all_dies(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch, query: str, after: bool, lost: bool
) -> None:
    """One shard of a batch has committed its transaction, or not, when the whole relay ends."""
    _pause(monkeypatch, 3_600.0)
    with world.relaying(spark, in_process) as relay:
        wait_until(partial(_reads, relay), START_S, relay.status.as_dict)
        crashed = crash_once(monkeypatch, KafkaWriter, "commit", after=after, when=partial(_is_of, query))
        expected = many(world, 600, now_ms() + 8_000)
        wait_until(lambda: 1 in _restarts(relay))
    assert crashed
    if lost:
        shutil.rmtree(world.running.checkpoint)
    with world.relaying(spark):
        got = world.values(600)
        world.send(b"the last", key=b"k")
        world.flush()
        got = world.values(601)
    assert sorted(got, key=str) == sorted([*expected, b"the last"], key=str)


@pytest.mark.kafka_slow
def test_other_settings_in_the_middle_of_a_batch(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is half done cannot be divided otherwise: refused, until the former settings have finished it."""
    _pause(monkeypatch, 3_600.0)
    with world.relaying(spark) as relay:
        wait_until(partial(_reads, relay), START_S, relay.status.as_dict)
        crash_once(monkeypatch, RelayStore, "commit_records", after=False, when=_has_records)
        expected = many(world, 300, now_ms() + 5_000)
        wait_until(lambda: _restarts(relay)[0] == 1)
    with pytest.raises(InvalidArgumentError, match="with other settings"), world.relaying(spark, near_ms=0):
        pass
    with world.relaying(spark):
        got = world.values(300)
    with world.relaying(spark, near_ms=0):
        pass
    assert sorted(got, key=str) == sorted(expected, key=str)


def test_one_task_follows_another(spark: SparkSession, world: World) -> None:
    """Tasks of a second, so that each is followed by the next in the middle of the work: nothing fails by that."""
    world.running = replace(world.running, deliver_batch_ms=1_000)
    with world.relaying(spark, in_process) as relay:
        wait_until(partial(_reads, relay), START_S, relay.status.as_dict)
        expected = many(world, 400, now_ms() + 6_000)
        got = world.values(400)
        world.send(b"the last", key=b"k")
        world.flush()
        got = world.values(401)
        assert _restarts(relay) == [0, 0]
    assert sorted(got, key=str) == sorted([*expected, b"the last"], key=str)


def test_nothing_read_ahead_and_other_shards(spark: SparkSession, world: World) -> None:
    """Straight from the store, with more shards, and then fewer; at least once delivers all, too."""
    expected = many(world, 2_000, now_ms() + 2_000)
    with world.relaying(spark, direct_rows_max=0, shards=3):
        got = world.values(2_000)
    with world.relaying(spark, shards=1, guarantee="at-least-once"):
        world.send(b"the last", [(DELAY, b"1s")], key=b"k")
        world.flush()
        got = world.values(2_001)
    assert sorted(got, key=str) == sorted([*expected, b"the last"], key=str)
    keyed = [m for m in world.received(lambda messages: len(messages) >= 2_001) if header(m, "tarry-was-due-ms")]
    for key in {m.key() for m in keyed}:
        dues = [int(header(m, "tarry-was-due-ms") or 0) for m in keyed if m.key() == key]
        assert dues == sorted(dues)


def test_a_record_that_its_target_refuses(spark: SparkSession, world: World) -> None:
    """Too large for the target: to the dead letters, and nothing of its batch is lost or twice."""
    small = f"{world.name}-small"
    world.make(small, **{"max.message.bytes": "2000"})
    for number in range(20):
        headers = [(TOPIC, small.encode()), (DELAY, b"1s")] if number % 2 else [(TOPIC, small.encode())]
        world.send(b"x" * (3_000 if number in (4, 7) else 10) + b"%d" % number, headers, key=b"k")
    world.flush()
    with world.relaying(spark):
        got = world.values(18, small)
        dead_letters = world.values(2, f"{world.name}-dead-letters")
    assert sorted(int((v or b"").lstrip(b"x")) for v in got) == [n for n in range(20) if n not in (4, 7)]
    assert sorted(int((v or b"").lstrip(b"x")) for v in dead_letters) == [4, 7]


def test_fenced_while_writing(world: World) -> None:
    """Kafka says it as soon as a record comes, before the commit: that is the same error."""
    world.make(f"{world.name}-deliver-marker")
    for _ in range(3):
        first = KafkaWriter(world.settings, f"{world.name}-deliver-0", world.settings.deliver_group)
        first.write([_record(world, n) for n in range(5)])
        first.commit({})
        second = KafkaWriter(world.settings, f"{world.name}-deliver-0", world.settings.deliver_group)
        with pytest.raises(FencedError):
            first.write([_record(world, n) for n in range(5_000)])
            first.failures()
            first.write([_record(world, n) for n in range(5_000)])
            first.failures()
        first.close()
        second.close()


def _record(world: World, number: int) -> KafkaRecord:
    return KafkaRecord(f"s/0/{number}", world.out, b"k%d" % number, b"v", (), None)


def test_a_second_relay_of_the_name_ends_the_first(spark: SparkSession, world: World) -> None:
    """Whoever starts last goes on; the first finds its transactional ids taken over and can commit nothing."""
    world.make(f"{world.name}-deliver-marker")
    at = (f"{world.name}-deliver-marker", 0)
    first = KafkaWriter(world.settings, f"{world.name}-deliver-0", world.settings.deliver_group)
    second = KafkaWriter(world.settings, f"{world.name}-deliver-0", world.settings.deliver_group)
    second.commit({at: Marker(2, {"t": 2, "v": 2})})
    with pytest.raises(FencedError):
        first.commit({at: Marker(1, {"t": 1, "v": 1})})
    assert second.markers([at])[at] == Marker(2, {"t": 2, "v": 2})
    first.close()
    second.close()
