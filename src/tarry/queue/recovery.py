"""Recovery of the ready log: reads what is on disk when it is opened."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tarry.base.errors import CorruptError
from tarry.log.engine import Log
from tarry.log.frame import LogKind
from tarry.log.recover import check_name, recover_tail
from tarry.log.segment import SegmentWriter, list_segments, segment_path
from tarry.queue.frame_table import FrameEntry, due_max_ms, load_frames, scan_frames
from tarry.queue.topic import Extent


@dataclass(slots=True)
class Recovered:
    """The segments found on disk, and their content.

    ``segments`` are ascending. ``sealed_due_ms`` has the latest due time of each segment but the last, ``last_frames``
    the frames of the last. ``extents`` says where each topic's rows are. ``stored_rows``: how many of the rows behind
    the checkpoint's place had been read from the store.
    """

    segments: list[int] = field(default_factory=list)
    sealed_due_ms: dict[int, int] = field(default_factory=dict)
    last_frames: list[FrameEntry] = field(default_factory=list)
    extents: dict[str, list[Extent]] = field(default_factory=dict)
    stored_rows: int = 0

    def add(self, segment: int, frames: list[FrameEntry], place: tuple[int, int], ends: Mapping[str, int]) -> None:
        """Add the next segment with its frames; ``place`` and ``ends`` are the checkpoint's."""
        if self.segments:
            self.sealed_due_ms[self.segments[-1]] = due_max_ms(self.last_frames)
        self.segments.append(segment)
        self.last_frames = frames
        for entry in frames:
            end = entry.offset + entry.rows
            is_new = (segment, entry.position) >= place
            # A topic that was forgotten begins at 0 again. A disk may have kept its former rows, if a loss of power
            # undid their deletion: they go beyond the end that the checkpoint has, or others follow that begin anew.
            # All of them had been consumed, and no number says that they were accepted.
            if not is_new and end > ends.get(entry.topic, 0):
                continue
            extents = self.extents.setdefault(entry.topic, [])
            if extents and extents[-1].segment == segment:
                extents[-1].end = end
            else:
                if extents and entry.offset < extents[-1].end:
                    extents.clear()
                extents.append(Extent(segment, entry.offset, end))
            if is_new:
                self.stored_rows += entry.stored_rows


def recover_segments(
    log: Log, place: tuple[int, int], ends: Mapping[str, int], first: int | None = None
) -> tuple[SegmentWriter, Recovered]:
    """Read the frame tables, and cut off the torn tail of the last segment, which is then appended to.

    ``place`` (segment, position) is where the checkpoint was taken: everything before it had been durable. ``ends`` are
    the topics' ends there. By the checkpoint, too, only segments before ``first`` may have been deleted; None: it does
    not say.

    Raises:
        CorruptError: for damage in what had been durable.
    """
    directory = log.directory
    there = list_segments(directory)
    bases = _without_leftover(there, first or 0)
    _check_unbroken(directory, bases, place, first)
    recovered = Recovered()
    for base in bases[:-1]:
        check_name(segment_path(directory, base), LogKind.READY, base)
        recovered.add(base, load_frames(segment_path(directory, base)), place, ends)
    last = bases[-1] if bases else place[0]
    path = segment_path(directory, last)
    if bases:
        durable_to = place[1] if place[0] == last else 0
        recover_tail(log, last, durable_to=durable_to, start=durable_to)
    writer = SegmentWriter(log, last)
    try:
        recovered.add(last, list(scan_frames(path)), place, ends)
        writer.sync()
        for leftover in there[: len(there) - len(bases)]:  # last: a start that is refused changes nothing
            log.trim(leftover)
    except BaseException:
        writer.close()
        raise
    return writer, recovered


def _without_leftover(bases: list[int], first: int) -> list[int]:
    """Return the segments without those before ``first`` that are left over.

    A disk may have kept the second of two deletions without the first: what lies before such a gap was to be deleted.
    """
    gaps = [following for base, following in itertools.pairwise(bases) if base + 1 < following <= first]
    begin = max(gaps, default=0)
    return [base for base in bases if base >= begin]


def _check_unbroken(directory: Path, bases: list[int], place: tuple[int, int], first: int | None) -> None:
    if first is not None and bases and bases[0] > first:
        raise CorruptError(
            f"{segment_path(directory, first)} is missing: the checkpoint says that only what is before it was "
            f"deleted, and the next file is number {bases[0]}"
        )
    if place[1] > 0 and (not bases or bases[-1] < place[0]):
        raise CorruptError(f"{segment_path(directory, place[0])} is missing; {place[1]} bytes of it had been durable")
    if bases and bases[0] > place[0]:
        # Segments are deleted only behind the checkpoint's place.
        raise CorruptError(
            f"{segment_path(directory, place[0])} is missing: the checkpoint that this directory has "
            "is older than what was deleted since, or has gone"
        )
    for base, following in itertools.pairwise(bases):
        if following != base + 1:
            raise CorruptError(f"{segment_path(directory, base + 1)} is missing; later segments are there")
