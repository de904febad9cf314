"""What counts as growing in a soak."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.resources import Sample, growing
from benchmarks.soak import settled

FLAT = Sample(0, 1000, 100, 50, 30, 200, 10, 500, 900)


def run(**grown: float) -> list[Sample]:
    """Ninety samples, in which some figures grow by so much from each to the next."""
    names = {name: getattr(FLAT, name) for name in grown}
    return [replace(FLAT, at_s=i, **{n: names[n] + by * i for n, by in grown.items()}) for i in range(90)]


def test_a_run_that_stays_as_it_is() -> None:
    assert growing(run()) == {}
    assert growing(run(log_entries=50, disk_mb=10)) == {}, "they have limits of their own, beyond a run's length"


@pytest.mark.parametrize(("name", "by"), [("rss_mb", 2), ("descriptors", 1), ("threads", 1), ("files", 3)])
def test_a_figure_that_grows(name: str, by: float) -> None:
    assert list(growing(run(**{name: by}))) == [name]


def test_threads_that_come_and_go_are_no_growth() -> None:
    """A sample may meet the threads of a read of the store, in one third of the run more often than in another."""
    assert growing([replace(FLAT, at_s=i, threads=65 if i > 60 and i % 2 else 37) for i in range(90)]) == {}


def test_what_has_just_started_does_not_count() -> None:
    young = [replace(each, age_s=5, rss_mb=1 + i) for i, each in enumerate(run())]
    assert growing(young) == {}


def test_a_part_is_judged_when_it_holds_what_it_comes_to_hold() -> None:
    first = [replace(FLAT, at_s=60 * i, files=4 * i) for i in range(60)]
    second = [replace(FLAT, at_s=60 * (60 + i), files=min(4 * i, 250)) for i in range(121)]
    assert growing(first + second)
    assert growing(settled(first + second, [60, 120])) == {}
    assert settled(first + second, [180]) == first + second
