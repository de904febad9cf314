"""Some lives of machines that take over from one another, whose seeds stay the same: `make simulate` has thousands."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.log.objects.lease import OwnerLease
from tests.crash.takeovers import Lives, simulate


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    """What is logged with a traceback keeps the files open that its frames have."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 30), marks=pytest.mark.rest)], ids=["few", "many"])
def test_lives_of_many_takeovers(seeds: range, fast_path: Path) -> None:
    done: Counter[str] = Counter()
    for seed in seeds:
        done.update(simulate(seed, fast_path / str(seed)))
    assert done["history: delivered"] and done["bases"], "too short to see anything"


def test_a_seed_is_one_life(fast_path: Path) -> None:
    logs = []
    for number in range(2):
        (fast_path / str(number)).mkdir()
        lives = Lives(3, fast_path / str(number))
        lives.run(4)
        logs.append(lives.log)
    assert logs[0] == logs[1]


def test_an_owner_whose_lease_never_ends_is_found(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnerLease, "lasts", lambda lease: True)
    with pytest.raises(AssertionError, match=r"hands out after|has lasted too long"):
        for seed in range(30):
            simulate(seed, fast_path / str(seed))
