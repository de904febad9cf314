"""The load to come: exact where it can be counted, and honest about the rest."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.crash.tools import World

from tarry.api.views import UNITS_MS, Forecast, Herd
from tarry.base.errors import InvalidArgumentError
from tarry.broker.queries import forecast as module
from tarry.store.due_counts import DueCounter
from tarry.testing import open_broker

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SMALL_WHEEL = {"horizon_ms": 2000, "wheel_bytes_max": 20_000}


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = importlib.import_module("tarry.store.stage")
    monkeypatch.setattr(stage, "GROUP_ROWS_MAX", 4)
    monkeypatch.setattr(stage, "FILE_BYTES_MIN", 1)


@pytest.fixture
def w(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, settings=SMALL_WHEEL)
    world.open()
    yield world
    world.b.close()


def truth(w: World, found: Forecast, topic: str = "") -> Counter[int]:
    """Rows by unit, from the model."""
    unit, now = UNITS_MS[found.unit], w.clock.now_ms()
    mine = [due for i, due in w.due_ms.items() if i.startswith(topic) and now < due < found.until_ms]
    return Counter(due // unit * unit for due in mine)


def told(found: Forecast) -> Counter[int]:
    return Counter({load.from_ms: load.rows for load in found.loads if load.rows})


def everywhere(w: World, delays: list[int]) -> None:
    """Messages in store, wheel and intake."""
    w.schedule("a", delays)
    w.schedule("b", delays[::2])
    w.pipeline_commits()
    w.b.step()
    w.schedule("a", delays[::3])


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("unit", ["minute", "hour", "day"])
def test_it_adds_up_and_counts_what_lies_within_one_unit(w: World, unit: str) -> None:
    everywhere(w, [*range(500, 4000, 500), *(k * UNITS_MS[unit] + 7 * n for k in range(1, 20) for n in range(8))])
    found = w.b.forecast(unit=unit)
    assert is_exact(w, found)
    assert len(found.loads) == {"minute": 60, "hour": 48, "day": 31}[unit]
    assert [load.from_ms for load in found.loads] == list(range(found.loads[0].from_ms, found.until_ms, UNITS_MS[unit]))


def test_the_wheel_and_a_small_intake_are_exact(w: World) -> None:
    w.schedule("a", [1, 1500, MINUTE_MS, 5 * MINUTE_MS, 3 * HOUR_MS])
    w.b.step()
    w.schedule("b", [1700, 5 * MINUTE_MS])
    for topic in (None, "a", "b"):
        found = w.b.forecast(topic=topic, unit="minute")
        assert told(found) == truth(w, found, topic or "")
        assert not any(load.unsure for load in found.loads)


def test_what_is_overdue_falls_into_the_first_unit(w: World) -> None:
    w.schedule("a", [1000, 2000])
    w.clock.advance_ms(10 * MINUTE_MS)
    found = w.b.forecast(unit="minute")
    assert found.loads[0].rows == 2
    assert found.rows == 2


@pytest.fixture
def without_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files as they were before they had counts, or as a foreign writer makes them."""
    monkeypatch.setattr(DueCounter, "counts", lambda _: None)


def is_bound(w: World, found: Forecast, topic: str = "") -> bool:
    expected = truth(w, found, topic)
    return all(abs(load.rows - expected[load.from_ms]) <= load.unsure for load in found.loads)


def is_exact(w: World, found: Forecast, topic: str = "") -> bool:
    return told(found) == truth(w, found, topic) and not any(load.unsure for load in found.loads)


def in_one_row_group(w: World) -> None:
    w.schedule("a", [HOUR_MS + MINUTE_MS * k for k in range(60)])
    w.schedule("b", [HOUR_MS + 7] * 10)
    w.schedule("z", [HOUR_MS + 1])
    w.pipeline_commits()
    w.b.step()


@pytest.mark.parametrize("unit", ["minute", "hour", "day"])
@pytest.mark.parametrize("topic", [None, "a", "b", "z", "none"])
def test_what_shares_a_row_group_is_counted_by_unit_and_topic(w: World, unit: str, topic: str | None) -> None:
    in_one_row_group(w)
    found = w.b.forecast(unit=unit, topic=topic, until_ms=w.clock.now_ms() + 3 * HOUR_MS)
    assert is_exact(w, found, topic or "")


