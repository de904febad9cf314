"""A log engine in memory that several machines share, with a clock that a test moves.

:class:`SharedRounds` stands for a store of objects: it has *rounds*, each of one epoch, and says who has claimed which
epoch. A round is under way for ``latency_ms`` of its clock, and may be held up for as long as a test wants. It is
answered when it and all rounds before it have arrived and nobody has claimed a later epoch by then. An epoch ends where
the first later owner found its end: what arrives behind it counts for nobody.

Each :class:`MemoryEngine` is one life of a broker, on a machine of its own: its directory is a cache, which claiming
makes the same as the rounds are.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tarry.base.clock import TestClock
from tarry.base.errors import OwnershipLostError, TrimmedError
from tarry.log.engine import Part
from tarry.log.file_engine import DIRECTORIES
from tarry.log.files import AppendFile, Buffer, Files
from tarry.log.frame import LogKind
from tarry.log.segment import remove_segment, segment_path

WAIT_S = 30.0


@dataclass(eq=False)
class Round:
    """Parts that become durable together."""

    parts: list[Part]
    begun_ms: int
    arrived: bool = False


@dataclass(eq=False)
class Epoch:
    """One owner's life: its rounds, and where a later owner found their end."""

    rounds: list[Round] = field(default_factory=list)
    end: int | None = None
    held: bool = False
    """Rounds do not arrive: the owner is cut off, or stands still."""

    @property
    def arrived(self) -> int:
        """The number of rounds that arrived without a gap before them."""
        return next((i for i, each in enumerate(self.rounds) if not each.arrived), len(self.rounds))


class SharedRounds:
    """All epochs, in order. Any thread."""

    def __init__(self, clock: TestClock | None = None, latency_ms: int = 0) -> None:
        self.clock = clock or TestClock()
        self.latency_ms = latency_ms
        self.changed = threading.Condition()
        self.epochs: list[Epoch] = []
        self.trimmed: dict[LogKind, int] = {}

    def begin(self) -> int:
        """Return the number of a new epoch; the ends of those before it are found."""
        with self.changed:
            self._arrive()
            for epoch in self.epochs:
                if epoch.end is None:
                    epoch.end = epoch.arrived
            self.epochs.append(Epoch())
            self.changed.notify_all()
            return len(self.epochs)

    def put(self, number: int, parts: list[Part]) -> Round:
        """Send a round on its way."""
        with self.changed:
            each = Round(parts, self.clock.now_ms())
            self.epochs[number - 1].rounds.append(each)
            return each

    def wait(self, number: int, until: Round) -> None:
        """Wait until a round is answered. Raises OwnershipLostError."""
        with self.changed:
            epoch = self.epochs[number - 1]
            place = epoch.rounds.index(until)
            while True:
                self._arrive()
                if number != len(self.epochs):
                    raise OwnershipLostError(f"epoch {number} has ended: {len(self.epochs)} is the owner's now")
                if epoch.arrived > place:
                    return  # nobody had claimed when it had arrived
                assert self.changed.wait(WAIT_S), "the test moves no clock"

    def move(self, ms: int) -> None:
        """Move the clock."""
        with self.changed:
            self.clock.advance_ms(ms)
            self.changed.notify_all()

    def hold(self, number: int, *, held: bool = True) -> None:
        """Hold up an epoch's rounds, or no longer."""
        with self.changed:
            self.epochs[number - 1].held = held
            self.changed.notify_all()

    def rounds(self) -> list[Round]:
        """All rounds that count."""
        with self.changed:
            self._arrive()
            return [
                each
                for epoch in self.epochs
                for each in epoch.rounds[: epoch.arrived if epoch.end is None else epoch.end]
            ]

    def _arrive(self) -> None:
        for epoch in self.epochs:
            for each in epoch.rounds:
                each.arrived |= not epoch.held and each.begun_ms + self.latency_ms <= self.clock.now_ms()


