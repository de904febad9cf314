"""Reading some columns of the intake: for looking, which must not hold the bodies of what it only looks at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tarry.base.message import SCHEMA
from tarry.base.types import Int64s
from tarry.intake.intake import Intake
from tarry.log.segment import SegmentReader


def read_columns(intake: Intake, seqs: Int64s, names: Sequence[str]) -> pa.RecordBatch:
    """Some columns of the messages with these seqs, in seq order; those that are not here any more are left out.

    A frame is read whole, as its checksum is of all of it; one is held at a time.

    Raises:
        CorruptError: when a frame is damaged. FileNotFoundError: a segment was deleted meanwhile.
    """
    wanted, batches = np.sort(seqs), []
    schema = pa.schema([SCHEMA.field(name) for name in names])
    for path, frames, base, end in intake._tables(int(wanted[0]), int(wanted[-1]) + 1) if len(wanted) else []:
        here = wanted[np.searchsorted(wanted, base) : np.searchsorted(wanted, end)]
        if not len(here):
            continue
        which = np.searchsorted(frames.first_seq, here, "right") - 1
        with SegmentReader(path) as reader:
            for part in np.split(here, np.flatnonzero(np.diff(which)) + 1):
                at = int(np.searchsorted(frames.first_seq, part[0], "right")) - 1
                _, _, batch = reader.read(int(frames.position[at]), SCHEMA)
                # A copy, also of all rows: a view would keep the frame.
                batches.append(batch.select(list(names)).take(pa.array(part - int(frames.first_seq[at]), pa.int64())))
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)


def columns_between(intake: Intake, start: int, end: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of the messages that are here with ``start <= seq < end``, in seq order, a frame at a time; raises
    as :func:`read_columns` does.
    """
    for path, frames, _, _ in intake._tables(start, end):
        first = max(0, int(np.searchsorted(frames.first_seq, start, "right")) - 1)
        last = int(np.searchsorted(frames.first_seq, end, "left"))
        with SegmentReader(path) as reader:
            for position in frames.position[first:last].tolist():
                header, _, batch = reader.read(position, SCHEMA)
                low, high = max(start - header.base, 0), min(end - header.base, batch.num_rows)
                yield batch.select(list(names)).slice(low, high - low)
