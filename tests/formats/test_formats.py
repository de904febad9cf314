"""Every format that there was: the present broker opens it, and finds all that was accepted, as it stood."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.base.config import Config
from tarry.broker import Broker
from tarry.cli.main import run

HERE = Path(__file__).parent
VERSIONS = range(1, 8)
NAMES_SINCE, TOKENS_SINCE = 2, 4
FAR_MS = 2_840_140_800_000
YEARS_MS = 40 * 365 * 86_400_000


@pytest.fixture(params=["stopped", "killed"])
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def data(tmp_path: Path, version: int, state: str) -> Path:
    return unpacked(tmp_path, version, state)


def unpacked(directory: Path, version: int, state: str = "stopped") -> Path:
    with tarfile.open(HERE / f"checkpoint-{version}.tar.gz") as archive:
        members = [each for each in archive.getmembers() if each.name.split("/")[0] == state]
        archive.extractall(directory, members, filter="data")
    return directory / state


def opened(data: Path) -> Broker:
    """On the real clock: a directory is of that or of a test clock. What was ready then is kept for long enough."""
    return Broker.open(
        Config(data=data, pipeline="off", retention_ms=YEARS_MS, disk_free_bytes_min=0, dedupe_ms=0), threads=False
    )


def bodies_of(broker: Broker, topic: str, group: str) -> Iterator[tuple[str, int]]:
    consumer = broker.subscribe(topic, group)
    while (batch := consumer.fetch(100, 0)) is not None:
        bodies = [body.decode() for body in batch.column("body").to_pylist()]
        yield from zip(bodies, batch.column("attempt").to_pylist(), strict=True)
    consumer.close()


def check(broker: Broker, version: int, *, again: bool) -> None:
    """``again``: what was handed out before comes as one more try."""
    more = int(again)
    broker.step()
    pending = [
        (row["topic"], row["body"].decode(), row["due_ms"] - FAR_MS)
        for row in broker.list_pending(limit=100).rows.to_pylist()
    ]
    wanted = [("orders", f"far {number}", number) for number in range(3)]
    if version >= NAMES_SINCE:
        wanted += [("orders", "far, with all", 9), ("orders", "in its place", 10), ("series", "each year", 0)]
        wanted += [("loaded", "kept", 0), ("loaded", "kept", 1)]
    assert sorted(pending) == sorted(wanted)
    waiting = [(f"ready {number}", 1 + (number == 2) + more) for number in range(2, 6)]
    assert sorted(bodies_of(broker, "queue", "workers")) == waiting
    assert sorted(bodies_of(broker, "queue", "others")) == [(f"ready {n}", 1 + more) for n in range(6)]
    assert list(bodies_of(broker, "orders", "billing")) == [("soon", 1 + more)]


def test_all_that_was_accepted_is_found(data: Path, version: int) -> None:
    assert json.loads((data / "checkpoint.json").read_text())["version"] == version
    with opened(data) as broker:
        check(broker, version, again=False)
        if version >= NAMES_SINCE:
            named = broker.find_key("orders", "a key")
            assert named is not None
            [message] = [
                row for row in broker.list_pending(topic="orders", limit=100).rows.to_pylist() if row["key"] == "a key"
            ]
            assert (message["id"], message["tag"], message["tries"]) == ("an id", "red", 3)
            assert [row["body"] for row in broker.dead_letters("bad", "workers").to_pylist()] == [b"a dead letter"]
            assert broker.group_info("bad", "workers").tries == 1
        assert len(broker.tokens()) == (version >= TOKENS_SINCE)
        receipt = broker.schedule("orders", "new", due=FAR_MS, key="new")
        assert broker.cancel(receipt.handle).value == "done"
    with opened(data) as broker:
        check(broker, version, again=True)
        if version >= NAMES_SINCE:
            assert broker.cancel_key("orders", "again").value == "done"
    assert json.loads((data / "checkpoint.json").read_text())["version"] == VERSIONS[-1]


def test_nothing_in_it_is_damaged(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(data)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("nothing damaged")
