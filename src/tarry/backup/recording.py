"""Has the broker know of a backup that ended well, for its status, metrics and alerts."""

from __future__ import annotations

from tarry.api.calls import Calls
from tarry.api.operations.backups import PLACE_CHARS_MAX
from tarry.backup.manifest import BackupManifest
from tarry.base.errors import TarryError


def record(broker: Calls, manifest: BackupManifest, place: str) -> TarryError | None:
    """Tell the broker of a backup at ``place``; return why it could not be told.

    The backup is whole without that: a broker that has stopped meanwhile goes on to tell of an older one.
    """
    try:
        broker.record_backup(manifest.at_ms, place[:PLACE_CHARS_MAX], manifest.bytes)
    except TarryError as error:
        return error
    return None