class MemoryEngine:
    """One owner's engine; ``data`` is its directory, ``files`` the disk that has it."""

    shared = None
    loss = "another has begun an epoch"

    def __init__(self, shared: SharedRounds, files: Files, data: Path) -> None:
        self._shared, self._files, self._data = shared, files, data
        self.files = files
        self._lock = threading.Lock()
        self._open: list[Part] = []
        self._last: Round | None = None
        self.epoch = 0

    def claim(self) -> int:
        self.epoch = self._shared.begin()
        for name in DIRECTORIES.values():
            shutil.rmtree(self._data / name, ignore_errors=True)
        write_parts((part for _, part in self.follow(None)), self._data)
        return self.epoch

    def is_owner(self) -> bool:
        with self._shared.changed:
            return self.epoch == len(self._shared.epochs)

    def log(self, kind: LogKind) -> MemoryLog:
        return MemoryLog(self, self._files, self._data / DIRECTORIES[kind], kind)

    def begin(self, part: Part) -> None:
        """Put a part into the round that comes next."""
        with self._lock:
            self._open.append(part)

    def wait(self) -> None:
        """Send what was begun on its way, and wait until it is answered."""
        with self._lock:
            if self._open or self._last is None:
                self._last = self._shared.put(self.epoch, self._open)
                self._open = []
            last = self._last
        self._shared.wait(self.epoch, last)

    def end(self) -> int:
        return sum(len(each.parts) for each in self._shared.rounds())

    def follow(self, position: int | None) -> Iterator[tuple[int, Part]]:
        trimmed = dict(self._shared.trimmed)
        parts = [part for each in self._shared.rounds() for part in each.parts]
        for number, part in enumerate(parts[position or 0 :], position or 0):
            if part.segment >= trimmed.get(part.kind, 0):
                yield number + 1, part
            elif position is not None:
                raise TrimmedError(f"segment {part.segment} of {part.kind.name} was deleted")

    def trim(self, kind: LogKind, segment: int) -> None:
        """Delete a segment for everybody."""
        with self._shared.changed:
            self._shared.trimmed[kind] = max(self._shared.trimmed.get(kind, 0), segment + 1)

    def release(self) -> None:
        pass


class MemoryLog:
    """A log of a :class:`MemoryEngine`."""

    def __init__(self, engine: MemoryEngine, files: Files, directory: Path, kind: LogKind) -> None:
        self.kind, self.directory = kind, directory
        self._engine, self._files = engine, files

    def open(self, segment: int) -> AppendFile:
        return _Segment(
            self._engine, self._files.open_append(segment_path(self.directory, segment)), self.kind, segment
        )

    def discard(self, segment: int) -> None:
        self._engine.begin(Part(self.kind, segment, 0, b""))
        self._files.remove(segment_path(self.directory, segment))

    def trim(self, segment: int) -> None:
        self._engine.trim(self.kind, segment)
        remove_segment(self._files, segment_path(self.directory, segment))


class _Segment:
    """A segment in the cache, whose parts go into rounds."""

    def __init__(self, engine: MemoryEngine, file: AppendFile, kind: LogKind, segment: int) -> None:
        self._engine, self._file, self._kind, self._segment = engine, file, kind, segment
        self.truncate, self.close = file.truncate, file.close

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, buffers: Sequence[Buffer]) -> None:
        position = self._file.size
        self._file.write(buffers)
        self._engine.begin(Part(self._kind, self._segment, position, b"".join(bytes(each) for each in buffers)))

    def sync(self) -> None:
        self._engine.wait()

    def begin_sync(self) -> Callable[[], None]:
        return self.sync


def write_parts(parts: Iterable[Part], data: Path) -> None:
    """What a follower does: write each part where it belongs."""
    for part in parts:
        path = segment_path(data / DIRECTORIES[part.kind], part.segment)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not part.content:
            path.unlink(missing_ok=True)
            continue
        with path.open("ab") as file:
            assert file.tell() == part.position, f"{path}: a gap, or a part that comes twice"
            file.write(part.content)
