"""The shortest traces of the model of hand-outs, with brokers: what one was handed is never "done" at another.

``tests/models/takeover/lease.cpp`` finds each of them where a clause of the design is missing (docs/takeover-model.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path

import pytest

from tarry.base.errors import OwnershipLostError
from tarry.log.objects.lease import LEASE_S
from tarry.testing import TestClock
from tests.crash.test_handed_out import T0, hand_out
from tests.engines.test_broker import Machines
from tests.waiting import wait_until

LEASE_MS = round(1000 * LEASE_S)
HOUR_MS = 3_600_000


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path, "objects")
    machines.boot_s = lambda: 100.0  # leases end when a test says so
    yield machines
    machines.close()


@contextmanager
def unanswered(machines: Machines, call: Callable[[], object]) -> Iterator[list[object]]:
    """Cut the newest broker off, and have a thread call it; when it is no longer cut off, it is nobody's owner.

    What the call returned, if it did, is yielded.
    """
    way, returned, lost = machines.ways[-1], list[object](), list[OwnershipLostError]()

    def run() -> None:
        try:
            returned.append(call())
        except OwnershipLostError as error:
            lost.append(error)

    way.is_cut = True
    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: any(what == "create" for what, _ in way.refused))
        yield returned
    finally:
        way.is_cut = False
        thread.join()
    assert lost and not returned


def test_a_move_that_was_never_answered_has_nothing_handed_out(machines: Machines) -> None:
    first = machines.broker(TestClock(T0))
    sent = first.schedule("t", b"1", delay=3600, id="1")
    first.step()
    assert hand_out(first) == []
    with unanswered(machines, lambda: first.reschedule(sent.handle, delay=1)):
        first.clock.advance_ms(LEASE_MS - 1)
        assert first.components.bound.until_ms >= T0 + 1000, "nothing else holds it back"
        assert hand_out(first) == []
        second = machines.broker(TestClock(T0))
        assert second.cancel(sent.handle) == "done"
    second.close()


def test_a_send_that_was_never_answered_is_not_handed_out(machines: Machines) -> None:
    first = machines.broker(TestClock(T0))
    first.step()
    assert hand_out(first) == [], "there is a group from now on"
    with unanswered(machines, lambda: first.schedule("t", b"1", delay=1, id="1")):
        first.clock.advance_ms(LEASE_MS - 1)
        assert hand_out(first) == []
        second = machines.broker(TestClock(T0))
        assert second.schedule("t", b"1", delay=3600, id="1").outcome == "scheduled"
    second.close()


def test_a_clock_that_steps_ahead_has_nothing_handed_out_that_the_log_does_not_know(machines: Machines) -> None:
    first = machines.broker(TestClock(T0))
    sent = first.schedule("t", b"1", delay=LEASE_S + 1)
    first.step()
    assert hand_out(first) == []
    first.clock.advance_ms(HOUR_MS)
    with unanswered(machines, lambda: hand_out(first)) as handed:
        second = machines.broker(TestClock(T0))
        assert second.cancel(sent.handle) == "done"
        assert handed == []
    second.close()


@pytest.mark.parametrize("stepped_ms", [0, HOUR_MS])
def test_what_was_handed_out_by_any_clock_before_a_kill_is_not_done(machines: Machines, stepped_ms: int) -> None:
    first = machines.broker(TestClock(T0))
    sent = first.schedule("t", b"1", delay=1, id="1")
    later = first.schedule("t", b"2", delay=2 * 3600)
    first.step()
    assert hand_out(first) == [], "there is a group from now on, so no round tells the clock later"
    first.clock.advance_ms(1000 + stepped_ms)
    assert hand_out(first) == ["1"]
    # It is killed, and no file says that a consumer has it. The next machine's clock is right, or behind.
    second = machines.broker(TestClock(T0))
    assert second.cancel(sent.handle) == "delivered"
    assert second.cancel(later.handle) == "done"
    machines.wait_for_leases()
    second.step()
    second.clock.advance_ms(1000)
    assert hand_out(second) == ["1"], "nobody knows whether its consumer has done it"
    second.close()


@pytest.mark.parametrize("offsets_ms", list(permutations((-2000, 0, 2000))), ids=str)
def test_three_owners_whose_clocks_differ(machines: Machines, offsets_ms: tuple[int, int, int]) -> None:
    """The first one hands out what is due by its clock, the second one writes a round, the third one is asked."""
    first = machines.broker(TestClock(T0 + offsets_ms[0]))
    dues_ms = range(T0 - 2000, T0 + 5001, 1000)
    sent = {str(due_ms): first.schedule("t", b"", due=due_ms, id=str(due_ms)) for due_ms in dues_ms}
    handed = hand_out(first)
    assert handed == [str(due_ms) for due_ms in dues_ms if due_ms <= first.clock.now_ms()]
    machines.broker(TestClock(T0 + offsets_ms[1]))
    third = machines.broker(TestClock(T0 + offsets_ms[2]))
    outcomes = {id_: third.cancel(each.handle) for id_, each in sent.items()}
    assert {outcomes[id_] for id_ in handed} == {"delivered"}
    assert outcomes[str(T0 + 5000)] == "done", "no clock and lease goes as far"
    third.close()
