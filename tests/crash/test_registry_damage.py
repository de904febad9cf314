"""Damage to the registry's files: what was cancelled stays so, and lists and counts are those of an undamaged copy.

The registry is made again where it has less than had been durable. What it lacks beyond that comes from the intake.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tarry.api.outcome import Outcome
from tarry.base.errors import CorruptError
from tarry.names import continuity
from tarry.names.record_files import BLOCK_BYTES, HEADER_BYTES
from tarry.testing import TestBroker, TestClock, open_broker

T0 = 1_795_264_000_000
MESSAGES = 120


def schedule(broker: TestBroker, first: int, count: int) -> list[str]:
    """That many messages, of which every third has a key; their handles."""
    return [
        broker.schedule("t", str(i), delay="2h", key=f"k{i}" if i % 3 == 0 else None).handle
        for i in range(first, first + count)
    ]


def cancel(broker: TestBroker, handles: list[str]) -> None:
    for handle in handles:
        assert broker.cancel_many([handle]) == [Outcome.DONE]


@dataclass(frozen=True)
class State:
    """What a broker knows of its messages, and delivers."""

    pending: int
    listed: tuple[str, ...]
    keyed: int
    delivered: tuple[str, ...]

    @classmethod
    def of(cls, directory: Path) -> State:
        with open_broker(directory, clock=TestClock(T0 + 60_000)) as broker:
            listed: list[str] = []
            cursor = None
            while True:
                page = broker.list_pending(topic="t", limit=1000, cursor=cursor)
                listed += [body.decode() for body in page.rows["body"].to_pylist()]
                if (cursor := page.cursor) is None:
                    break
            pending = sum(topic.pending for topic in broker.pending())
            keyed = sum(broker.find_key("t", f"k{i}") is not None for i in range(MESSAGES))
            broker.advance("3h")
            bodies = broker.receive("t", "g", max_messages=1000)["body"].to_pylist()
            return cls(pending, tuple(sorted(listed)), keyed, tuple(sorted(body.decode() for body in bodies)))

    @classmethod
    def after_damage(cls, directory: Path) -> State:
        """At the first start, or at the second: damage that is met while serving ends a broker."""
        try:
            return cls.of(directory)
        except CorruptError as error:
            assert "the next start makes it again" in str(error)
            return cls.of(directory)


class Killed:
    """A copy of the directory as a kill left it, and one that was stopped; each to be damaged in a copy of its own."""

    def __init__(self, directory: Path) -> None:
        self._work = directory / "work"
        self.killed, self.stopped = directory / "killed", directory / "stopped"
        with open_broker(directory / "data", clock=TestClock(T0)) as broker:
            handles = schedule(broker, 0, MESSAGES // 2)
            flush = broker.components.registry._database._db.flush  # noqa: SLF001 - by itself after megabytes
            flush()
            cancel(broker, handles[:20])
            flush()  # so that the MANIFEST has something to lose that is neither the beginning nor the end
            broker.step()
            handles += schedule(broker, MESSAGES // 2, MESSAGES // 2)
            cancel(broker, handles[-20:])
            assert broker.checkpoint()
            cancel(broker, handles[20:30])  # behind the checkpoint
            shutil.copytree(directory / "data", self.killed)
        shutil.copytree(directory / "data", self.stopped)
        self.expected = State.of(self.copy(self.killed))
        assert self.expected.pending == len(self.expected.listed) == MESSAGES - 50
        assert self.expected.listed == self.expected.delivered
        assert State.of(self.copy(self.stopped)) == self.expected

    def copy(self, of: Path) -> Path:
        shutil.rmtree(self._work, ignore_errors=True)
        return shutil.copytree(of, self._work)

    def check(self, of: Path, name: str, damage: Callable[[bytearray], Any]) -> None:
        """Damage a file of a copy, and compare; it stands still where it would be endless."""
        directory = self.copy(of)
        path = directory / "registry" / name
        content = bytearray(path.read_bytes())
        damage(content)
        path.write_bytes(content)
        assert State.after_damage(directory) == self.expected


@pytest.fixture(scope="module")
def dirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(continuity, "MARK_BYTES", 200)  # in proportion to files as small as these
        yield Killed(tmp_path_factory.mktemp("registry"))


def files(directory: Path, pattern: str) -> list[Path]:
    """Files of the registry that have something in them."""
    return [p for p in sorted((directory / "registry").glob(pattern)) if p.stat().st_size]


def records(content: bytes) -> list[int]:
    """Where the records of one of RocksDB's logs begin."""
    places, at = [], 0
    while at + HEADER_BYTES <= len(content):
        if BLOCK_BYTES - at % BLOCK_BYTES < HEADER_BYTES:
            at += BLOCK_BYTES - at % BLOCK_BYTES
            continue
        places.append(at)
        at += HEADER_BYTES + int.from_bytes(content[at + 4 : at + 6], "little")
    return places


