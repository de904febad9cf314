"""The durable bound of hand-outs: what it promises, what moves it, and what damage and crashes leave of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.tools import damage

from tarry.base.errors import CorruptError
from tarry.broker.hand_out_bound import FILE, FileBound, check_bound, read_bound
from tarry.log.files import OsFiles
from tarry.wheel.handed import NEVER_MS

NOW = 1_795_264_000_000
AHEAD = 5_000
SLOTS = (0, 4096)


class Box:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.opened: list[FileBound] = []

    def open(self, now_ms: int = NOW, *, is_new: bool = False) -> FileBound:
        self.opened.append(FileBound(OsFiles(), self.data, now_ms, is_new=is_new, ahead_ms=AHEAD))
        return self.opened[-1]

    def durable(self) -> int:
        found = read_bound(self.data / FILE)
        assert found is not None
        return found[1]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    for bound in made.opened:
        bound.close(is_durable=False)


def test_what_is_covered_is_durable_first(box: Box) -> None:
    bound = box.open(is_new=True)
    assert (bound.left_ms, bound.until_ms) == (NEVER_MS, NEVER_MS)
    bound.cover(NOW)
    assert bound.until_ms == box.durable() == NOW + AHEAD
    bound.cover(NOW + AHEAD)
    assert box.durable() == NOW + AHEAD, "it was covered, and nothing is written"
    assert box.open(NOW - 3_600_000).left_ms == NOW + AHEAD, "whatever the clock says then"


def test_it_is_kept_ahead(box: Box) -> None:
    bound = box.open(is_new=True)
    for now in range(NOW, NOW + 30_000, 250):
        bound.keep_ahead(now, lambda: NEVER_MS)
        assert now + AHEAD // 2 <= bound.until_ms == box.durable() <= now + AHEAD


def test_it_comes_back_from_a_leap_of_the_clock(box: Box) -> None:
    bound = box.open(is_new=True)
    bound.cover(NOW + 86_400_000)
    bound.keep_ahead(NOW, lambda: NOW + 70_000)
    assert bound.until_ms == box.durable() == NOW + 70_000, "as far as what was handed out lets it"
    bound.keep_ahead(NOW, lambda: NOW - 1)
    assert bound.until_ms == box.durable() == NOW + AHEAD


def test_what_the_last_run_left_stays_until_it_was_delivered_again(box: Box) -> None:
    box.open(is_new=True).cover(NOW + 60_000)
    left = NOW + 60_000 + AHEAD
    second = box.open()
    second.cover(NOW)
    assert second.left_ms == box.durable() == left
    second.close(is_durable=True)
    third = box.open()
    assert third.left_ms == left, "a clean stop does not know what the run before it had handed out"
    third.release(left)
    third.close(is_durable=True)
    fourth = box.open()
    assert fourth.left_ms == left, "nothing due at that very moment is known to have fired"
    fourth.release(left + 1)
    fourth.close(is_durable=True)
    assert box.open().left_ms == NEVER_MS


@pytest.mark.parametrize("slot", SLOTS)
def test_one_record_that_is_hurt(box: Box, slot: int) -> None:
    bound = box.open(is_new=True)
    bound.cover(NOW)
    bound.cover(NOW + 60_000)
    check_bound(box.data / FILE)
    damage(box.data / FILE, slot + 9)
    with pytest.raises(CorruptError, match="handed is damaged"):
        check_bound(box.data / FILE)
    late = NOW + 100_000
    assert box.open(late).left_ms == late + AHEAD, "the clock is all there is"
    # With the next two writes both records are whole again.
    again = box.opened[-1]
    again.cover(late + 50_000)
    again.cover(late + 90_000)
    check_bound(box.data / FILE)


def test_no_record_is_whole(box: Box) -> None:
    bound = box.open(is_new=True)
    bound.cover(NOW)
    for slot in SLOTS:
        damage(box.data / FILE, slot + 9)
    with pytest.raises(CorruptError, match="neither of its two records is whole"):
        box.open()


def test_a_directory_of_a_version_without_it(box: Box) -> None:
    assert box.open(NOW, is_new=False).left_ms == NOW + AHEAD
    assert box.durable() == NOW + AHEAD
