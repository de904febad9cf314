"""The files of the minutes' history: one a day of UTC, with a fixed place for each minute.

Format: ``docs/formats.md``.

Nothing here is synced, and nothing is recovered: a row that is not whole has a wrong checksum, and is a gap.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

log = logging.getLogger(__name__)

DIRECTORY = "history"
VERSION = 1
DAY_MINUTES = 1440
DAYS_MAX = 30
"""A day's file goes when it is older."""
TOPICS_MAX = 16
"""Topics of a minute."""
NAMES_MAX = 1000
"""Different topics of a day."""
MOST = 0xFFFFFFFF
"""The largest number of a field; of a lateness: nothing was counted."""

COUNTS = ("accepted", "fired", "handed_out", "acknowledged")
LEVELS = ("pending", "ready", "dead")
LATENESS = ("lateness_p50_ms", "lateness_p99_ms", "lateness_max_ms")
_FIGURES = [(name, "<u4") for name in (*COUNTS, *LEVELS, *LATENESS)]
BROKER = np.dtype(
    [
        *(("covered_ms", "<u4"), ("left_out", "<u4"), *_FIGURES),
        *(("zero", "<u4"), ("herd_rows", "<u4"), ("herd_due_ms", "<i8"), ("crc", "<u4")),
    ]
)
TOPIC = np.dtype([("topic", "<u2"), ("zero", "<u2"), *_FIGURES, ("crc", "<u4")])

_HEADER = Struct("<8sII12xI")
_MAGIC = b"TARRYMIN"
_CRC = 4
_TOPICS_AT = _HEADER.size + DAY_MINUTES * BROKER.itemsize
_SLOT = TOPICS_MAX * TOPIC.itemsize
_U32 = Struct("<I")

Rows = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class MinuteFigures:
    """The figures of a minute, of the broker or of a topic. Lateness is None where nothing was counted."""

    accepted: int = 0
    fired: int = 0
    handed_out: int = 0
    acknowledged: int = 0
    pending: int = 0
    ready: int = 0
    dead: int = 0
    lateness_p50_ms: int | None = None
    lateness_p99_ms: int | None = None
    lateness_max_ms: int | None = None

    @property
    def moved(self) -> int:
        """The sum of the counts."""
        return self.accepted + self.fired + self.handed_out + self.acknowledged

    @property
    def is_nothing(self) -> bool:
        """True if there is nothing to tell."""
        return self == _NOTHING

    def after(self, before: MinuteFigures) -> MinuteFigures:
        """Return the figures of two parts of a minute together."""
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(before, name) for name in COUNTS}
        late: dict[str, Any] = {name: _later(getattr(self, name), getattr(before, name)) for name in LATENESS}
        return replace(self, **sums, **late)


_NOTHING = MinuteFigures()


@dataclass(frozen=True, slots=True)
class Minute:
    """A minute of the broker, and of its topics. ``number``: minutes since 1970-01-01."""

    number: int
    covered_ms: int
    figures: MinuteFigures
    topics: Mapping[str, MinuteFigures]
    left_out: int = 0
    herd_rows: int = 0
    herd_due_ms: int = 0

    def after(self, before: Minute) -> Minute:
        """Return this one, and an earlier part of the same minute, together."""
        names = {**before.topics, **self.topics}
        topics = {n: self.topics.get(n, _NOTHING).after(before.topics.get(n, _NOTHING)) for n in names}
        herd = max((self.herd_rows, self.herd_due_ms), (before.herd_rows, before.herd_due_ms))
        return Minute(
            *(self.number, self.covered_ms + before.covered_ms, self.figures.after(before.figures), topics),
            *(max(self.left_out, before.left_out), *herd),
        )


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def chosen(topics: Mapping[str, MinuteFigures]) -> dict[str, MinuteFigures]:
    """Return the topics that have a place in their minute."""
    told = [(name, each) for name, each in topics.items() if not each.is_nothing]
    told.sort(key=lambda entry: (-entry[1].moved, -entry[1].pending - entry[1].ready, entry[0]))
    return dict(told[:TOPICS_MAX])


