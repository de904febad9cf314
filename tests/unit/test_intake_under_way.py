"""Commits of the intake that do not wait for one another: their order, what waits for them, and how they fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.test_intake_intake import SECRET, Command, Commit, batch
from tests.waiting import wait_until

from tarry.base.errors import FatalError
from tarry.intake import Intake, IntakeWriter, Segments, Submission
from tarry.intake.under_way import CommitsUnderWay
from tarry.log.file_engine import FileLog
from tarry.log.files import OsFiles
from tarry.log.frame import LogKind
from tarry.log.segment import list_segments


class Rounds:
    """Syncs that the test ends, in any order."""

    def __init__(self) -> None:
        self.begun: list[Future[None]] = []

    def begin_sync(self) -> Callable[[], None]:
        self.begun.append(Future())
        return self.begun[-1].result

    def end(self, *numbers: int) -> None:
        for number in numbers:
            self.begun[number].set_result(None)


class Writer:
    """A writer over rounds of the test, what it told whom, and a thread that commits."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes_max: int = 1 << 20) -> None:
        self.directory, self.rounds = directory, Rounds()
        self.segments = Segments.open(FileLog(OsFiles(), directory, LogKind.INTAKE), next_seq=0)
        monkeypatch.setattr(self.segments, "begin_sync", self.rounds.begin_sync)
        self.intake = Intake(self.segments)
        self.answers: list[object] = []
        self.told: list[str] = []
        self.decided: list[int] = []
        self.failed: list[BaseException] = []
        self.writer = IntakeWriter(
            self.segments,
            self.intake,
            segment_bytes_max=segment_bytes_max,
            secret=SECRET,
            publish=lambda _, add: add(),
            begin_batch=self._begin,
            confirm=lambda: self.told.append("confirmed"),
            on_fatal=self._fail,
            under_way_bytes_max=1 << 20,
        )
        self.pool = ThreadPoolExecutor(1)

    def _begin(self, next_seq: int) -> Commit:
        self.decided.append(next_seq)
        return Commit(next_seq)

    def _fail(self, error: BaseException, submissions: list[Submission]) -> None:
        self.failed.append(error)
        for each in submissions:
            each.refuse(FatalError(str(error)))

    def send(self, *dues: list[int]) -> Future[None]:
        submissions = [Submission(batch(due), self.answers.append) for due in dues]
        return self.pool.submit(self.writer.commit, submissions)

    def command(self, rows: pa.RecordBatch | None) -> Future[None]:
        submission = Submission(batch([]), self.answers.append, Command(self.told, rows))  # type: ignore[arg-type]
        return self.pool.submit(self.writer.commit, [submission])

    @property
    def first_seqs(self) -> list[int]:
        return [each.first_seq for each in self.answers]  # type: ignore[attr-defined]

    def close(self) -> None:
        for each in self.rounds.begun:
            if not each.done():
                each.set_result(None)
        self.pool.shutdown()
        self.writer.close()
        self.intake.close()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    writer = Writer(tmp_path, monkeypatch)
    yield writer
    writer.close()


def test_a_commit_does_not_wait_for_the_one_before_and_is_answered_after_it(made: Writer) -> None:
    for dues in ([1, 2], [3], [4]):
        made.send(dues).result(10)
    assert len(made.rounds.begun) == 3 and not made.answers and made.intake.published_seq == 0
    made.rounds.end(2, 1)
    assert made.intake.published_seq == 0, "the first one is not durable"
    made.rounds.end(0)
    wait_until(lambda: len(made.answers) == 3)
    assert made.first_seqs == [0, 2, 3]
    assert [each["due_ms"].to_pylist() for each in made.intake.read(0, 4)] == [[1, 2, 3, 4]]


def test_a_command_is_decided_by_all_before_it_and_what_comes_behind_does_not_wait(made: Writer) -> None:
    made.send([1]).result(10)
    decided = made.command(batch([2]))
    behind = made.send([3])
    assert not made.decided
    made.rounds.end(0)
    decided.result(10)
    behind.result(10)
    assert made.decided == [1] and made.told == [] and made.first_seqs == [0]
    made.rounds.end(1, 2)
    wait_until(lambda: len(made.answers) == 2)
    assert made.told == ["scheduled"] and made.first_seqs == [0, 2]


def test_an_answer_without_rows_rests_on_all_before_it(made: Writer) -> None:
    made.send([1]).result(10)
    refused = made.command(None)
    assert made.told == []
    made.rounds.end(0)
    refused.result(10)
    assert made.told == ["confirmed", "key_exists"] and made.first_seqs == [0]


def test_a_full_segment_is_rolled_when_all_of_it_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Writer(tmp_path, monkeypatch, segment_bytes_max=200)
    made.send([1]).result(10)
    behind = made.send([2])
    assert list_segments(tmp_path) == [0]
    made.rounds.end(0)
    behind.result(10)
    assert list_segments(tmp_path) == [0, 1]
    made.rounds.end(1)
    wait_until(lambda: made.intake.published_seq == 2)
    made.close()


def test_a_round_that_fails_is_the_end_of_all_behind_it(made: Writer) -> None:
    for dues in ([1], [2], [3]):
        made.send(dues).result(10)
    made.rounds.end(0)
    made.rounds.begun[2].set_result(None)
    made.rounds.begun[1].set_exception(FatalError("another owns it"))
    wait_until(lambda: len(made.answers) == 3)
    assert made.intake.published_seq == 1 and len(made.failed) == 1
    assert [str(each) for each in made.answers[1:]] == ["another owns it"] * 2
    with pytest.raises(FatalError, match="another owns it"):
        made.send([4]).result(10)
    with pytest.raises(FatalError, match="another owns it"):
        made.command(batch([5])).result(10)
    assert not made.decided


def test_so_much_may_be_under_way_and_the_end_waits_for_it() -> None:
    rounds, finished = Rounds(), list[int]()
    under_way = CommitsUnderWay[int]("test", finished.append, lambda *_: None, bytes_max=10)
    under_way.put(0, rounds.begin_sync(), 20)  # larger than all that may be, and nothing else is
    waits = threading.Thread(target=lambda: under_way.put(1, rounds.begin_sync(), 1))
    waits.start()
    wait_until(lambda: len(rounds.begun) == 2)
    assert waits.is_alive() and finished == []
    rounds.end(0)
    waits.join(10)
    closing = threading.Thread(target=under_way.close)
    closing.start()
    assert closing.is_alive()
    rounds.end(1)
    closing.join(10)
    assert finished == [0, 1] and not closing.is_alive()
