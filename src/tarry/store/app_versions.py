"""The app transactions of one version of the table, each read once.

For each number delta-rs reads all entries of the log since the checkpoint, which on object storage is a round trip. The
numbers of a version never change, and one's own commit says which of them the next version has.
"""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable


class AppVersions:
    """The numbers of the version that was read last. Of one thread at a time."""

    def __init__(self) -> None:
        self._version = -1
        self._known: dict[str, int | None] = {}
        self._next: dict[str, int | None] | None = None

    def of(self, table: DeltaTable, app_id: str) -> int | None:
        """Return the version of an app transaction in the table as it was read last; None for a missing one.

        Raises DeltaError, OSError: the log cannot be read.
        """
        version = int(table.version())
        if version != self._version:
            known = self._next if version == self._version + 1 else None
            self._version, self._known, self._next = version, known or {}, None
        if app_id not in self._known:
            found = table.transaction_version(app_id)
            self._known[app_id] = None if found is None else int(found)
        return self._known[app_id]

    def committed(self, before: int, versions: Mapping[str, int]) -> None:
        """Note that the version after ``before`` is a commit of one's own, which set these ``versions``."""
        self._next = {**self._known, **versions} if before == self._version else None
