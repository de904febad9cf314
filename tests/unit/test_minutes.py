"""The minutes' history: what is written, what a kill and a restart leave of it, its bounds, and what is read of it."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tarry.api.operations import GetRates
from tarry.api.rates import RatePoint
from tarry.base.config import Config
from tarry.base.errors import InvalidArgumentError, InvalidMessageError
from tarry.broker import Broker, minute_files
from tarry.broker.minute_files import DAY_MINUTES, Minute, MinuteFigures, MinuteWriter, paths_of, read_minutes
from tarry.broker.queries.rates import MINUTE_MS, rates
from tarry.testing import TestBroker, open_broker

DAY = 20_000
FIRST = DAY * DAY_MINUTES


def minute(number: int, topics: dict[str, MinuteFigures] | None = None, **figures: int) -> Minute:
    return Minute(number, MINUTE_MS, MinuteFigures(**figures), topics or {}, herd_rows=number % 7, herd_due_ms=number)


def written(data: Path, *minutes: Minute) -> None:
    writer = MinuteWriter(data)
    for each in minutes:
        writer.write(each)
    writer.close()


def asked(data: Path, since: int, until: int, *, topic: str | None = None, points_max: int = 720) -> list[RatePoint]:
    span = GetRates(topic=topic, since_ms=since * MINUTE_MS, until_ms=until * MINUTE_MS, points_max=points_max)
    return rates(data, until * MINUTE_MS, span).points


def test_what_was_written_is_read(tmp_path: Path) -> None:
    topics = {
        "a": MinuteFigures(accepted=3, pending=2, lateness_p50_ms=0, lateness_p99_ms=5, lateness_max_ms=9),
        "b": MinuteFigures(ready=1),
    }
    given = minute(FIRST + 7, topics, accepted=3, fired=2, handed_out=2, acknowledged=1, dead=1)
    written(tmp_path, given)
    assert list(read_minutes(tmp_path, FIRST, FIRST + DAY_MINUTES)) == [given]
    [point] = asked(tmp_path, FIRST, FIRST + 60)
    assert (point.at_ms, point.covered_ms) == ((FIRST + 7) * MINUTE_MS, MINUTE_MS)
    assert (point.accepted, point.fired, point.handed_out, point.acknowledged, point.dead) == (3, 2, 2, 1, 1)
    assert point.lateness_p99_ms is None
    assert (point.herd_rows, point.herd_due_ms) == (given.herd_rows, given.herd_due_ms)
    [of_a] = asked(tmp_path, FIRST, FIRST + 60, topic="a")
    assert (of_a.accepted, of_a.pending, of_a.lateness_p99_ms, of_a.herd_due_ms) == (3, 2, 5, None)


def test_a_span_to_come_has_nothing(tmp_path: Path) -> None:
    written(tmp_path, minute(FIRST), minute(FIRST + 9))
    to_come = GetRates(topic="orders", since_ms=(FIRST + 20) * MINUTE_MS, until_ms=(FIRST + 30) * MINUTE_MS)
    for now in (FIRST + 1, FIRST + 9):
        assert rates(tmp_path, now * MINUTE_MS, to_come).points == []


def test_what_nobody_kept_is_a_gap(tmp_path: Path) -> None:
    written(tmp_path, minute(FIRST + 3), minute(FIRST + 9, accepted=5))
    assert [point.at_ms // MINUTE_MS - FIRST for point in asked(tmp_path, FIRST, FIRST + 60)] == [3, 9]
    assert asked(tmp_path, FIRST - 5000, FIRST - 4000) == []


def test_a_topic_without_a_row_had_nothing_unless_some_were_left_out(tmp_path: Path) -> None:
    few = {"a": MinuteFigures(accepted=1)}
    many = {f"t{n:02}": MinuteFigures(accepted=n + 1) for n in range(minute_files.TOPICS_MAX + 1)}
    written(tmp_path, minute(FIRST, few), minute(FIRST + 1, many))
    assert [point.accepted for point in asked(tmp_path, FIRST, FIRST + 2, topic="none")] == [0]
    # The one in which least moved had no place.
    assert [point.accepted for point in asked(tmp_path, FIRST, FIRST + 2, topic="t00")] == [0]
    assert [point.accepted for point in asked(tmp_path, FIRST, FIRST + 2, topic="t16")] == [0, 17]


def test_steps_sum_counts_and_keep_the_worst_lateness(tmp_path: Path) -> None:
    written(
        tmp_path,
        *(
            replace(minute(FIRST + n), figures=MinuteFigures(accepted=n, pending=n, lateness_p99_ms=n % 4 or None))
            for n in range(10)
        ),
    )
    points = asked(tmp_path, FIRST, FIRST + 10, points_max=3)
    assert [(p.at_ms // MINUTE_MS - FIRST, p.accepted, p.pending, p.covered_ms) for p in points] == [
        (0, 10, 4, 5 * MINUTE_MS),
        (5, 35, 9, 5 * MINUTE_MS),
    ]
    assert [p.lateness_p99_ms for p in points] == [3, 3]
    assert [p.herd_rows for p in points] == [
        max((FIRST + n) % 7 for n in range(5)),
        max((FIRST + n) % 7 for n in range(5, 10)),
    ]


@pytest.mark.parametrize("days", [1, 7, 30])
@pytest.mark.parametrize("points_max", [1, 60, 720, 1500])
def test_no_answer_has_more_points_than_were_asked_for(tmp_path: Path, days: int, points_max: int) -> None:
    writer = MinuteWriter(tmp_path)
    for number in range(FIRST + 5, FIRST + days * DAY_MINUTES, 97):
        writer.write(minute(number, accepted=1))
    writer.close()
    end = FIRST + days * DAY_MINUTES
    points = asked(tmp_path, FIRST + 3, end - 3, points_max=points_max)
    assert 0 < len(points) <= points_max
    if days <= points_max:
        assert sum(point.accepted for point in points) == len(range(FIRST + 5, end, 97))


def test_a_torn_row_and_a_changed_byte_are_gaps(tmp_path: Path) -> None:
    written(tmp_path, *(minute(FIRST + n, {"a": MinuteFigures(accepted=n + 1)}, accepted=n + 1) for n in range(3)))
    path, _ = paths_of(tmp_path, DAY)
    content = bytearray(path.read_bytes())
    content[32 + 68 + 9] ^= 1  # in the broker's row of the second minute
    path.write_bytes(content)
    assert [p.accepted for p in asked(tmp_path, FIRST, FIRST + 3)] == [1, 3]
    content[32 + 2 * 68 + 5 :] = b""
    path.write_bytes(content)
    assert [p.accepted for p in asked(tmp_path, FIRST, FIRST + 3)] == [1]
    written(tmp_path, minute(FIRST + 1, accepted=8))
    assert [p.accepted for p in asked(tmp_path, FIRST, FIRST + 3)] == [1, 8]


def test_rows_of_a_name_that_was_lost_are_no_other_topics(tmp_path: Path) -> None:
    written(tmp_path, minute(FIRST, {"lost": MinuteFigures(accepted=1)}))
    _, names = paths_of(tmp_path, DAY)
    names.write_bytes(b"lo")  # as a power failure may leave it
    written(tmp_path, minute(FIRST + 1, {"other": MinuteFigures(accepted=2)}))
    assert names.read_bytes() == b"other\n"
    assert [p.accepted for p in asked(tmp_path, FIRST, FIRST + 2, topic="other")] == [0, 2]


def test_a_damaged_name_costs_no_other(tmp_path: Path) -> None:
    """Its line was taken for shorter than it is, and the last name lost its end at the next start."""
    written(tmp_path, minute(FIRST, {"orders": MinuteFigures(accepted=1), "rides": MinuteFigures(accepted=2)}))
    _, names = paths_of(tmp_path, DAY)
    names.write_bytes(names.read_bytes().replace(b"orders", b"or\xc3\xa9rs"))
    written(tmp_path, minute(FIRST + 1, {"new": MinuteFigures(accepted=4)}))
    there = {each.number: sorted(each.topics) for each in read_minutes(tmp_path, FIRST, FIRST + 2)}
    assert there == {FIRST: ["rides"], FIRST + 1: ["new"]}


def test_a_day_that_cannot_be_read_is_a_gap(tmp_path: Path) -> None:
    written(tmp_path, minute(FIRST), minute(FIRST + 2 * DAY_MINUTES))
    paths_of(tmp_path, DAY + 1)[0].mkdir()
    found = asked(tmp_path, FIRST, FIRST + 3 * DAY_MINUTES, points_max=1500)
    assert [point.at_ms // MINUTE_MS // DAY_MINUTES for point in found] == [DAY, DAY + 2]


@pytest.mark.parametrize("damage", [b"", b"TARRYMIN\x09", b"something else that is no header at all"])
def test_a_file_of_another_version_is_begun_anew(tmp_path: Path, damage: bytes) -> None:
    written(tmp_path, minute(FIRST, accepted=1))
    path, _ = paths_of(tmp_path, DAY)
    path.write_bytes(damage + path.read_bytes()[len(damage) :] if damage else b"")
    assert asked(tmp_path, FIRST, FIRST + 2) == []
    written(tmp_path, minute(FIRST + 1, accepted=2))
    assert [p.accepted for p in asked(tmp_path, FIRST, FIRST + 2)] == [2]


def test_a_minute_of_two_processes_has_the_figures_of_both(tmp_path: Path) -> None:
    one, other = MinuteFigures(accepted=1, pending=9, lateness_p99_ms=7), MinuteFigures(accepted=2, pending=1)
    for figures, topic in ((one, "a"), (other, "b")):
        written(tmp_path, Minute(FIRST, 20_000, figures, {topic: figures}, 0, 3, 4))
    [found] = read_minutes(tmp_path, FIRST, FIRST + 1)
    assert found.covered_ms == 40_000
    assert found.figures == MinuteFigures(accepted=3, pending=1, lateness_p99_ms=7)
    assert {name: each.accepted for name, each in found.topics.items()} == {"a": 1, "b": 2}


def test_thirty_days_stay_and_take_less_than_they_may(tmp_path: Path) -> None:
    writer = MinuteWriter(tmp_path)
    names = iter(range(10**6))
    for day in range(33):
        last = (DAY + day) * DAY_MINUTES + DAY_MINUTES - 1
        for number in range(last - 69, last + 1):
            topics = {
                f"{next(names):06}" + "n" * 249: MinuteFigures(accepted=1) for _ in range(minute_files.TOPICS_MAX)
            }
            writer.write(minute(number, topics))
    writer.close()
    kept = sorted(path.name for path in (tmp_path / "history").iterdir())
    assert len(kept) == 2 * 31
    assert sum(path.stat().st_size for path in (tmp_path / "history").iterdir()) < 50e6
    [of_last] = [paths_of(tmp_path, DAY + 32)[1]]
    assert of_last.read_bytes().count(b"\n") == minute_files.NAMES_MAX
    found = asked(tmp_path, FIRST, FIRST + 33 * DAY_MINUTES, points_max=1500)
    assert found[0].at_ms // MINUTE_MS >= (DAY + 2) * DAY_MINUTES


def test_counts_beyond_a_field_are_the_most_that_it_can_say(tmp_path: Path) -> None:
    written(tmp_path, minute(FIRST, accepted=1 << 40))
    assert [p.accepted for p in asked(tmp_path, FIRST, FIRST + 1)] == [0xFFFFFFFF]


def kept(broker: TestBroker) -> None:
    """Let a minute pass, and have it written."""
    broker.advance("1m")
    broker.components.minutes.look()


def test_a_broker_keeps_what_its_minutes_brought(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.set_group("orders", "g")
        for _ in range(4):
            broker.schedule("orders", b"x", due=broker.clock.now_ms() + 5000)
        broker.schedule("other", b"x", delay="1d")
        broker.advance("10s")
        got = broker.receive("orders", "g", max_messages=3)
        lease, offset = got.column("lease").to_numpy(), got.column("offset").to_numpy()
        broker.ack("orders", "g", lease[:2], offset[:2])
        kept(broker)
        kept(broker)
        first, second = broker.rates(until_ms=broker.clock.now_ms() + 1).points[-2:]
        assert (first.accepted, first.fired, first.handed_out, first.acknowledged) == (5, 4, 3, 2)
        assert (first.pending, first.ready) == (1, 2)
        assert (first.herd_rows, first.herd_due_ms) == (4, broker.clock.now_ms() - 2 * MINUTE_MS - 5000)
        assert (second.accepted, second.fired, second.handed_out, second.acknowledged) == (0, 0, 0, 0)
        assert second.herd_due_ms is None
        [of_other, _] = broker.rates(topic="other", until_ms=broker.clock.now_ms() + 1).points[-2:]
        assert (of_other.accepted, of_other.pending, of_other.handed_out) == (1, 1, 0)
        with pytest.raises(InvalidArgumentError, match=r"since_ms is 5; allowed: before until_ms, 5"):
            broker.rates(since_ms=5, until_ms=5)
        with pytest.raises(InvalidArgumentError, match=r"points_max is 0; allowed: 1 to 1500"):
            broker.rates(points_max=0)
        with pytest.raises(InvalidMessageError):
            broker.rates(topic="no topic!")


def test_the_history_is_there_after_a_restart(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.schedule("orders", b"x", delay="1d")
        kept(broker)
        clock = broker.clock
    clock.advance_ms(10 * MINUTE_MS)
    with open_broker(tmp_path, clock=clock) as broker:
        kept(broker)
        points = broker.rates().points
        assert [point.accepted for point in points] == [1, 0]
        assert points[1].at_ms - points[0].at_ms > 9 * MINUTE_MS  # a gap


def test_a_stop_keeps_the_minute_that_is_going_on(tmp_path: Path) -> None:
    with Broker.open(Config(data=tmp_path, pipeline="off", disk_free_bytes_min=0)) as broker:
        broker.schedule("orders", b"x", delay="1d")
        began_ms = broker.clock.now_ms()
    [found] = read_minutes(tmp_path, began_ms // MINUTE_MS - 1, began_ms // MINUTE_MS + 2)
    assert found.figures.accepted == 1 and found.covered_ms > 0


def test_a_clock_that_was_set_back_writes_no_row(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.clock.advance_ms(-5 * MINUTE_MS)
        broker.components.minutes.look()
        assert broker.rates().points == []


def test_a_disk_that_takes_nothing_stops_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_broker(tmp_path) as broker, caplog.at_level(logging.WARNING):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", _full)
            kept(broker)
        assert "is not written: [Errno 28]" in caplog.text
        broker.schedule("orders", b"x", delay="1d")
        kept(broker)
        assert [point.accepted for point in broker.rates().points] == [1]


def _full(file: int, content: bytes, at: int) -> int:
    raise OSError(28, "No space left on device")


def test_a_herd_is_counted_over_batches(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        lateness = broker.components.lateness
        for moments in ([1, 2, 2], [2, 2, 3], [3, 4]):
            due = np.array(moments, np.int64)
            lateness.on_queued(due, due)
        assert lateness.take_herd() == (2, 4)
        assert lateness.take_herd() == (0, 0)
