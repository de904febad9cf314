"""What counts as growing in a soak."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.resources import Sample, growing

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


def test_what_has_just_started_does_not_count() -> None:
    young = [replace(each, age_s=5, rss_mb=1 + i) for i, each in enumerate(run())]
    assert growing(young) == {}