class MinuteWriter:
    """Writes minutes. One thread at a time."""

    def __init__(self, data: Path) -> None:
        self._directory = data / DIRECTORY
        self._day: int | None = None
        self._file = -1
        self._names_file = -1
        self._names: list[str] = []

    def write(self, minute: Minute) -> None:
        """Write a minute in its place, together with what is there.

        Raises:
            OSError: the disk does not allow it; a part of it may be there.
        """
        day, at = divmod(minute.number, DAY_MINUTES)
        self._open(day)
        there = next(read_minutes(self._directory.parent, minute.number, minute.number + 1), None)
        if there is not None:
            minute = minute.after(there)
        kept = chosen(minute.topics)
        lines = {name: self._line_of(name) for name in kept}
        kept = {name: figures for name, figures in kept.items() if lines[name]}
        told = sum(not each.is_nothing for each in minute.topics.values())
        rows = np.zeros(TOPICS_MAX, TOPIC)
        for place, (name, figures) in enumerate(kept.items()):
            _put(rows, place, figures)
            rows[place]["topic"] = lines[name]
            _seal(rows, place, _seed(minute.number, name))
        whole = np.zeros(1, BROKER)
        _put(whole, 0, minute.figures)
        left_out = max(minute.left_out, told - len(kept))
        beside = {"covered_ms": minute.covered_ms, "left_out": left_out, "herd_rows": minute.herd_rows}
        for field, value in beside.items():
            whole[0][field] = min(value, MOST)
        whole[0]["herd_due_ms"] = minute.herd_due_ms
        _seal(whole, 0, _seed(minute.number))
        # Topics first: a broker's row says of those without a row that nothing moved.
        os.pwrite(self._file, rows.tobytes(), _TOPICS_AT + at * _SLOT)
        os.pwrite(self._file, whole.tobytes(), _HEADER.size + at * BROKER.itemsize)

    def close(self) -> None:
        """Close the files."""
        for each in (self._file, self._names_file):
            if each >= 0:
                os.close(each)
        self._day, self._file, self._names_file, self._names = None, -1, -1, []

    def _open(self, day: int) -> None:
        if day == self._day:
            return
        self.close()
        self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._delete_before(day - DAYS_MAX)
        path, names = paths_of(self._directory.parent, day)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o640)
        if os.pread(self._file, _HEADER.size, 0) != _header(day):
            # New, of another version, or damaged: its rows could not be read.
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, _header(day), 0)
            with suppress(FileNotFoundError):
                names.unlink()
        self._names_file = os.open(names, flags | os.O_APPEND, 0o640)
        self._names = _read_names(names)
        os.ftruncate(self._names_file, sum(len(name) + 1 for name in self._names))
        self._day = day

    def _line_of(self, name: str) -> int:
        """Return the line of a topic's name, which may be written for it; 0: there are too many."""
        if name in self._names:
            return self._names.index(name) + 1
        if len(self._names) >= NAMES_MAX:
            return 0
        line = f"{name}\n".encode("latin-1")
        if os.write(self._names_file, line) != len(line):  # the disk is full
            os.ftruncate(self._names_file, sum(len(each) + 1 for each in self._names))
            return 0
        self._names.append(name)
        return len(self._names)

    def _delete_before(self, day: int) -> None:
        first = _name_of(day)
        for path in self._directory.iterdir():
            if path.suffix in (".minutes", ".topics") and path.stem < first:
                path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class DayRows:
    """Rows of a day that are whole: those of the broker, and those of one topic, by minute.

    ``numbers`` are those of the minutes. ``topic`` is None where no topic was asked for.
    """

    numbers: npt.NDArray[np.int64]
    broker: Rows
    topic: Rows | None = None


