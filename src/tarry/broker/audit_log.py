"""The files of the audit log: chained lines in frames; a file ends by size, and goes by age.

Beside them is ``head.json``, with the place where the oldest file begins and the place that was durable at the end. It
is written a moment after the lines, so it may be behind them, and never ahead: a log that ends before it was cut.

Damage does not refuse the start, for messages must go on: a new file is begun, its first line says so, and the gap in
the numbers remains for ``tarry verify``. Format: ``docs/formats.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tarry.base.errors import CorruptError
from tarry.log import frame
from tarry.log.chain import CHAIN_START, ChainedLine, ChainEnd, frame_of, line_at
from tarry.log.engine import Log
from tarry.log.file_engine import DIRECTORIES
from tarry.log.files import TRY_AGAIN, Files
from tarry.log.frame import LogKind
from tarry.log.json_file import read_json, write_json
from tarry.log.recover import recover_tail
from tarry.log.segment import Located, SegmentReader, SegmentWriter, list_segments, segment_path

logger = logging.getLogger(__name__)

DIRECTORY = DIRECTORIES[LogKind.AUDIT]
HEAD_FILE = f"{DIRECTORY}/head.json"
HEAD_VERSION = 1

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """Size of a file, and limits on what is kept."""

    file_bytes: int
    bytes_max: int
    """Of all files together; the oldest go first."""
    retention_ms: int


@dataclass(frozen=True, slots=True)
class AuditHead:
    """Content of ``head.json``."""

    first: int
    """Number of the first line that is kept."""
    first_previous: str
    next: int
    """Number behind the last line that was durable."""
    last: str
    """Hash of that line."""
    file: int
    position: int
    """Length of the file with that number that was durable."""

    @classmethod
    def read(cls, data: Path) -> AuditHead | None:
        """Return what the file says; None: there is none.

        Raises:
            CorruptError: it is damaged.
        """
        path = data / HEAD_FILE
        fields = read_json(path, [HEAD_VERSION])
        if fields is None:
            return None
        try:
            return cls(
                *(int(fields["first"]), str(fields["first_previous"]), int(fields["next"]), str(fields["last"])),
                *(int(fields["file"]), int(fields["position"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptError(f"{path} is damaged: {error!r}") from error

    def fields(self) -> dict[str, int | str]:
        """Return it as the file has it."""
        return {
            "first": self.first,
            "first_previous": self.first_previous,
            "next": self.next,
            "last": self.last,
            "file": self.file,
            "position": self.position,
        }


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the log: number of its first line, and that line's instant."""

    base: int
    begun_ms: int
    size: int


