"""Series are listed out of the registry: all of them, in due order, however much else is pending."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.crash.tools import World

from tarry.broker.queries import listing, series
from tarry.names import Registry
from tarry.repeat import Repeat
from tarry.testing import TestBroker, open_broker

HOUR_MS = 3_600_000


def pages(broker: TestBroker, limit: int = 100, **asked: object) -> list[list[bytes]]:
    found, cursor = [], None
    while True:
        page = broker.list_pending(repeating=True, limit=limit, cursor=cursor, **asked)
        found.append(page.rows.column("body").to_pylist())
        cursor = page.cursor
        if cursor is None:
            return found


def others(broker: TestBroker, rows: int = 5000) -> None:
    due = pa.array([broker.clock.now_ms() + HOUR_MS + n for n in range(rows)])
    broker.schedule_batch(pa.record_batch({"topic": ["b"] * rows, "due_ms": due, "body": [b""] * rows}))


def test_a_page_has_them_all_though_little_is_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "FIND_S", -1.0)
    with open_broker(tmp_path) as broker:
        for n in range(5):
            broker.schedule("a", b"%d" % n, delay=f"{n + 1}h", repeat=Repeat.every("1d"))
            others(broker)
        assert pages(broker) == [[b"0", b"1", b"2", b"3", b"4"]]
        assert pages(broker, topic="a") == [[b"0", b"1", b"2", b"3", b"4"]]
        assert pages(broker, topic="b") == [[]]
        now = broker.clock.now_ms()
        assert pages(broker, after_ms=now + 2 * HOUR_MS, until_ms=now + 4 * HOUR_MS) == [[b"1", b"2"]]


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_each_is_on_one_page_whatever_its_place_and_past(
    tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "READ_ROWS", 2)
    w = World(tmp_path, settings={"horizon_ms": 2000})
    broker = w.open()
    receipts = [broker.schedule("a", b"%02d" % n, delay="1h", repeat=Repeat.every("1h")) for n in range(9)]
    broker.schedule("a", b"10", delay="90m", key="k", repeat=Repeat.every("1h"))
    w.pipeline_commits()
    broker.advance("61m")
    assert broker.reschedule(receipts[3].handle, delay="30m").outcome == "done"
    assert broker.cancel(receipts[4].handle) == "done"
    assert broker.cancel_key("a", "k") == "done"
    broker.schedule("a", b"11", delay="5h", repeat=Repeat.every("1h"))
    expected = [b"03", b"00", b"01", b"02", b"05", b"06", b"07", b"08", b"11"]
    for _ in range(2):
        found = pages(broker, limit)
        assert [body for page in found for body in page] == expected
        assert all(len(page) == limit for page in found[:-1])
        w.reopen()
        broker = w.b
        broker.step()
    broker.close()


def test_a_page_is_full_however_long_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "READ_S", -1.0)
    monkeypatch.setattr(series, "READ_ROWS", 2)
    monkeypatch.setattr(series, "PAGE_BYTES_MAX", 5000)
    with open_broker(tmp_path) as broker:
        for n in range(7):
            broker.schedule("a", b"%d" % n + b"." * 1000, delay=f"{n + 1}h", repeat=Repeat.every("1d"))
        assert [len(page) for page in pages(broker, 3)] == [3, 3, 1]
        assert [len(page) for page in pages(broker, 3, topic="a")] == [3, 3, 1]
        assert [len(page) for page in pages(broker, 7, bodies=False)] == [7], "what is not sent does not count"
        broker.schedule("b", b"", delay="30m", repeat=Repeat.every("1d"))
        assert sum(len(page) for page in pages(broker, 3, topic="a")) == 7


def test_in_the_registry_of_an_older_version_they_are_searched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Registry, "series_from", None)
    with open_broker(tmp_path) as broker:
        broker.schedule("a", b"x", delay="1h", repeat=Repeat.every("1h"))
        broker.components.queries._places.registry.knows_series = False  # noqa: SLF001 - as it is read from such a one
        assert pages(broker) == [[b"x"]]


def test_the_registry_made_again_knows_them(tmp_path: Path) -> None:
    w = World(tmp_path)
    broker = w.open()
    for n in range(3):
        broker.schedule("a", b"%d" % n, delay=f"{n + 1}h", repeat=Repeat.every("1d"))
    w.pipeline_commits()
    broker.step()
    broker.close()
    (tmp_path / "registry" / "CURRENT").unlink()
    broker = w.open()
    assert pages(broker) == [[b"0", b"1", b"2"]]
    broker.close()
