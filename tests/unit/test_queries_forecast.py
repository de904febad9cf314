"""The load to come: exact where it can be counted, and honest about the rest."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.crash.tools import World

from tarry.api.views import UNITS_MS, Forecast, Herd
from tarry.base.errors import InvalidArgumentError
from tarry.broker.queries import forecast as module
from tarry.store.spread import Bounds, Spread
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
    expected = truth(w, found)
    # Of a row group that is partly in the wheel, nobody knows how much is.
    assert abs(found.rows - sum(expected.values())) <= 3
    assert len(found.loads) == {"minute": 60, "hour": 48, "day": 31}[unit]
    assert [load.from_ms for load in found.loads] == list(range(found.loads[0].from_ms, found.until_ms, UNITS_MS[unit]))
    for load in found.loads:
        assert abs(load.rows - expected[load.from_ms]) <= 8, "two groups of four rows may span its ends"
    assert sum(load.unsure for load in found.loads) <= 0.3 * found.rows, "groups of four rows lie within a unit, mostly"


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


def test_what_the_store_has_together_is_spread_evenly_and_unsure(w: World) -> None:
    w.schedule("a", [HOUR_MS + MINUTE_MS * k for k in range(60)])
    w.pipeline_commits()
    w.b.step()
    found = w.b.forecast(unit="minute", until_ms=w.clock.now_ms() + 3 * HOUR_MS)
    hour = [load for load in found.loads if load.rows or load.unsure]
    assert found.rows == 60
    assert len(hour) in (59, 60), "the last one is due when the sixtieth minute begins"
    assert all(load.rows == load.unsure and load.rows <= 2 for load in hour)
    by_hour = w.b.forecast(unit="day")
    assert (by_hour.loads[0].rows, by_hour.loads[0].unsure) == (60, 0)


def test_topics_share_what_cannot_be_told_apart(w: World) -> None:
    w.schedule("a", [HOUR_MS] * 30)
    w.schedule("b", [HOUR_MS] * 10)
    w.schedule("z", [HOUR_MS + 1])
    w.pipeline_commits()
    w.b.step()
    loads = {t: w.b.forecast(topic=t).loads[1] for t in ("a", "b", "z", "none")}
    assert {t: load.rows for t, load in loads.items()} == {"a": 30, "b": 10, "z": 1, "none": 0}
    assert loads["a"].unsure == 30


def test_without_time_for_footers_the_log_of_the_table_must_do(
    w: World, monkeypatch: pytest.MonkeyPatch, small_groups: None
) -> None:
    everywhere(w, [k * MINUTE_MS for k in range(1, 50)])
    patient = w.b.forecast(unit="minute")
    monkeypatch.setattr(module, "FOOTERS_S", -1.0)
    hasty = w.b.forecast(unit="minute")
    assert abs(hasty.rows - patient.rows) <= 3
    assert sum(load.unsure for load in hasty.loads) > sum(load.unsure for load in patient.loads)


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
    assert sum(load.unsure for load in mixed.loads) == mixed.rows


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
    assert herd is not None
    assert herd.due_ms == w.clock.now_ms() + delay + 1
    assert 140 <= herd.rows <= 150
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


@given(
    rows=st.integers(1, 10_000),
    due=st.tuples(st.integers(-100, 5000), st.integers(0, 3000)),
    seqs=st.tuples(st.integers(0, 50), st.integers(0, 50)),
    after=st.tuples(st.integers(0, 1000), st.integers(0, 60)),
    share=st.sampled_from([0.0, 0.25, 1.0]),
)
def test_no_more_is_spread_than_there_is(
    rows: int, due: tuple[int, int], seqs: tuple[int, int], after: tuple[int, int], share: float
) -> None:
    spread = Spread(after, 3001, 0, 1000)
    bounds = Bounds(due[0], due[0] + due[1], seqs[0], seqs[0] + seqs[1])
    spread.add(rows, bounds, share)
    total = spread.counted.sum() + spread.guessed.sum()
    assert -1e-6 <= total <= rows * share + 1e-6
    assert (spread.guessed >= -1e-9).all()
    assert np.allclose(spread.unsure, spread.guessed)
    if spread.holds(bounds):
        assert np.isclose(total, rows * share)
    if not spread.overlaps(bounds):
        assert total == 0