@pytest.mark.usefixtures("without_counts")
@pytest.mark.parametrize("topic", [None, "a", "b"])
def test_without_counts_rows_are_read_and_without_time_the_bound_is_one(
    w: World, topic: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_row_group(w)
    asked: dict[str, Any] = {"unit": "minute", "topic": topic, "until_ms": w.clock.now_ms() + 3 * HOUR_MS}
    assert is_exact(w, w.b.forecast(**asked), topic or "")
    monkeypatch.setattr(module, "ROWS_S", -10.0)
    hasty = w.b.forecast(**asked)
    assert is_bound(w, hasty, topic or "")
    assert sum(load.unsure for load in hasty.loads) > 0


def test_without_time_for_footers_the_log_of_the_table_must_do(
    w: World, monkeypatch: pytest.MonkeyPatch, small_groups: None
) -> None:
    everywhere(w, [k * MINUTE_MS for k in range(1, 50)])
    patient = w.b.forecast(unit="minute")
    assert is_exact(w, patient)
    monkeypatch.setattr(module, "FOOTERS_S", -1.0)
    monkeypatch.setattr(module, "ROWS_S", -1.0)
    hasty = w.b.forecast(unit="minute")
    assert abs(hasty.rows - patient.rows) <= 3
    assert is_bound(w, hasty)
    assert sum(load.unsure for load in hasty.loads) > 0


def test_a_large_intake_is_told_from_its_index(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTAKE_BYTES_MAX", 0)
    monkeypatch.setattr(module, "INTAKE_ROWS", 7)
    w.schedule("a", [MINUTE_MS * k for k in range(1, 40)])
    w.schedule("b", [MINUTE_MS * 40 + 5] * 13)
    found = w.b.forecast(unit="minute")
    assert told(found) == truth(w, found)
    assert not any(load.unsure for load in found.loads)
    mixed = w.b.forecast(unit="minute", topic="a")
    assert abs(mixed.rows - 39) <= 5
    assert is_bound(w, mixed, "a")
    assert any(load.unsure for load in mixed.loads)


@pytest.mark.parametrize("where", ["wheel", "intake", "store"])
def test_the_largest_herd(w: World, where: str, small_groups: None) -> None:
    delay = 1500 if where == "wheel" else HOUR_MS
    w.schedule("a", [delay] * 120)
    w.schedule("a", [delay + 1] * 150)
    if where == "wheel":
        w.b.step()
    if where == "store":
        w.pipeline_commits()
        w.b.step()
    herd = w.b.forecast().herd
    assert herd == Herd(w.clock.now_ms() + delay + 1, 150)
    assert w.b.forecast(topic="b").herd is None


def test_a_herd_that_is_partly_in_the_wheel_is_counted_whole(tmp_path: Path) -> None:
    with open_broker(tmp_path, wheel_bytes_max=20_000) as broker:
        due = broker.clock.now_ms() + 30_000
        for n in range(300):
            broker.schedule("a", b"x" * 300, due=due, id=str(n))
        broker.step()
        assert 0 < broker.status()["wheel"]["rows"] < 300
        found = broker.forecast(unit="minute")
        assert (found.rows, found.herd) == (300, Herd(due, 300))


@pytest.mark.parametrize("few", [True, False])
def test_cancelled_messages_are_taken_out_also_where_they_never_got_to_the_store(
    w: World, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A debounce: most messages are replaced before the pipeline takes them, some after, some are left."""
    monkeypatch.setattr(module, "DEAD_ROWS_MAX", 100 if few else 10)
    for n in range(30):
        w.b.schedule("a", b"", delay=3600 + n, key=f"k{n % 5}")
        if n % 10 == 9:
            w.pipeline_commits()
            w.b.step()
    w.b.schedule("a", b"", delay=3700, key="k0")
    for unit in ("minute", "hour", "day"):
        found = w.b.forecast(unit=unit, until_ms=w.clock.now_ms() + 10 * HOUR_MS)
        assert found.rows == 5
        assert w.b.forecast(unit=unit, topic="b").rows == 0


def test_cancelled_messages_in_a_large_intake(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTAKE_BYTES_MAX", 0)
    for n in range(30):
        w.b.schedule("a", b"", delay=3600 + n, key=f"k{n % 5}")
    assert w.b.forecast().rows == 5


@pytest.mark.parametrize(
    "asked",
    [{"unit": "week"}, {"unit": 5}, {"topic": "no topic"}, {"until_ms": 0}, {"until_ms": True}, {"until_ms": 1 << 62}],
)
def test_what_is_not_allowed_is_refused(asked: dict[str, Any], tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker, pytest.raises(InvalidArgumentError, match="allowed"):
        broker.forecast(**asked)


TOPICS = [f"t{n}" for n in range(8)]


@pytest.mark.parametrize("scale", [1000, pytest.param(10_000, marks=pytest.mark.rest)])
def test_herds_of_one_topic_among_others_have_their_true_size(w: World, scale: int) -> None:
    """Eight files that each have a part of three herds, in row groups that have other messages and topics as well."""
    now = w.clock.now_ms()
    herds = {now + 5 * HOUR_MS + 11: 3 * scale, now + 5 * HOUR_MS + 12: 4 * scale, now + 20 * 24 * HOUR_MS: scale}
    rows = 100 * scale // 8
    expected: Counter[int] = Counter()
    for part in range(8):
        herd = [due for due, count in herds.items() for _ in range(count // 8)]
        others = [now + HOUR_MS + (n * 2_654_435_761 + part) % (25 * 24 * HOUR_MS) for n in range(rows - len(herd))]
        topics = ["t3"] * len(herd) + [TOPICS[n % 8] for n in range(len(others))]
        due = herd + others
        expected.update(d for d, t in zip(due, topics, strict=True) if t == "t3")
        w.b.schedule_batch(pa.record_batch({"topic": topics, "due_ms": due, "body": [b""] * rows}))
        w.pipeline_commits()
        w.b.step()
    for unit in ("hour", "day"):
        found = w.b.forecast(unit=unit, topic="t3", until_ms=now + 30 * 24 * HOUR_MS)
        by_unit: Counter[int] = Counter()
        for moment, count in expected.items():
            by_unit[moment // UNITS_MS[unit] * UNITS_MS[unit]] += count
        assert told(found) == by_unit
        assert not any(load.unsure for load in found.loads)
        assert [(herd.due_ms, herd.rows) for herd in found.herds] == sorted(herds.items())
    everything = w.b.forecast(unit="day", until_ms=now + 30 * 24 * HOUR_MS)
    assert everything.rows == sum(entry.pending for entry in w.b.pending()) == 8 * rows
    assert {herd.due_ms: herd.rows for herd in everything.herds}.items() >= herds.items()
