"""What a benchmark counts as spent by a server: what it measures, and neither its start nor its warm-up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.marks import BEGIN, END, watch

CLIENT = """
import pathlib, sys
spent = pathlib.Path(sys.argv[1])
def tell(line):  # and go on when the meter has been read, which takes the file away
    spent.with_suffix(".asked").touch()
    print(line, flush=True)
    while spent.with_suffix(".asked").exists():
        pass
spent.write_text("160")      # the warm-up
tell("measured: begin")
spent.write_text("200")      # what is measured
tell("measured: end")
spent.write_text("1000")     # waiting for duplicates
print('{"count": 20}')
"""


@pytest.fixture
def meter(tmp_path: Path) -> Callable[[], float]:
    def read() -> float:
        value = float((tmp_path / "spent").read_text())
        (tmp_path / "spent.asked").unlink()
        return value

    return read


def test_what_warms_up_and_what_comes_after_is_not_counted(tmp_path: Path, meter: Callable[[], float]) -> None:
    found = watch([sys.executable, "-c", CLIENT, str(tmp_path / "spent")], meter, timeout_s=60)
    assert found.spent == 40
    assert found.lines == [BEGIN, END, '{"count": 20}']


def test_a_client_that_marks_nothing_has_no_figure() -> None:
    assert watch([sys.executable, "-c", "print(1)"], lambda: 0.0, timeout_s=60).spent is None


def test_a_client_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="no such topic"):
        watch([sys.executable, "-c", "raise SystemExit('no such topic')"], lambda: 0.0, timeout_s=60)
