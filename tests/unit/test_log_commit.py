"""Group commit: one round for all that waits, in order; bounded; a failure is the end of it."""

from __future__ import annotations

import threading

import pytest

from tarry.base.errors import ClosedError, FatalError, OverloadedError
from tarry.log.commit import GroupCommit, as_tarry_error

WAIT_S = 20


class Rounds:
    """What was committed, round by round; a round waits while the gate is shut."""

    def __init__(self) -> None:
        self.rounds: list[list[int]] = []
        self.writers: list[threading.Thread] = []
        self.begun = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.fatal: list[tuple[BaseException, list[int]]] = []
        self.fail_on: int | None = None

    def commit(self, items: list[int]) -> None:
        self.writers.append(threading.current_thread())
        self.begun.release()
        assert self.gate.wait(WAIT_S)
        self.rounds.append(items)
        if self.fail_on in items:
            raise OSError("the disk is on fire")

    def on_fatal(self, error: BaseException, items: list[int]) -> None:
        self.fatal.append((error, items))

    def open(self, weight_max: int = 1000, threaded: bool = True) -> GroupCommit[int]:
        return GroupCommit("test", self.commit, self.on_fatal, weight_max=weight_max, threaded=threaded)


def test_what_waits_shares_a_round() -> None:
    rounds = Rounds()
    rounds.gate.clear()
    commits = rounds.open()
    commits.submit(0, 1)
    assert rounds.begun.acquire(timeout=WAIT_S)
    for item in range(1, 50):
        commits.submit(item, 1)
    rounds.gate.set()
    commits.close()
    assert rounds.rounds == [[0], list(range(1, 50))]


def test_what_comes_before_its_turn_is_in_the_round() -> None:
    rounds, waits, turn = Rounds(), threading.Event(), threading.Event()

    def await_turn() -> None:
        waits.set()
        assert turn.wait(WAIT_S)

    commits = GroupCommit("test", rounds.commit, rounds.on_fatal, weight_max=100, await_turn=await_turn)
    commits.submit(0, 1)
    assert waits.wait(WAIT_S)
    commits.submit(1, 1)
    turn.set()
    commits.close()
    assert rounds.rounds == [[0, 1]]


def test_order_and_nothing_lost_from_many_threads() -> None:
    rounds = Rounds()
    commits = rounds.open(weight_max=1 << 40)

    def work(worker: int) -> None:
        for i in range(200):
            commits.submit(worker * 1000 + i, 1)

    threads = [threading.Thread(target=work, args=(w,)) for w in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    commits.close()
    done = [item for r in rounds.rounds for item in r]
    assert len(done) == 1600
    for worker in range(8):
        mine = [item for item in done if item // 1000 == worker]
        assert mine == sorted(mine)


def test_a_full_queue_refuses_and_takes_again() -> None:
    rounds = Rounds()
    rounds.gate.clear()
    commits = rounds.open(weight_max=100)
    commits.submit(0, 1)
    assert rounds.begun.acquire(timeout=WAIT_S)
    commits.submit(1, 60)
    with pytest.raises(OverloadedError, match="60 bytes wait to be written; allowed: 100"):
        commits.submit(2, 60)
    commits.submit(3, 40)
    rounds.gate.set()
    assert rounds.begun.acquire(timeout=WAIT_S)
    commits.close()
    assert rounds.rounds == [[0], [1, 3]]


def test_one_item_above_the_limit_is_taken_when_nothing_waits() -> None:
    rounds = Rounds()
    commits = rounds.open(weight_max=10, threaded=False)
    commits.submit(1, 1_000_000)
    assert rounds.rounds == [[1]]


def test_close_writes_what_waits() -> None:
    rounds = Rounds()
    rounds.gate.clear()
    commits = rounds.open()
    for item in range(5):
        commits.submit(item, 1)
    closer = threading.Thread(target=commits.close)
    closer.start()
    rounds.gate.set()
    closer.join(WAIT_S)
    assert sorted(i for r in rounds.rounds for i in r) == list(range(5))
    with pytest.raises(ClosedError, match="the log is closed"):
        commits.submit(9, 1)


@pytest.mark.parametrize("threaded", [False, True])
def test_a_failed_round_is_the_last(threaded: bool) -> None:
    rounds = Rounds()
    rounds.fail_on = 1
    if threaded:
        rounds.gate.clear()
    commits = rounds.open(threaded=threaded)
    commits.submit(0, 1)
    if threaded:
        assert rounds.begun.acquire(timeout=WAIT_S)
    commits.submit(1, 1)
    if threaded:
        commits.submit(2, 1)
        rounds.gate.set()
        commits.close()
    [(error, items)] = rounds.fatal
    assert isinstance(error, OSError)
    assert items == ([1, 2] if threaded else [1]), "all that was not answered is told"
    with pytest.raises(ClosedError):
        commits.submit(3, 1)
    assert rounds.rounds == [[0], [1, 2] if threaded else [1]]


def test_without_a_thread_a_crash_goes_through() -> None:
    def crash(items: list[int]) -> None:
        raise KeyboardInterrupt

    failed: list[object] = []
    commits = GroupCommit("test", crash, lambda e, i: failed.append(i), weight_max=10, threaded=False)
    with pytest.raises(KeyboardInterrupt):
        commits.submit(1, 1)
    assert failed == [[1]]


def test_errors_of_our_own_stay_what_they_are() -> None:
    closed = ClosedError("x")
    assert as_tarry_error(closed, "it") is closed
    assert isinstance(as_tarry_error(OSError("boom"), "it"), FatalError)
    assert "it failed: boom" in str(as_tarry_error(OSError("boom"), "it"))


def test_who_leads_does_the_round_and_what_comes_meanwhile_is_written_by_the_thread() -> None:
    rounds = Rounds()
    commits = rounds.open()
    rounds.gate.clear()
    leader = threading.Thread(target=lambda: commits.submit(0, 1, lead=True))
    leader.start()
    assert rounds.begun.acquire(timeout=WAIT_S)
    commits.submit(1, 1, lead=True)  # a round is under way: this returns at once
    commits.submit(2, 1)
    rounds.gate.set()
    leader.join(WAIT_S)
    commits.close()
    assert rounds.rounds == [[0], [1, 2]]
    assert [writer.name for writer in rounds.writers] == [leader.name, "test"]


def test_a_leader_whose_round_fails_is_the_end_for_all() -> None:
    rounds = Rounds()
    rounds.fail_on = 0
    commits = rounds.open()
    commits.submit(0, 1, lead=True)
    assert [items for _, items in rounds.fatal] == [[0]]
    with pytest.raises(ClosedError, match="the disk is on fire"):
        commits.submit(1, 1, lead=True)
    commits.close()


def test_leading_and_not_from_many_threads_loses_nothing() -> None:
    rounds = Rounds()
    commits = rounds.open(weight_max=1 << 40)

    def work(worker: int) -> None:
        for i in range(300):
            commits.submit(worker * 1000 + i, 1, lead=i % 2 == 0)

    threads = [threading.Thread(target=work, args=(w,)) for w in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    commits.close()
    written = [item for items in rounds.rounds for item in items]
    assert sorted(written) == sorted(w * 1000 + i for w in range(4) for i in range(300))
    for worker in range(4):
        mine = [item for item in written if item // 1000 == worker]
        assert mine == sorted(mine), "in the order of its submissions"
