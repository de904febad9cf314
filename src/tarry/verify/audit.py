"""Checks of the audit log: frames, the chain of lines, and that no line is missing at either end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tarry.base.errors import CorruptError
from tarry.log import frame
from tarry.log.chain import ChainedLine, ChainEnd, lines_of
from tarry.log.frame import LogKind
from tarry.log.recover import durable_by_witness
from tarry.log.segment import SegmentReader, list_segments, segment_path
from tarry.verify.check import DERIVED, RESTORE, Check, Finding, Note, Pace, Results

KIND = "audit log"
_MEANING = "The log does not tell any more who did what there; somebody may have changed it. No message is concerned."
_END = "How far the audit log had come is not known: lines that were cut off at its end are not missed."
_ADVICE = f"find out who could write there; {RESTORE}, or keep the files and go on: a broker starts beside them"


@dataclass(frozen=True, slots=True)
class AuditBounds:
    """The first line that is kept, and the last one that was durable, by what is beside the log."""

    first: ChainEnd
    end: ChainEnd
    file: int
    position: int
    """Length of that file that was durable."""


def audit_checks(
    directory: Path, read_bounds: Callable[[], AuditBounds | None], *, in_use: bool = False
) -> Iterator[Check]:
    """Yield the checks of an audit log.

    ``read_bounds`` returns None where nothing is known of its ends, and raises CorruptError. ``in_use``: a broker
    writes it, so what is at its end is not judged, and not which files there have to be.
    """
    bases = list_segments(directory)
    bounds: AuditBounds | None = None
    try:
        bounds = read_bounds()
    except CorruptError as error:
        place, _, what = str(error).partition(" is ")
        damaged = Finding(place, None, f"it is {what}", _END, DERIVED)
        yield Check(KIND, place, 0, lambda _: iter((damaged,)))
    if bounds is not None and not in_use:
        yield Check(KIND, str(directory), 0, partial(_missing, directory, bases, bounds))
    for base, following in itertools.zip_longest(bases, bases[1:]):
        if in_use and following is None:
            continue
        path = segment_path(directory, base)
        is_first = base == bases[0]
        yield Check.of_file(KIND, path, partial(_check_file, path, base, following, bounds, is_first=is_first))


def _missing(directory: Path, bases: list[int], bounds: AuditBounds, _: Pace) -> Results:
    """Yield the lines that are missing at the ends, as far as the files' names tell."""
    if bases and bases[0] > bounds.first.number:
        what = f"lines {bounds.first.number} to {bases[0] - 1} are missing: the files that had them are gone"
        yield _finding(segment_path(directory, bounds.first.number), None, what)
    if bounds.end.number > bounds.first.number and (not bases or bases[-1] < bounds.file):
        yield _finding(segment_path(directory, bounds.file), None, "the file is missing; lines of it had been durable")


def _check_file(
    path: Path, base: int, following: int | None, bounds: AuditBounds | None, pace: Pace, *, is_first: bool
) -> Results:
    with SegmentReader(path) as reader:
        try:
            if reader.file_header() != (LogKind.AUDIT, base):
                yield from _invalid(reader, 0, following, bounds, base)
                return
        except CorruptError as error:
            yield _finding(path, 0, str(error).partition(": ")[2])
            return
        pace(frame.FILE_HEADER_BYTES)
        place = bounds.first if bounds is not None and is_first and base == bounds.first.number else None
        position, last = frame.FILE_HEADER_BYTES, None
        try:
            for line in lines_of(reader):
                yield from _check_line(path, line, place, base if last is None else None, bounds)
                position, place, last = line.at.end, line.end, line
                pace(line.at.header.frame_bytes)
        except CorruptError as error:
            yield _finding(path, position, str(error).partition(": ")[2])
            return
        if position < reader.size:
            yield from _invalid(reader, position, following, bounds, base)
            return
    end = place or (ChainEnd(base, "") if last is None else last.end)
    yield from _check_end(path, position, end, following, bounds)


def _check_line(
    path: Path, line: ChainedLine, place: ChainEnd | None, base: int | None, bounds: AuditBounds | None
) -> Results:
    """Compare a line with its place; ``base``: it is the first of the file with that number."""
    number = line.fields["n"]
    if base is not None and number != base:
        yield _finding(path, line.at.position, f"line {number} is where line {base} was")
    elif line.at.header.base != number:
        yield _finding(path, line.at.position, f"line {number} is in the frame of line {line.at.header.base}")
    if place is not None and number != place.number:
        yield _finding(path, line.at.position, f"line {number} comes behind line {place.number - 1}")
    elif place is not None and line.place != place:
        yield _finding(path, line.at.position, f"line {number} does not fit line {number - 1}: one of them was changed")
    if bounds is not None and line.end.number == bounds.end.number and line.end != bounds.end:
        yield _finding(path, line.at.position, f"line {number} is not the one that had been durable")


def _check_end(path: Path, position: int, end: ChainEnd, following: int | None, bounds: AuditBounds | None) -> Results:
    if following is None:
        if bounds is not None and end.number < bounds.end.number:
            what = f"the log ends before line {end.number}, but line {bounds.end.number - 1} had been durable"
            yield _finding(path, position, what)
        return
    if end.number != following:
        yield _finding(path, position, f"lines {end.number} to {following - 1} are missing")
        return
    with SegmentReader(segment_path(path.parent, following)) as reader:
        try:
            first = next(lines_of(reader), None)
        except CorruptError:
            return  # the check of that file tells
    if first is not None and first.place.number == end.number and end.hash and first.place != end:
        yield _finding(path, position, f"its last line does not fit line {following}: one of them was changed")


def _invalid(
    reader: SegmentReader, position: int, following: int | None, bounds: AuditBounds | None, base: int
) -> Results:
    """Yield a finding, or a note of a torn tail."""
    durable_to = bounds.position if bounds is not None and bounds.file == base else 0
    if following is not None or max(durable_to, durable_by_witness(reader, position + 8)) > position:
        what = f"no valid line begins here, in what had been durable; {reader.size - position} bytes follow"
        yield _finding(reader.path, position, what)
    else:
        what = f"a torn tail of {reader.size - position} bytes at offset {position}; the next start cuts it off"
        yield Note(str(reader.path), what)


def _finding(path: Path, offset: int | None, what: str) -> Finding:
    return Finding(str(path), offset, what, _MEANING, _ADVICE)
