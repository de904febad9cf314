"""The store: a Delta table of messages due in the far future, bucketed and sorted by due time.

Format: ``docs/formats-store.md``.

``layout`` (which rows share a file) → ``stage`` (write files) → ``publisher`` (the table's log: commits and snapshots)
→ ``table`` (which commit is right) → ``window`` (read a span of due time in order). ``upkeep`` (what to rewrite) →
``rewrite`` (do it, by ``run``). The broker needs no Spark and no Java for any of it.
"""

from tarry.base.errors import StaleCommitError
from tarry.store.actions import Commit
from tarry.store.claims import check_claims
from tarry.store.due import next_due
from tarry.store.identity import check_same_table, table_id_at
from tarry.store.orphans import remove_orphans, remove_replaced, remove_staged
from tarry.store.owner import Owner, check_before_mending
from tarry.store.publisher import Publisher
from tarry.store.rewrite import Rewritten, Work, rewrite
from tarry.store.snapshot import FileColumns, Snapshot
from tarry.store.stage import stage, staging
from tarry.store.table import Store
from tarry.store.warm import WarmTable
from tarry.store.window import read_window

__all__ = [
    "Commit",
    "FileColumns",
    "Owner",
    "Publisher",
    "Rewritten",
    "Snapshot",
    "StaleCommitError",
    "Store",
    "WarmTable",
    "Work",
    "check_before_mending",
    "check_claims",
    "check_same_table",
    "next_due",
    "read_window",
    "remove_orphans",
    "remove_replaced",
    "remove_staged",
    "rewrite",
    "stage",
    "staging",
    "table_id_at",
]
