"""One segment file: its name, appending frames to it, reading frames from it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from tarry.base.descriptors import when_free
from tarry.base.errors import CorruptError
from tarry.log import frame
from tarry.log.engine import Log
from tarry.log.files import Buffer, Files
from tarry.log.frame import FrameHeader, LogKind


def segment_path(directory: Path, base: int, suffix: str = ".log") -> Path:
    """``directory/00000000000000000042.log``: names sort as numbers do."""
    return directory / f"{base:020d}{suffix}"


def remove_segment(files: Files, path: Path) -> None:
    """Delete a segment, and the index beside it if it has one."""
    files.remove(path)
    files.remove(path.with_suffix(".idx"))


def list_segments(directory: Path) -> list[int]:
    """Bases of the segments in a directory, ascending."""
    paths = when_free(lambda: list(directory.glob("*.log"))) if directory.is_dir() else []
    return sorted(int(path.stem) for path in paths)


class SegmentWriter:
    """Appends frames to one segment. One owner at a time; the owner decides when to sync.

    ``durable`` is the length known to be on disk. It goes into each frame's ``durable_to``, which lets recovery tell
    a torn tail from damage.
    """

    def __init__(self, log: Log, base: int) -> None:
        self.path = segment_path(log.directory, base)
        self.base = base
        self._log = log
        self._failed: OSError | None = None
        self._file = log.open(base)
        self.durable = self._file.size
        if self._file.size == 0:
            try:
                self.append([frame.encode_file_header(log.kind, base)])
            except OSError:
                # Without its name, too: an empty last file would make the one before it look sealed.
                self.discard()
                raise

    @property
    def size(self) -> int:
        """Bytes written, durable or not."""
        return self._file.size

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Append whole frames, or nothing: a part written (disk full) is taken back.

        Raises:
            OSError: the write failed; the file is as before, unless taking back failed too, which is the same as a torn
            tail.
        """
        before = self._file.size
        try:
            self._file.write(buffers)
        except OSError:
            self._file.truncate(before)
            raise

    def sync(self) -> int:
        """Make everything appended so far durable; the durable length.

        Raises:
            OSError: with EIO, whatever the cause. What the disk holds is unknown from then on, so every later sync
            fails too: the system reports a failure once, drops the pages, and would call the next fsync a success.
        """
        self._until_durable(self._file.size, self._file.sync)
        return self.durable

    def begin_sync(self) -> Callable[[], None]:
        """Begin to make durable what was appended so far; return what waits for that, as :meth:`sync`.

        Any thread calls what is returned, in the order of the calls, one at a time.
        """
        return partial(self._until_durable, self._file.size, self._file.begin_sync())

    def _until_durable(self, size: int, sync: Callable[[], None]) -> None:
        if self._failed is not None:
            raise self._failed
        try:
            sync()
        except OSError as error:
            # Not ENOSPC, which a write-back can fail with too: nobody may take this for a disk that is full for now.
            self._failed = OSError(errno.EIO, f"fsync failed ({error.strerror})", str(self.path))
            raise self._failed from error
        self.durable = max(self.durable, size)

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        """Take the segment back; nothing in it was synced."""
        self._file.close()
        self._log.discard(self.base)


@dataclass(frozen=True, slots=True)
class Located:
    """A frame's header and the position in its file."""

    position: int
    header: FrameHeader

    @property
    def end(self) -> int:
        return self.position + self.header.frame_bytes


class SegmentReader:
    """Reads frames of one segment with ``pread``.

    It never maps the file, so that what was read does not count as memory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = when_free(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._fd)

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def file_header(self) -> tuple[LogKind, int] | None:
        """Return the log and the base of the file, or None if its first bytes are not a header.

        Raises:
            CorruptError: for a sound header of a version or a log that this program does not know; names the file.
        """
        try:
            return frame.decode_file_header(os.pread(self._fd, frame.FILE_HEADER_BYTES, 0))
        except CorruptError as error:
            raise CorruptError(f"{self.path} at offset 0: {error}") from error

    def header(self, position: int) -> FrameHeader | None:
        """Return the frame header at a position, or None if there is no valid one."""
        return frame.decode_header(os.pread(self._fd, frame.HEADER_BYTES, position))

    def headers(self, position: int = frame.FILE_HEADER_BYTES) -> Iterator[Located]:
        """Headers from ``position`` on, skipping the bodies, up to the first that is not valid."""
        size = self.size
        while (header := self.header(position)) is not None and position + header.frame_bytes <= size:
            yield Located(position, header)
            position += header.frame_bytes

    def valid_body(self, at: Located) -> bool:
        """Return whether the body's checksum holds."""
        return frame.body_is_valid(at.header, self._body(at))

    def read(self, position: int, schema: pa.Schema) -> tuple[FrameHeader, str, pa.RecordBatch]:
        """Header, topic and rows of the frame at ``position``.

        Raises:
            CorruptError: when header or body is damaged; names file and offset.
        """
        header = self.header(position)
        if header is None:
            raise CorruptError(f"{self.path} at offset {position}: no valid frame header")
        body = self._body(Located(position, header))
        if not frame.body_is_valid(header, body):
            raise CorruptError(f"{self.path} at offset {position}: the frame's checksum does not hold")
        topic, batch = frame.decode_body(header, body, schema)
        return header, topic, batch

    def read_all(
        self, schema: pa.Schema, position: int = frame.FILE_HEADER_BYTES
    ) -> Iterator[tuple[Located, str, pa.RecordBatch]]:
        """Every frame from ``position`` to the end of the file, each checked.

        Raises:
            CorruptError: at the first invalid frame; recovery must have cut a torn tail before.
        """
        size = self.size
        while position < size:
            header, topic, batch = self.read(position, schema)
            yield Located(position, header), topic, batch
            position += header.frame_bytes

    def bytes_at(self, position: int, size: int) -> bytes:
        """Raw bytes of the file."""
        return os.pread(self._fd, size, position)

    def _body(self, at: Located) -> bytes:
        return os.pread(self._fd, at.header.body_bytes, at.position + frame.HEADER_BYTES)
