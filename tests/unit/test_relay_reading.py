"""Ranges of offsets are read whole and once, over holes and ends, by a consumer that reads on from range to range."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import CorruptError, UnavailableError
from tarry_relay import reading
from tarry_relay.positions import OffsetRange
from tarry_relay.reading import RangeReader

NUMBER = 7


class Message:
    """A record, or the end of a partition."""

    def __init__(self, partition: int, offset: int, error: KafkaError | None = None) -> None:
        self._partition, self._offset, self._error = partition, offset, error

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error


class Log:
    """Partitions whose offsets have holes, and a consumer of them as librdkafka's is."""

    def __init__(self, partitions: int) -> None:
        self.records: list[list[int]] = [[] for _ in range(partitions)]
        self.ends = [0] * partitions
        self.positions: dict[int, int] = {}
        self.assigned = 0
        self._said: dict[int, int] = {}

    def append(self, partition: int, visible: list[bool]) -> None:
        """Some offsets more, of which not all are records."""
        first = self.ends[partition]
        self.records[partition] += [first + n for n, is_record in enumerate(visible) if is_record]
        self.ends[partition] += len(visible)

    def incremental_assign(self, some: list[Any]) -> None:
        for tp in some:
            assert tp.partition not in self.positions
            self.positions[tp.partition] = tp.offset
            self.assigned += 1

    def incremental_unassign(self, some: list[Any]) -> None:
        for tp in some:
            del self.positions[tp.partition]
            self._said.pop(tp.partition, None)

    def consume(self, count: int, timeout: float) -> list[Message]:
        assert count > 0
        got: list[Message] = []
        for partition, position in self.positions.items():
            some = [offset for offset in self.records[partition] if offset >= position][: count - len(got)]
            got += [Message(partition, offset) for offset in some]
            self.positions[partition] = some[-1] + 1 if some else position
            if len(got) == count:
                break
            end = self.ends[partition]
            if self._said.get(partition) != end:  # it is told once
                self._said[partition] = self.positions[partition] = end
                got.append(Message(partition, end, KafkaError(KafkaError._PARTITION_EOF)))
        return got[:count]


def read(reader: RangeReader, *ranges: OffsetRange) -> dict[int, list[int]]:
    got: dict[int, list[int]] = {r.partition: [] for r in ranges}
    for whole, messages in reader.read(ranges, stall_s=5.0):
        got[whole.partition] += [message.offset() for message in messages]
    return got


def of(partition: int, start: int, end: int, number: int = NUMBER) -> OffsetRange:
    return OffsetRange("t", partition, number, start, end)


PIECES = st.lists(
    st.tuples(st.lists(st.booleans(), max_size=8), st.lists(st.booleans(), max_size=8), st.integers(0, 9)),
    min_size=1,
    max_size=8,
)


@given(PIECES, st.booleans(), st.integers(0, 6))
def test_each_record_comes_once(pieces: list[tuple[list[bool], list[bool], int]], rests: bool, kept_max: int) -> None:
    """Whatever comes between the ranges, and wherever a range ends: also before what has been fetched already."""
    log = Log(2)
    reader, at = RangeReader(log), [0, 0]
    seen: list[list[int]] = [[], []]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "KEPT_ROWS_MAX", kept_max)
        for *new, back in [*pieces, ([], [], 0), ([], [], 0)]:
            for partition, visible in enumerate(new):
                log.append(partition, visible)
            ends = [max(start, end - back) for start, end in zip(at, log.ends, strict=True)]
            ranges = [of(p, at[p], ends[p]) for p in (0, 1) if ends[p] > at[p]]
            for partition, offsets in read(reader, *ranges).items():
                assert offsets == [n for n in log.records[partition] if at[partition] <= n < ends[partition]]
                seen[partition].extend(offsets)
            at = ends
            if rests:
                reader.rest()
                assert not log.positions
    assert seen == log.records


def test_what_follows_is_not_fetched_anew() -> None:
    log = Log(1)
    reader = RangeReader(log)
    for step in range(5):
        log.append(0, [True] * 10)
        assert read(reader, of(0, 6 * step, 6 * step + 6)) == {0: list(range(6 * step, 6 * step + 6))}
    assert log.assigned == 1


def test_a_range_that_begins_elsewhere_is_read_from_there() -> None:
    """A batch that is repeated, and a topic that was made anew, whose partition has another number."""
    log = Log(1)
    reader = RangeReader(log)
    log.append(0, [True] * 10)
    assert read(reader, of(0, 0, 6)) == {0: [0, 1, 2, 3, 4, 5]}
    assert read(reader, of(0, 0, 6)) == {0: [0, 1, 2, 3, 4, 5]}
    assert log.assigned == 2
    assert read(reader, of(0, 6, 8, NUMBER + 1)) == {0: [6, 7]}
    assert log.assigned == 3


def test_what_was_deleted_is_an_error_and_so_is_silence() -> None:
    log = Log(1)
    log.append(0, [True] * 3)
    with pytest.raises(UnavailableError, match=r"nothing came of t/0 \[3, 5\) for 0.01 s"):
        list(RangeReader(log).read([of(0, 3, 5)], stall_s=0.01))
    lost = Log(1)
    lost.consume = lambda *_, **__: [Message(0, 0, KafkaError(KafkaError._AUTO_OFFSET_RESET))]  # type: ignore[method-assign]
    with pytest.raises(CorruptError, match="not there any more"):
        list(RangeReader(lost).read([of(0, 0, 5)]))
