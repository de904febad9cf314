"""Removing staged files that no commit will ever name: what attempts that died have left."""

from __future__ import annotations

import logging

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tarry.store.place import Place

log = logging.getLogger(__name__)

ORPHAN_AGE_HOURS = 24
"""Far longer than a batch takes. A driver that sleeps longer finds at its commit that its files have gone, and loses
nothing.
"""


def remove_orphans(root: str, *, older_than_hours: int = ORPHAN_AGE_HOURS) -> list[str]:
    """Delete files under the table that are older than this and not named by its log; gives their paths.

    Not being able to is logged, and no reason to stop. Files that a commit has removed less than that ago stay too: a
    reader of an older version may still be on them.
    """
    try:
        # A dry run, and deletion by ourselves: a real one would also write entries into the log.
        found = DeltaTable(root).vacuum(older_than_hours, dry_run=True, enforce_retention_duration=False, full=True)
        paths = [path for path in found if path.endswith(".parquet")]
        Place.of(root).remove(paths)
    except (DeltaError, OSError) as error:
        log.warning("staged files that were never committed could not be removed: %s", error)
        return []
    if paths:
        log.info("removed %d staged files that were never committed", len(paths))
    return paths