def read_days(data: Path, first: int, end: int, topic: str | None = None) -> Iterator[DayRows]:
    """Yield the minutes from number ``first`` to before ``end`` that are known, by day. Any thread.

    Of a topic, minutes in which it was left out are not known.
    """
    for day in range(first // DAY_MINUTES, -(-end // DAY_MINUTES)):
        numbers = np.arange(max(first, day * DAY_MINUTES), min(end, (day + 1) * DAY_MINUTES), dtype=np.int64)
        if not len(numbers):
            continue
        try:
            found = _read_day(data, day, numbers, topic)
        except OSError as error:
            # A day that the disk does not give back is a gap, as one that is damaged; the others can be told.
            log.warning("the history of %s cannot be read: %s", _name_of(day), error)
            continue
        if found is not None and len(found.numbers):
            yield found


def _read_day(data: Path, day: int, numbers: npt.NDArray[np.int64], topic: str | None) -> DayRows | None:
    path, names = paths_of(data, day)
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if os.pread(file, _HEADER.size, 0) != _header(day):
            return None
        at, count = int(numbers[0]) % DAY_MINUTES, len(numbers)
        broker = _read(file, BROKER, _HEADER.size + at * BROKER.itemsize, count)
        holds = np.array([_holds(broker, i, _seed(n)) for i, n in enumerate(numbers.tolist())], np.bool_)
        if topic is None:
            return DayRows(numbers[holds], broker[holds])
        slots = _read(file, TOPIC, _TOPICS_AT + at * _SLOT, count * TOPICS_MAX)
    finally:
        os.close(file)
    listed = _read_names(names)
    line = listed.index(topic) + 1 if topic in listed else 0
    rows = np.zeros(count, TOPIC)
    for field in LATENESS:
        rows[field] = MOST
    known = holds & (broker["left_out"] == 0)
    for place in np.flatnonzero(slots["topic"] == line).tolist() if line else ():
        of = place // TOPICS_MAX
        if holds[of] and _holds(slots, place, _seed(int(numbers[of]), topic)):
            rows[of], known[of] = slots[place], True
    return DayRows(numbers[known], broker[known], rows[known])


def read_minutes(data: Path, first: int, end: int) -> Iterator[Minute]:
    """Yield minutes with all their topics."""
    for rows in read_days(data, first, end):
        for number, row in zip(rows.numbers.tolist(), rows.broker, strict=True):
            path, names_path = paths_of(data, number // DAY_MINUTES)
            names = _read_names(names_path)
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                slot = _read(file, TOPIC, _TOPICS_AT + number % DAY_MINUTES * _SLOT, TOPICS_MAX)
            finally:
                os.close(file)
            named = [(i, names[int(r["topic"]) - 1]) for i, r in enumerate(slot) if 0 < int(r["topic"]) <= len(names)]
            topics = {n: _figures(slot[i]) for i, n in named if _holds(slot, i, _seed(number, n))}
            herd = int(row["herd_rows"]), int(row["herd_due_ms"])
            yield Minute(number, int(row["covered_ms"]), _figures(row), topics, int(row["left_out"]), *herd)


def paths_of(data: Path, day: int) -> tuple[Path, Path]:
    """Return the file of a day's minutes, and that of its topics' names."""
    name = _name_of(day)
    return data / DIRECTORY / f"{name}.minutes", data / DIRECTORY / f"{name}.topics"


def _name_of(day: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()


def _header(day: int) -> bytes:
    head = _HEADER.pack(_MAGIC, VERSION, day, 0)[:-_CRC]
    return head + _U32.pack(zlib.crc32(head))


def _read(file: int, dtype: np.dtype[np.void], at: int, count: int) -> Rows:
    content = os.pread(file, count * dtype.itemsize, at)
    return np.frombuffer(content.ljust(count * dtype.itemsize, b"\0"), dtype)


def _read_names(path: Path) -> list[str]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    # Names of topics are ASCII. In a damaged file each byte is a character, too: lengths tell where a line is.
    return [line.decode("latin-1") for line in content.split(b"\n")[:-1]][:NAMES_MAX]


def _seed(number: int, name: str = "") -> int:
    return zlib.crc32(name.encode(), zlib.crc32(_U32.pack(number)))


def _seal(rows: Rows, at: int, seed: int) -> None:
    rows[at]["crc"] = zlib.crc32(rows[at].tobytes()[:-_CRC], seed)


def _holds(rows: Rows, at: int, seed: int) -> bool:
    content = rows[at].tobytes()
    return bool(content[-_CRC:] == _U32.pack(zlib.crc32(content[:-_CRC], seed)))


def _put(rows: Rows, at: int, figures: MinuteFigures) -> None:
    for name in (*COUNTS, *LEVELS):
        rows[at][name] = min(getattr(figures, name), MOST)
    for name in LATENESS:
        value = getattr(figures, name)
        rows[at][name] = MOST if value is None else min(max(value, 0), MOST - 1)


def _figures(row: np.void) -> MinuteFigures:
    given: dict[str, Any] = {name: int(row[name]) for name in (*COUNTS, *LEVELS)}
    given |= {name: None if row[name] == MOST else int(row[name]) for name in LATENESS}
    return MinuteFigures(**given)
