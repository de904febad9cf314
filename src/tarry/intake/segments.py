"""Segment files of the intake: written, rolled, sealed, deleted, and opened again after a crash.

A segment is *active* while it is written; its index is in memory. Then it is *rolled*: the next one is written. It is
*sealed* when its index is on disk, and goes when nobody needs its messages from here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tarry.base.errors import CorruptError
from tarry.base.types import Int64s
from tarry.intake.index import ActiveIndex, FrameTable, index_of_log
from tarry.intake.sealed_index import SealedIndex, write_index
from tarry.log.engine import Log
from tarry.log.files import Buffer
from tarry.log.frame import LogKind
from tarry.log.recover import check_name, recover_tail
from tarry.log.segment import SegmentWriter, list_segments, segment_path

logger = logging.getLogger(__name__)


class SegmentFrames(NamedTuple):
    """A segment file, which has the messages with ``base <= seq < end_seq``, and where its frames are."""

    path: Path
    frames: FrameTable
    base: int
    end_seq: int


class WrittenFrame(NamedTuple):
    """A frame in the active segment: the seq of its first row, and its position in the file.

    With its rows' due times, and the lowest and the highest of them.
    """

    first_seq: int
    position: int
    due_ms: Int64s
    due_min_ms: int
    due_max_ms: int


@dataclass(slots=True)
class _Rolled:
    """A segment that is no longer written, whose index is in memory until :meth:`Segments.seal` writes it."""

    path: Path
    index: ActiveIndex | SealedIndex
    log_bytes: int

    @property
    def is_sealed(self) -> bool:
        return isinstance(self.index, SealedIndex)

    @property
    def is_on_disk(self) -> bool:
        return isinstance(self.index, SealedIndex) and self.index.is_on_disk


@dataclass(frozen=True, slots=True)
class _Active:
    writer: SegmentWriter
    index: ActiveIndex


class Segments:
    """Segment files. One thread calls append, sync, add and roll; any thread calls the rest."""

    def __init__(self, log: Log, rolled: list[_Rolled], active: _Active, leftover: Sequence[int] = ()) -> None:
        self._log = log
        self._lock = threading.Lock()  # guards which segments there are, not their contents
        self._rolled = rolled
        self._active = active
        self._keepers = 0
        self._leftover = list(leftover)
        """Segments that had been deleted, and came back with a crash."""

    @classmethod
    def open(
        cls,
        log: Log,
        *,
        next_seq: int,
        durable: tuple[int, int] | None = None,
        first_seq: int | None = None,
    ) -> Segments:
        """Open what is on disk, or start at ``next_seq``.

        Args:
            durable: (base, length) that a checkpoint knows to be on disk.
            first_seq: what it says of deletion: all below may be gone, and from there on everything is here.

        Raises:
            CorruptError: for damage in what was acknowledged, or a segment that is missing.
        """
        directory = log.directory
        bases = list_segments(directory)
        leftover: list[int] = []
        if first_seq is not None:
            # A disk may have kept the second of two deletions without the first: what is below is no unbroken row then.
            leftover = _segments_below(directory, first_seq)
            bases = [base for base in bases if base >= first_seq]
            if not bases or bases[0] > first_seq:
                follows = f"the next file begins at {bases[0]}" if bases else "there is no later file"
                raise CorruptError(
                    f"{segment_path(directory, first_seq)} is missing: the checkpoint says that only what is before it "
                    f"was deleted, and {follows}"
                )
        # Also if it had no frame yet: its name was durable before the checkpoint, and frames may have come since.
        if durable is not None and durable[0] not in bases:
            missing = segment_path(directory, durable[0])
            raise CorruptError(f"{missing} is missing; {durable[1]} bytes of it had been durable")
        if not bases:
            bases = [next_seq]
            SegmentWriter(log, next_seq).close()
        rolled = []
        for base in bases[:-1]:
            path = segment_path(directory, base)
            check_name(path, LogKind.INTAKE, base)
            rolled.append(_Rolled(path, _sealed_index(path, base), path.stat().st_size))
        durable_bytes = durable[1] if durable is not None and durable[0] == bases[-1] else 0
        frames = recover_tail(log, bases[-1], durable_to=durable_bytes)
        index = index_of_log(segment_path(directory, bases[-1]), bases[-1], frames)
        _check_unbroken(rolled, index.base)
        writer = SegmentWriter(log, bases[-1])
        # What is in the file now is about to be served, so it must be durable even if its writer died before the fsync.
        writer.sync()
        return cls(log, rolled, _Active(writer, index), leftover)

    @property
    def directory(self) -> Path:
        """Directory of the files."""
        return self._log.directory

    # -- writing -----------------------------------------------------------------------------------------------------

    @property
    def position(self) -> tuple[int, int]:
        """Base and durable length of the active segment."""
        writer = self._active.writer
        return writer.base, writer.durable

    @property
    def active_bytes(self) -> int:
        """The length of the active segment, durable or not."""
        return self._active.writer.size

    def append(self, buffers: Sequence[Buffer]) -> None:
        """As :meth:`tarry.log.segment.SegmentWriter.append`."""
        self._active.writer.append(buffers)

    def sync(self) -> None:
        """As :meth:`tarry.log.segment.SegmentWriter.sync`."""
        self._active.writer.sync()

    def begin_sync(self) -> Callable[[], None]:
        """As :meth:`tarry.log.segment.SegmentWriter.begin_sync`."""
        return self._active.writer.begin_sync()

    def add(self, frames: Sequence[WrittenFrame]) -> None:
        """From now on readers see these frames, which are durable."""
        index = self._active.index
        for written in frames:
            index.add(*written)

    def roll(self, next_seq: int) -> None:
        """Begin the next segment with ``next_seq``. Where that fails, the active one goes on."""
        former = self._active
        try:
            writer = SegmentWriter(self._log, next_seq)
        except OSError as error:
            # All submissions were answered. The file that there is goes on; the next commit tries again, or finds the
            # disk as bad as it is.
            logger.warning("%s: the next segment could not be begun: %s", self.directory, error)
            return
        with self._lock:
            self._rolled.append(_Rolled(former.writer.path, former.index, former.writer.size))
            self._active = _Active(writer, ActiveIndex(next_seq))
        former.writer.close()

    def seal(self) -> bool:
        """Put the index of one rolled segment on disk and forget it in memory. Whether there was one.

        Raises:
            OSError: it could not be written, and is still in memory.
        """
        with self._lock:
            segment = next((s for s in self._rolled if not s.is_on_disk), None)
        if segment is None:
            return False
        if isinstance(segment.index, SealedIndex):
            with suppress(FileNotFoundError):  # deleted meanwhile
                segment.index.write_down()
            return True
        write_index(segment.path.with_suffix(".idx"), segment.index, segment.log_bytes)
        sealed = _sealed_index(segment.path, segment.index.base)
        with self._lock:
            segment.index = sealed
        return True

    def close(self) -> None:
        """Close the active segment without syncing it."""
        self._active.writer.close()

    # -- what there is -----------------------------------------------------------------------------------------------

    @property
    def first_seq(self) -> int:
        """The lowest seq that is still here (or will be the first)."""
        with self._lock:
            return self._rolled[0].index.base if self._rolled else self._active.index.base

    @property
    def end_seq(self) -> int:
        """The seq after the last one here."""
        return self._active.index.end_seq

    def indexes(self) -> list[ActiveIndex | SealedIndex]:
        """Return the indexes of all segments, in seq order."""
        with self._lock:
            return [*(s.index for s in self._rolled), self._active.index]

    def frames_between(self, start: int, end: int) -> list[SegmentFrames]:
        """Return the segments that have messages with ``start <= seq < end``, in seq order."""
        with self._lock:
            files = [(s.path, s.index) for s in self._rolled] + [(self._active.writer.path, self._active.index)]
        hits = [(path, index) for path, index in files if index.base < end and index.end_seq > start]
        return [SegmentFrames(path, index.frames(), index.base, index.end_seq) for path, index in hits]

    def bytes_from(self, seq: int) -> int:
        """About how many bytes of log hold the messages from ``seq`` on."""
        with self._lock:
            sizes = [(s.index.base, s.index.end_seq, s.log_bytes) for s in self._rolled]
            active = self._active
        sizes.append((active.index.base, active.index.end_seq, active.writer.size))
        return sum(size * (end - max(seq, base)) // (end - base) for base, end, size in sizes if end > max(seq, base))

    # -- deletion ----------------------------------------------------------------------------------------------------

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Nothing is deleted meanwhile. For what is short: the disk fills until it ends."""
        with self._lock:
            self._keepers += 1
        try:
            yield
        finally:
            with self._lock:
                self._keepers -= 1

    def deletable_until(self, committed_seq: int, fired_seq: int, fired_until_ms: int) -> int:
        """Return the seq below which every segment may be deleted: the base of the first that has to stay.

        Each of its messages is in the store's snapshot, or fired with the ready log durable.
        """
        with self._lock:
            for segment in self._rolled:
                index = segment.index
                # `fired_seq` bounds both ways: recovery reads the intake itself from there on.
                if not segment.is_sealed or index.end_seq > fired_seq:
                    return index.base
                if index.end_seq > committed_seq and index.due_max_ms >= fired_until_ms:
                    return index.base
            return self._active.index.base

    def delete_below(self, first_seq: int) -> int:
        """Delete the segments before ``first_seq``, and return their number.

        :meth:`deletable_until` gave ``first_seq``, and a checkpoint on disk has it.
        """
        for segment in self._leftover:
            self._log.trim(segment)
        self._leftover.clear()
        deleted = 0
        while True:
            with self._lock:
                first = self._rolled[0] if self._rolled and not self._keepers else None
                if first is None or first.index.end_seq > first_seq:
                    return deleted
                self._rolled.pop(0)
            self._log.trim(first.index.base)
            deleted += 1


def _segments_below(directory: Path, first_seq: int) -> list[int]:
    """Return the segments below ``first_seq`` that have a file, also where only the index is left."""
    stems = {path.stem for suffix in ("log", "idx") for path in directory.glob(f"*.{suffix}")}
    return sorted(int(stem) for stem in stems if stem.isdecimal() and int(stem) < first_seq)


def _check_unbroken(rolled: Sequence[_Rolled], active_base: int) -> None:
    bases = [*(s.index.base for s in rolled), active_base]
    for segment, following in zip(rolled, bases[1:], strict=True):
        end = segment.index.end_seq
        if end != following:
            raise CorruptError(
                f"{segment.path} ends at seq {end}, the next segment begins at {following}: one is missing"
            )


def _sealed_index(path: Path, base: int) -> SealedIndex:
    return SealedIndex(path.with_suffix(".idx"), path, lambda: index_of_log(path, base))
