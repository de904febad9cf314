"""Choice of the journal file that counts after a restart, and a check of what had been durable."""

from __future__ import annotations

from pathlib import Path

from tarry.base.errors import CorruptError
from tarry.log.engine import Log
from tarry.log.recover import recover_tail
from tarry.log.segment import SegmentReader, list_segments, segment_path

SNAPSHOT_BEGINS, SNAPSHOT_ENDS = 1, 2


def recover_journal(log: Log, durable: tuple[int, int]) -> int:
    """Return the number of the file to go on with, after cutting off its torn tail.

    It is the last file whose opening snapshot is whole. ``durable`` (number, position) is how far the journal had been
    durable by the checkpoint.

    Raises:
        CorruptError: for damage in what had been durable; nothing was changed.
    """
    directory = log.directory
    numbers = list_segments(directory)
    number, position = durable
    if position and (not numbers or numbers[-1] < number):
        raise CorruptError(
            f"{segment_path(directory, number)} is missing; {position} bytes of it had been durable: "
            "what groups have acknowledged would be delivered again"
        )
    if not numbers:
        return 0
    newer = []
    # A file without a whole snapshot was begun by a process that died meanwhile. The file before it has everything, and
    # is still there.
    while numbers[-1] and not _has_whole_snapshot(segment_path(directory, numbers[-1])):
        if len(numbers) == 1 or (position and numbers[-1] == number):
            raise CorruptError(
                f"{segment_path(directory, numbers[-1])} at offset 32: the snapshot of the groups that the file begins "
                "with is not whole, but it had been: the file before it was deleted"
            )
        newer.append(numbers.pop())
    last = numbers[-1]
    durable_to = position if last == number else 0
    recover_tail(log, last, durable_to=durable_to)
    for each in newer:
        log.discard(each)
    return last


def _has_whole_snapshot(path: Path) -> bool:
    with SegmentReader(path) as reader:
        for at in reader.headers():
            if not reader.valid_body(at):
                return False
            if at.header.kind == SNAPSHOT_ENDS:
                return True
    return False
