"""A short run of `make fuzz-door` with a seed that stays the same, and whether it finds an open door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.door import fuzz_door
from tests.fuzz.door_target import ANONYMOUS
from tests.fuzz.running import Run

pytestmark = pytest.mark.rest
CALLS = 400


def test_callers_without_a_right(tmp_path: Path) -> None:
    assert sum(fuzz_door(Run(CALLS, CALLS), tmp_path).values()) == CALLS


def test_callers_without_a_right_where_some_who_show_nothing_have_one(tmp_path: Path) -> None:
    assert sum(fuzz_door(Run(CALLS, CALLS), tmp_path, anonymous=ANONYMOUS).values()) == CALLS


def test_who_shows_nothing_and_has_a_right_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a stranger has"):
        fuzz_door(Run(CALLS, CALLS), tmp_path, anonymous=["browse *", "consume *"])


def test_a_caller_with_a_right_is_found(tmp_path: Path) -> None:
    """The same calls by somebody who may do everything: otherwise the run above would show nothing."""
    with pytest.raises(AssertionError, match="a stranger has"):
        fuzz_door(Run(CALLS, CALLS), tmp_path, weak=["admin"])