def flip(at: int, mask: int = 0xFF) -> Callable[[bytearray], None]:
    def damage(content: bytearray) -> None:
        content[at] ^= mask

    return damage


def cut(at: int) -> Callable[[bytearray], None]:
    def damage(content: bytearray) -> None:
        del content[at:]

    return damage


def zero(at: int) -> Callable[[bytearray], None]:
    def damage(content: bytearray) -> None:
        content[at : at + 512] = bytes(len(content[at : at + 512]))

    return damage


PLACES = 6


@pytest.mark.parametrize("kind", [flip, cut, zero])
def test_damage_to_the_log_after_a_kill(dirs: Killed, kind: Callable[[int], Callable[[bytearray], None]]) -> None:
    [log] = files(dirs.killed, "*.log")
    size = log.stat().st_size
    for place in range(PLACES):
        dirs.check(dirs.killed, log.name, kind(size * place // PLACES + 7 * place))


def test_a_record_that_rocksdb_would_read_for_ever(dirs: Killed) -> None:
    for pattern in ("*.log", "MANIFEST-*"):
        [path] = files(dirs.killed, pattern)
        places = records(path.read_bytes())
        for at in (places[0], places[len(places) // 2], places[-1]):
            dirs.check(dirs.killed, path.name, flip(at + 6, 4))


@pytest.mark.rest
def test_a_manifest_that_ends_too_soon(dirs: Killed) -> None:
    """RocksDB opens what was before; the log has what came after it, and between them something is missing."""
    [path] = files(dirs.killed, "MANIFEST-*")
    for at in records(path.read_bytes())[1:]:
        dirs.check(dirs.killed, path.name, cut(at))


@pytest.mark.rest
@pytest.mark.parametrize("pattern", ["*.sst", "MANIFEST-*", "CURRENT"])
@pytest.mark.parametrize("kind", [flip, cut, zero])
def test_damage_after_a_clean_stop(
    dirs: Killed, pattern: str, kind: Callable[[int], Callable[[bytearray], None]]
) -> None:
    for path in files(dirs.stopped, pattern):
        for place in range(2):
            dirs.check(dirs.stopped, path.name, kind((place + 1) * path.stat().st_size // 3))


def test_a_damaged_end_behind_the_checkpoint_is_taken_from_the_intake(
    dirs: Killed, caplog: pytest.LogCaptureFixture
) -> None:
    [log] = files(dirs.killed, "*.log")
    dirs.check(dirs.killed, log.name, cut(log.stat().st_size - 20))
    assert "again" not in caplog.text, "nothing durable is missing: it need not be made again"
    dirs.check(dirs.killed, log.name, cut(log.stat().st_size // 2))
    fields = json.loads((dirs.killed / "checkpoint.json").read_text())
    assert f"but write {fields['registry_writes']} had been durable" in caplog.text
    assert "it ends with write " in caplog.text


def test_a_directory_of_an_earlier_version(dirs: Killed) -> None:
    """Its checkpoint does not say how far anything was durable, and its registry counts nothing."""
    directory = dirs.copy(dirs.stopped)
    path = directory / "checkpoint.json"
    fields = json.loads(path.read_text())
    for name in ("crc", "registry_writes", "jobs_changes", "acks", "intake_first", "ready_first"):
        del fields[name]
    fields["version"] = 2
    fields["crc"] = zlib.crc32(json.dumps(fields, sort_keys=True).encode())
    path.write_text(json.dumps(fields))
    assert State.of(directory) == dirs.expected
    assert json.loads(path.read_text())["version"] == 7


def test_keys_of_a_bulk_job_that_no_checkpoint_tells_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are in no row of the intake: the row of the job says how far the registry had been durable."""
    keys = [f"bulk{i}" for i in range(50)]
    with open_broker(tmp_path / "data", clock=TestClock(T0)) as broker:
        schedule(broker, 0, 10)
        broker.step()
        bulk = broker.components.bulk
        number = bulk.begin("j").number
        rows = {"topic": ["t"] * 50, "due_ms": pa.array([T0 + 7_200_000] * 50), "body": [b"x"] * 50, "key": keys}
        bulk.commit(number, *bulk.stage(number, [pa.record_batch(rows)]))
        assert broker.components.jobs.unnamed() == []
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
    [log] = files(tmp_path / "killed", "*.log")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 500)
    with open_broker(tmp_path / "killed", clock=TestClock(T0)) as broker:
        assert [key for key in keys if broker.find_key("t", key) is None] == []
    assert "had been durable" in caplog.text
