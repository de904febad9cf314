"""Checks of the log segments of intake, ready log and journal, and of the indexes beside them.

Every byte of a segment has a checksum, or is zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tarry.base.errors import CorruptError
from tarry.intake.sealed_index import is_sound_index
from tarry.log import frame
from tarry.log.file_engine import DIRECTORIES
from tarry.log.frame import LogKind
from tarry.log.recover import durable_by_witness
from tarry.log.segment import SegmentReader, list_segments, segment_path
from tarry.queue.frame_table import read_frames
from tarry.verify.check import DERIVED, RESTORE, SALVAGE, Check, Finding, Note, Pace, Results

_MEANING = {
    LogKind.INTAKE: "Messages that were accepted, and are not all in the store yet, cannot be read.",
    LogKind.READY: "Messages that are due cannot be handed out from there.",
    LogKind.ACKS: "What groups had settled is not known: messages would be delivered again.",
}

_LEFTOVER = "nobody needs it any more; it was being deleted when the broker ended, and is deleted when it starts"


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment to be checked.

    ``following`` is the first number of the next segment; None for the last, which may end in a torn tail behind
    ``durable_to``.
    """

    path: Path
    log_kind: LogKind
    base: int
    following: int | None
    durable_to: int = 0

    def finding(self, offset: int | None, what: str) -> Finding:
        """Return a finding about this segment."""
        return Finding(str(self.path), offset, what, _MEANING[self.log_kind], SALVAGE)


def log_checks(
    data: Path, log_kind: LogKind, place: tuple[int, int] | None, first: int | None = None
) -> Iterator[Check]:
    """Yield the checks of one log: of all its segments and indexes, and for missing segments.

    ``place`` (segment, position) was durable by the checkpoint. By the checkpoint, too, the segments before ``first``
    were to be deleted, and no others.
    """
    directory = data / DIRECTORIES[log_kind]
    there = list_segments(directory)
    # What is left of the ready log before ``first`` is kept: a group may have gone back to it just then.
    kept_from = None if log_kind is LogKind.READY else first
    bases = [base for base in there if kept_from is None or base >= kept_from]
    leftover = [segment_path(directory, base) for base in there[: len(there) - len(bases)]]
    kind = f"{directory.name} log"
    yield Check(kind, str(directory), 0, lambda _: _missing(directory, log_kind, bases, place, first))
    yield Check(kind, str(directory), 0, lambda _: (Note(str(path), _LEFTOVER) for path in leftover))
    yield from segment_checks(directory, log_kind, bases, place)


def segment_checks(
    directory: Path, log_kind: LogKind, bases: Sequence[int], place: tuple[int, int] | None
) -> Iterator[Check]:
    """Yield the checks of these segments; the last is being written, or was when the broker ended."""
    for base, following in itertools.zip_longest(bases, bases[1:]):
        durable_to = place[1] if place is not None and place[0] == base else 0
        segment = Segment(segment_path(directory, base), log_kind, base, following, durable_to)
        yield Check.of_file(f"{directory.name} log", segment.path, partial(check_segment, segment))
        index = segment.path.with_suffix(".idx")
        if log_kind is not LogKind.ACKS and index.exists() and following is not None:
            yield Check.of_file(f"{directory.name} index", index, partial(check_index, segment))


def check_segment(segment: Segment, pace: Pace) -> Results:
    """Check every frame of a segment, up to the first damaged one or to a torn tail."""
    with SegmentReader(segment.path) as reader:
        try:
            named = reader.file_header()
        except CorruptError as error:
            yield segment.finding(0, str(error).partition(": ")[2])
            return
        if named != (segment.log_kind, segment.base):
            yield from _invalid(segment, reader, 0, "the file header is damaged")
            return
        pace(frame.FILE_HEADER_BYTES)
        position, next_seq = frame.FILE_HEADER_BYTES, segment.base
        for at in reader.headers(position):
            if not reader.valid_body(at):
                break
            padding = at.position + frame.HEADER_BYTES + at.header.body_bytes
            if any(reader.bytes_at(padding, at.end - padding)):
                meaning = "No message is concerned, but the disk has changed what was written."
                yield Finding(str(segment.path), padding, "the padding of a frame is not zero", meaning, RESTORE)
            if segment.log_kind is LogKind.INTAKE and at.header.base != next_seq:
                yield segment.finding(at.position, f"a frame begins with seq {at.header.base}; expected: {next_seq}")
            position, next_seq = at.end, at.header.base + at.header.rows
            pace(at.header.frame_bytes)
        if position < reader.size:
            yield from _invalid(segment, reader, position, "no valid frame begins here")
        elif position < segment.durable_to:
            yield segment.finding(position, f"the file ends here, but {segment.durable_to} bytes had been durable")
        elif segment.log_kind is LogKind.INTAKE and segment.following not in (None, next_seq):
            yield segment.finding(
                position, f"it ends at seq {next_seq}, but the next file begins at {segment.following}"
            )


def _invalid(segment: Segment, reader: SegmentReader, position: int, what: str) -> Results:
    """Yield a finding, or a note of a torn tail, by the rule of ``docs/formats.md``."""
    if segment.following is not None or max(segment.durable_to, durable_by_witness(reader, position + 8)) > position:
        yield segment.finding(position, f"{what}, in what had been durable; {reader.size - position} bytes follow")
    else:
        yield Note(
            str(segment.path),
            f"a torn tail of {reader.size - position} bytes at offset {position}; a broker cuts it off when it starts",
        )


def check_index(segment: Segment, pace: Pace) -> Results:
    """Check the index beside a sealed segment."""
    path = segment.path.with_suffix(".idx")
    if segment.log_kind is LogKind.INTAKE:
        is_sound = is_sound_index(path, segment.path)
    else:
        is_sound = read_frames(segment.path) is not None
    pace(path.stat().st_size)
    if not is_sound:
        meaning = "The segment itself is checked apart; what it has is found by this file."
        yield Finding(str(path), None, "the index does not match its checksum, or its segment", meaning, DERIVED)


def _missing(
    directory: Path, log_kind: LogKind, bases: list[int], place: tuple[int, int] | None, first: int | None
) -> Results:
    """Yield the segments that are missing, as far as the names and the checkpoint tell."""
    lost: list[tuple[int, str]] = []
    # A segment of the intake is there before a checkpoint names it, also one that has no frame yet.
    was_there = place is not None and (place[1] > 0 or log_kind is LogKind.INTAKE)
    if place is not None and was_there and (not bases or bases[-1] < place[0]):
        lost.append((place[0], f"{place[1]} bytes of it had been durable"))
    if first is not None and (not bases or bases[0] > first):
        lost.append((first, "by the checkpoint, only what is before it was deleted"))
    if log_kind is LogKind.READY:
        if place is not None and bases and bases[0] > place[0]:
            lost.append((place[0], "it is deleted only behind the checkpoint, which was taken there"))
        lost += [(gap.start, _later(gap)) for gap in _gaps(bases) if gap.stop > (first or 0)]
    for base, why in lost:
        path = str(segment_path(directory, base))
        yield Finding(path, None, f"the file is missing; {why}", _MEANING[log_kind], RESTORE)


def _gaps(bases: list[int]) -> list[range]:
    """Return the missing numbers as ranges: beside a stray name they may be very many."""
    return [range(base + 1, following) for base, following in itertools.pairwise(bases) if following > base + 1]


def _later(gap: range) -> str:
    return "later ones are there" if len(gap) == 1 else f"so are the {len(gap) - 1} after it, and later ones are there"