class AuditLog:
    """The files of one directory, open for writing. One thread at a time."""

    def __init__(
        self,
        log: Log,
        files: Files,
        data: Path,
        limits: AuditLimits,
        now_ms: int,
        on_damage: Callable[[CorruptError], None],
    ) -> None:
        """Open the last file, its torn tail cut off, or begin one.

        Raises:
            OSError: the disk does not allow it.
        """
        self._log, self._files, self._data, self._limits = log, files, data, limits
        self._directory = log.directory
        self._damage: CorruptError | None = None
        head = self._read_head()
        self._end, bases = self._recovered(head)
        # What is there is the disk's already, or is with the next sync.
        self._synced = self._end
        self._former = [self._file_of(base) for base in bases]
        is_sound = self._damage is None and bool(bases)
        self._writer = SegmentWriter(log, bases[-1] if is_sound else self._end.number)
        self._former = [each for each in self._former if each.base != self._writer.base]
        self._begun_ms: int | None = None
        self._first = self._oldest(head)
        self._head = head
        if self._damage is not None:
            on_damage(self._damage)
            lost = {"text": str(self._damage)}
            self.append([{"at_ms": now_ms, "operation": "audit-log-damaged", "outcome": "failed", "details": lost}])
            self.sync()

    @property
    def end(self) -> ChainEnd:
        """The place of the next line."""
        return self._end

    @property
    def is_dirty(self) -> bool:
        """True if there are lines that are not known to be durable."""
        return self._synced != self._end

    def append(self, lines: Sequence[Line]) -> list[bytes]:
        """Write lines, in the order given, and return them with their places.

        The system has them on return; :meth:`sync` makes them durable.

        Raises:
            OSError: none of them was written.
        """
        if self._writer.size >= self._limits.file_bytes:
            self._rotate()
        end, buffers, contents = self._end, [], []
        for line in lines:
            content = end.line(line)
            contents.append(content)
            buffers += frame_of(content, end.number, int(line["at_ms"]), self._writer.durable)
            end = end.after(content)
        self._writer.append(buffers)
        self._end = end
        if self._begun_ms is None and lines:
            self._begun_ms = int(lines[0]["at_ms"])
        return contents

    def sync(self) -> None:
        """Make all lines durable.

        Raises:
            OSError: what the disk holds is unknown.
        """
        if self.is_dirty:
            self._writer.sync()
            self._synced = self._end

    def keep(self, now_ms: int) -> None:
        """Make lines durable, write down how far they are, and delete files that are too old or too many.

        Raises:
            OSError: the disk fails.
        """
        self.sync()
        kept = self._kept(now_ms)
        if kept != self._former:
            oldest = self._first_line(kept[0].base if kept else self._writer.base)
            self._first = self._end if oldest is None else oldest.place
        try:
            self._write_head()
        except OSError as error:
            if error.errno not in TRY_AGAIN:
                raise
            logger.warning("%s is not written: %s; trying again", self._data / HEAD_FILE, error.strerror)
            return
        for each in [each for each in self._former if each not in kept]:
            self._log.trim(each.base)
        self._former = kept

    def close(self, now_ms: int) -> None:
        """Make all durable, and close the file."""
        try:
            self.keep(now_ms)
        finally:
            self._writer.close()

    def _rotate(self) -> None:
        self.sync()
        former = self._writer
        self._writer = SegmentWriter(self._log, self._end.number)
        former.close()
        self._former.append(self._file_of(former.base))
        self._begun_ms = None

    def _kept(self, now_ms: int) -> list[_File]:
        """Return the files, but the one that is written, that are to be kept."""
        kept = list(self._former)
        total = self._writer.size + sum(each.size for each in kept)
        while kept:
            # A file goes when the next one began so long ago: then all its lines are older still.
            next_ms = kept[1].begun_ms if len(kept) > 1 else self._begun_ms
            is_old = next_ms is not None and next_ms < now_ms - self._limits.retention_ms
            if not is_old and total <= self._limits.bytes_max:
                break
            total -= kept.pop(0).size
        return kept

    def _write_head(self) -> None:
        head = AuditHead(
            self._first.number,
            self._first.hash,
            self._synced.number,
            self._synced.hash,
            self._writer.base,
            self._writer.durable,
        )
        if head != self._head:
            write_json(self._files, self._data / HEAD_FILE, HEAD_VERSION, head.fields())
            self._head = head

    # -- opening -------------------------------------------------------------------------------------------------------

    def _read_head(self) -> AuditHead | None:
        try:
            return AuditHead.read(self._data)
        except CorruptError as error:
            self._damage = error
            return None

    def _recovered(self, head: AuditHead | None) -> tuple[ChainEnd, list[int]]:
        """Return the place of the next line, and the files that are there."""
        bases = list_segments(self._directory)
        by_head = CHAIN_START if head is None else ChainEnd(head.next, head.last)
        if not bases:
            if by_head != CHAIN_START:
                self._damage = CorruptError(f"{self._directory} has no file, and there were lines up to {head}")
            return by_head, bases
        last = bases[-1]
        try:
            end = self._end_of(last, head)
        except CorruptError as error:
            self._damage = error
            return self._beyond(last, by_head), bases
        if end.number < by_head.number:
            self._damage = CorruptError(
                f"{segment_path(self._directory, last)} ends before line {end.number}; line {by_head.number - 1} had "
                "been durable"
            )
            return by_head, bases
        return end, bases

    def _end_of(self, base: int, head: AuditHead | None) -> ChainEnd:
        """Return the place behind the last line of a file, whose torn tail is cut off."""
        path = segment_path(self._directory, base)
        durable_to = head.position if head is not None and head.file == base else 0
        frames = recover_tail(self._log, base, durable_to=durable_to)
        if frames:
            with SegmentReader(path) as reader:
                _check_durable(reader, frames, head)
                return line_at(reader, frames[-1]).end
        former = [each for each in list_segments(self._directory) if each < base]
        if former:
            with SegmentReader(segment_path(self._directory, former[-1])) as reader:
                last = list(reader.headers())
                if last and reader.valid_body(last[-1]):
                    return line_at(reader, last[-1]).end
        return CHAIN_START if head is None else ChainEnd(head.next, head.last)

    def _beyond(self, base: int, by_head: ChainEnd) -> ChainEnd:
        """Return a place that no line has had, behind a file that is damaged."""
        end = ChainEnd(max(by_head.number, base + 1), by_head.hash)
        with SegmentReader(segment_path(self._directory, base)) as reader:
            # Numbers of frames behind the damage count: another line of such a number would look like a forgery.
            content = reader.bytes_at(0, reader.size)
        at = content.find(b"TFRM")
        while at >= 0:
            header = frame.decode_header(content, at)
            if header is not None and header.base >= end.number:
                end = ChainEnd(header.base + 1, end.hash)
            at = content.find(b"TFRM", at + 4)
        return end

    def _oldest(self, head: AuditHead | None) -> ChainEnd:
        if head is not None:
            return ChainEnd(head.first, head.first_previous)
        line = self._first_line(self._former[0].base if self._former else self._writer.base)
        return self._end if line is None else line.place

    def _file_of(self, base: int) -> _File:
        path = segment_path(self._directory, base)
        with SegmentReader(path) as reader:
            first = next(reader.headers(), None)
            return _File(base, 0 if first is None else first.header.due_min_ms, reader.size)

    def _first_line(self, base: int) -> ChainedLine | None:
        try:
            with SegmentReader(segment_path(self._directory, base)) as reader:
                first: Located | None = next(reader.headers(), None)
                return None if first is None or not reader.valid_body(first) else line_at(reader, first)
        except CorruptError:
            return None


def _check_durable(reader: SegmentReader, frames: Sequence[Located], head: AuditHead | None) -> None:
    """Refuse a file that has another line where the last durable one was.

    It was changed while nobody wrote.

    Raises:
        CorruptError: it has.
    """
    at = None if head is None else next((each for each in frames if each.header.base == head.next - 1), None)
    if at is not None and head is not None and line_at(reader, at).end.hash != head.last:
        raise CorruptError(
            f"{reader.path} at offset {at.position}: line {head.next - 1} is not the one that had been durable"
        )
