"""Compares Spark's checkpoint with the store, and discards one that differs: the store is the truth.

Spark writes ``offsets/N`` when it plans batch N, and ``commits/N`` when the batch is done. With E the planned end of
the last batch, S its start (the end before it) and C the store's ``committed_seq``:

| ``commits/N`` | C | meaning | what happens |
|---|---|---|---|
| there | C = E | all is well | the next batch starts at E |
| missing | C = S | crash before the Delta commit | Spark replays the batch |
| missing | C = E | crash between Delta's commit and Spark's | Spark replays it; ``Store.commit`` sees a replay |
| any | anything else | a checkpoint of another store, older or newer | discarded: the query starts at C |

Keeping a wrong one would not lose or double anything, because ``Store.commit`` refuses a range that does not start at
C; but the query would be refused for ever.

Where commits are under an epoch, each is discarded: what a driver before this one has planned may be of another owner
of the broker's log, and a plan is committed under the epoch in which it was made, or not at all.
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

from tarry.base.errors import InvalidArgumentError

log = logging.getLogger(__name__)

_SPARK_NAMES = ("metadata", "offsets", "commits", "sources", "state")


def reconcile(directory: Path, committed_seq: int, epoch: int | None = None) -> bool:
    """Discard the checkpoint in ``directory`` unless it fits a store at ``committed_seq``.

    With an ``epoch``, discard it in any case. Returns whether it was kept.

    Raises:
        InvalidArgumentError: the directory holds other files, too; nothing was deleted.
    """
    if not directory.exists():
        return False
    reason = _disagreement(directory, committed_seq) if epoch is None else "its plan may be another epoch's"
    if reason is None:
        return True
    foreign = sorted(path.name for path in directory.iterdir() if not path.name.lstrip(".").startswith(_SPARK_NAMES))
    if foreign:
        raise InvalidArgumentError(f"{directory} is no checkpoint of Spark's: it holds {foreign[0]!r}; not touched")
    log.info("discarding the checkpoint %s: %s; starting from the store, at seq %d", directory, reason, committed_seq)
    shutil.rmtree(directory)
    return False


def _disagreement(directory: Path, committed_seq: int) -> str | None:
    batches = numbered(directory / "offsets")
    if not batches:
        return "it has no batch"
    last = batches[-1]
    end_seq = _planned_end(directory, last)
    if end_seq is None:
        return f"the offset of batch {last} cannot be read"
    if last in numbered(directory / "commits"):
        return None if end_seq == committed_seq else f"batch {last} is done and ended at seq {end_seq}"
    if last == 0:
        # The start of the very first batch is not recorded; Spark asks the source again, which answers with the store's
        # number.
        return None if committed_seq <= end_seq else f"batch 0 ends at seq {end_seq}"
    start_seq = _planned_end(directory, last - 1)
    if committed_seq in (start_seq, end_seq):
        return None
    return f"batch {last} is planned from seq {start_seq} to {end_seq}"


def numbered(directory: Path) -> list[int]:
    """Return the numbers of the batches in a directory of Spark's checkpoint."""
    return sorted(int(path.name) for path in directory.glob("*") if path.name.isdigit())


def planned_offset(directory: Path, batch: int) -> dict[str, Any] | None:
    """Return the end of a batch by Spark's offset log; None if it cannot be read.

    A log file is a version, the batch's metadata, then one JSON offset for each source (we have one).
    """
    try:
        offset = json.loads((directory / "offsets" / str(batch)).read_text().splitlines()[-1])
    except (OSError, ValueError, LookupError):
        return None
    return offset if isinstance(offset, dict) else None


def _planned_end(directory: Path, batch: int) -> int | None:
    try:
        return int((planned_offset(directory, batch) or {})["seq"])
    except (ValueError, LookupError, TypeError):
        return None
