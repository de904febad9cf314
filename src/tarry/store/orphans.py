"""Removes files that no readable version names.

They are left by attempts that died, or were removed by a commit long enough ago. Both are judged by age, as Delta's own
VACUUM does: a reader may go on with the snapshot that it has, until its files have been out of the table for the
retention.

A deletion is no commit, so no fence (``fence.py``) stops an owner that was taken over, and no look before it would: it
may stand still behind its look, for days. What protects the files of a new owner:

- staged, not committed: an orphan was a day old before the table was read to which it is compared. Files of that age
  are not committed where commits are fenced (``publisher.py``, an hour less than that day), so what somebody has listed
  as an orphan, however long ago, is in no later version either.
- committed: the version that was read names them, if they are that old. A name that was once removed from the table is
  never added again, for each has a UUID. How long replaced files stay is the table's, changed by fenced commits only.
- of a job's attempt that was given up: its number may be another attempt's at the new owner. So
  :func:`remove_staged`, which goes by number and not by age, is not for stores that are fenced.
"""

from __future__ import annotations

import logging

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from tarry.base.clock import SystemClock
from tarry.store.place import Place

log = logging.getLogger(__name__)

ORPHAN_AGE_HOURS = 24
"""Age of orphans that are removed, far longer than a batch takes.

A driver that sleeps longer finds at its commit that its files have gone, and loses nothing.
"""


def remove_orphans(root: str, *, older_than_hours: int = ORPHAN_AGE_HOURS) -> list[str]:
    """Delete files under the table that are older than this and not named by its log; gives their paths.

    Not being able to is logged, and no reason to stop. Files that a commit has removed less than that ago stay too: a
    reader of an older version may still be on them.
    """
    return _remove(root, older_than_hours, everything=True, what="staged files that were never committed")


def remove_replaced(root: str, *, older_than_hours: int) -> list[str]:
    """Delete files that a commit removed from the table longer ago than this; gives their paths.

    The table's ``delta.deletedFileRetentionDuration`` must not be shorter. Not being able to is logged.
    """
    return _remove(root, older_than_hours, everything=False, what="files that were replaced or have expired")


def remove_staged(root: str, shard: int, prefix: str) -> list[str]:
    """Delete files that were staged under names with this prefix; return their paths.

    The caller knows that none of them is in the table or will be, which in a store whose commits are fenced nobody
    does. Failures are logged; the files are orphans then.
    """
    place = Place.of(root)
    try:
        infos = place.filesystem.get_file_info(
            fs.FileSelector(place.path(f"shard={shard}"), allow_not_found=True, recursive=True)
        )
        paths = [info.path.removeprefix(f"{place.base}/") for info in infos if info.base_name.startswith(prefix)]
        place.remove(paths)
    except (OSError, pa.ArrowException) as error:
        log.warning("files %s* that were given up could not be removed: %s", prefix, error)
        return []
    return paths


def _remove(root: str, older_than_hours: int, *, everything: bool, what: str) -> list[str]:
    try:
        began_ms = SystemClock().now_ms()
        # A dry run, and deletion by ourselves: a real one would also write entries into the log.
        removable = DeltaTable(root).vacuum(
            older_than_hours, dry_run=True, enforce_retention_duration=False, full=everything
        )
        paths = [path for path in removable if path.endswith(".parquet")]
        place = Place.of(root)
        # Who stands still between reading the table and listing its files does not know those of commits in between.
        latest_ms = began_ms - older_than_hours * 3_600_000 if everything else began_ms
        # The log speaks of a removed file for longer than the file is there: it has no time then.
        found = zip(paths, place.look_at(paths), strict=True)
        paths = [path for path, (_, written_ms) in found if written_ms is not None and written_ms <= latest_ms]
        place.remove(paths)
    except (DeltaError, OSError) as error:
        log.warning("%s could not be removed: %s", what, error)
        return []
    if paths:
        log.info("deleted %d %s", len(paths), what)
    return paths
