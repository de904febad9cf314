"""Recovery of a segment whose end or middle cannot be read: torn, or damaged.

The rule is in ``docs/formats.md``.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path

from tarry.base.errors import CorruptError
from tarry.log import frame
from tarry.log.engine import Log
from tarry.log.frame import LogKind
from tarry.log.segment import Located, SegmentReader, segment_path

logger = logging.getLogger(__name__)
_MAGIC = struct.pack("<I", frame.MAGIC)


def recover_tail(log: Log, base: int, *, durable_to: int = 0, start: int = 0) -> list[Located]:
    """Check the last segment of a log from ``start`` on, cut off a torn tail, and return the frames left.

    ``durable_to`` is how much of the file is known from elsewhere (the checkpoint) to have been durable. A file that
    died before its header was written is made empty.

    Raises:
        CorruptError: for damage in what had been durable; names the file and the offset.
    """
    path = segment_path(log.directory, base)
    empty: list[Located] = []
    with SegmentReader(path) as reader:
        size = reader.size
        if reader.file_header() != (log.kind, base):
            if max(durable_to, durable_by_witness(reader, frame.FILE_HEADER_BYTES)) > 0:
                raise CorruptError(f"{path} at offset 0: the file header is damaged")
            end, frames = 0, empty
        else:
            frames, end = _valid_frames(reader, max(start, frame.FILE_HEADER_BYTES))
            if end < size and max(durable_to, durable_by_witness(reader, end + 8)) > end:
                raise CorruptError(
                    f"{path} at offset {end}: a frame that was durable is damaged; {size - end} bytes follow"
                )
            if durable_to > size:
                raise CorruptError(
                    f"{path} at offset {size}: the file ends here, but {durable_to} bytes of it had been durable"
                )
    if end < size:
        logger.warning("%s: cutting a torn tail of %d bytes at offset %d", path, size - end, end)
        tail = log.open(base)
        try:
            tail.truncate(end)
            tail.sync()
        finally:
            tail.close()
    return frames


def check_name(path: Path, log_kind: LogKind, base: int) -> None:
    """Refuse a segment that is another one, by its header: files were exchanged or renamed.

    A damaged header tells nothing; a reader of the segment's frames finds it out.

    Raises:
        CorruptError: the header names another segment.
    """
    with SegmentReader(path) as reader:
        named = reader.file_header()
    if named is not None and named != (log_kind, base):
        raise CorruptError(
            f"{path} has the content of another segment, {named[0].name.lower()} {named[1]}: files were exchanged or "
            "renamed"
        )


def _valid_frames(reader: SegmentReader, position: int) -> tuple[list[Located], int]:
    frames = []
    for at in reader.headers(position):
        if not reader.valid_body(at):
            break
        frames.append(at)
        position = at.end
    return frames, position


def durable_by_witness(reader: SegmentReader, position: int) -> int:
    """Return the highest ``durable_to`` of intact frame headers from ``position`` on; 0 without one.

    A frame lies at a multiple of 8 and behind what it calls durable. Anything else that looks like one is a piece of a
    message, such as a log file that somebody sent as a body.
    """
    content = reader.path.read_bytes()
    highest, at = 0, content.find(_MAGIC, position)
    while at >= 0:
        header = frame.decode_header(content, at) if at % 8 == 0 else None
        if header is not None and header.durable_to <= at:
            highest = max(highest, header.durable_to)
        at = content.find(_MAGIC, at + 4)
    return highest
