"""The engine ``objects`` over a real store: what its answers are taken for, and owners in processes that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import pytest

from tarry.base.clock import SystemClock, TestClock
from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.log.files import OsFiles
from tarry.log.frame import LogKind
from tarry.log.objects.engine import ObjectEngine
from tarry.log.objects.s3 import S3Objects
from tarry.log.objects.store import try_out
from tests.engines.owner_process import LOST
from tests.engines.test_conformance import numbers, opened
from tests.engines.versitygw import served, store_at
from tests.ports import free_port

A = TypeVar("A")
rest = [pytest.mark.rest, pytest.mark.timeout(1800)]  # a build takes minutes, once


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("versitygw")) as endpoint:
        yield endpoint


def run(work: Coroutine[Any, Any, A]) -> A:
    return asyncio.run(work)


def test_only_a_uri_of_s3_is_taken() -> None:
    with pytest.raises(InvalidArgumentError, match="allowed: s3://"):
        S3Objects("gs://bucket/prefix")
    with pytest.raises(InvalidArgumentError):
        S3Objects("s3://bucket/prefix", {"no_such_option": "1"})


def test_a_store_that_is_away_cannot_be_asked() -> None:
    store = store_at(f"http://127.0.0.1:{free_port()}", "p")
    for request in (store.get("k"), store.exists("k"), store.create("k", b""), store.list("k/"), store.delete(["k"])):
        with pytest.raises(UnavailableError, match="cannot be asked"):
            run(cast("Coroutine[Any, Any, object]", request))


class TestAnswers:
    pytestmark = rest

    def test_what_is_there_and_what_is_not(self, endpoint: str) -> None:
        store = store_at(endpoint, "answers")

        async def ask() -> None:
            await try_out(store)
            assert await store.get("a/1") is None
            assert await store.create("a/1", b"x")
            assert not await store.create("a/1", b"y")
            assert await store.get("a/1") == b"x"
            assert await store.exists("a/1")
            assert not await store.exists("a/2")
            await asyncio.gather(*(store.create(f"many/{number}", b"") for number in range(1100)))
            assert len(await store.list("many/")) == 1100, "all pages"
            await store.delete((await store.list("many/"))[:1000])
            assert len(await store.list("many/")) == 100
            assert await store.list("no/") == []
            await store.delete(["a/1"])
            await store.delete(["a/1", "a/2", "a/none"])

        run(ask())

    def test_one_of_many_creates(self, endpoint: str) -> None:
        store = store_at(endpoint, "race")

        async def race() -> list[bool]:
            return await asyncio.gather(*(store.create("one", b"%d" % number) for number in range(40)))

        assert run(race()).count(True) == 1

    def test_a_missing_bucket_is_no_missing_key(self, endpoint: str) -> None:
        self._says_nothing(store_at(endpoint, "p", bucket="no-such-bucket"))

    def test_a_missing_right_is_no_missing_key(self, endpoint: str) -> None:
        self._says_nothing(store_at(endpoint, "p", secret_access_key="wrong"))

    def _says_nothing(self, store: S3Objects) -> None:
        for request in (store.get("k"), store.exists("k"), store.create("k", b""), store.list("k/")):
            with pytest.raises(UnavailableError, match="cannot be asked"):
                run(cast("Coroutine[Any, Any, object]", request))

    def test_a_claim_says_at_once_what_the_store_refuses(self, endpoint: str, tmp_path: Path) -> None:
        for number, (store, says) in enumerate(
            (
                (store_at(endpoint, "p", bucket="no-such-bucket"), "there is no bucket 'no-such-bucket'"),
                (store_at(endpoint, "p", secret_access_key="wrong"), "the secret does not fit the access key A"),
                (store_at(endpoint, "p", region="eu-west-9"), "the region is eu-west-9"),
            )
        ):
            engine = ObjectEngine(store, OsFiles(), tmp_path / str(number), SystemClock())
            with pytest.raises(InvalidArgumentError, match=says):
                engine.claim()


class Process:
    """An owner, and what it has answered."""

    def __init__(self, endpoint: str, prefix: str, directory: Path) -> None:
        command = [sys.executable, "-m", "tests.engines.owner_process", endpoint, prefix, str(directory)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.output: IO[str] = cast("IO[str]", self.process.stdout)
        self.answered: list[int] = []
        self.read_until(1)

    def read_until(self, count: int) -> None:
        while len(self.answered) < count and (line := self.output.readline()):
            self._note(line)
        assert len(self.answered) >= count

    def end(self) -> int:
        for line in self.output:
            self._note(line)
        return self.process.wait()

    def _note(self, line: str) -> None:
        what, _, number = line.partition(" ")
        if what == "answered" and number.endswith("\n"):
            self.answered.append(int(number))


class TestProcesses:
    pytestmark = rest

    def in_the_log(self, endpoint: str, prefix: str, directory: Path) -> list[int]:
        engine = ObjectEngine(store_at(endpoint, prefix), OsFiles(), directory, TestClock())
        engine.claim()
        opened(engine, LogKind.INTAKE)
        found = numbers(engine, LogKind.INTAKE)
        engine.release()
        return found

    def test_kill_9_and_another_goes_on(self, endpoint: str, tmp_path: Path) -> None:
        answered: list[int] = []
        for life in range(5):
            owner = Process(endpoint, "killed", tmp_path / str(life))
            assert owner.answered[0] >= len(answered), "what was answered before is lost"
            owner.read_until(20)
            owner.process.send_signal(signal.SIGKILL)
            assert owner.end() == -signal.SIGKILL
            answered += owner.answered
        found = self.in_the_log(endpoint, "killed", tmp_path / "last")
        assert set(answered) <= set(found)
        assert found == list(range(len(found)))

    def test_one_that_lives_is_taken_over(self, endpoint: str, tmp_path: Path) -> None:
        owners = [Process(endpoint, "alive", tmp_path / "0")]
        for life in range(1, 4):
            former = owners[-1]
            former.read_until(5)
            if life == 2:
                former.process.send_signal(signal.SIGSTOP)
            owners.append(Process(endpoint, "alive", tmp_path / str(life)))
            owners[-1].read_until(5)
            if life == 2:
                former.process.send_signal(signal.SIGCONT)
            assert former.end() == LOST
        os.kill(owners[-1].process.pid, signal.SIGKILL)
        owners[-1].end()
        answered = [number for owner in owners for number in owner.answered]
        assert answered == sorted(set(answered)), "two owners answered the same number"
        found = self.in_the_log(endpoint, "alive", tmp_path / "last")
        assert set(answered) <= set(found)
