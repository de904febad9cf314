"""Has the broker know of a backup that ended well, for its status, metrics and alerts."""

from __future__ import annotations

import time

from tarry.api.calls import Calls
from tarry.api.operations.backups import PLACE_CHARS_MAX
from tarry.backup.manifest import BackupManifest
from tarry.base.errors import TarryError

PATIENCE_S = 30.0
"""A broker that starts again meanwhile is told then."""
_PAUSE_S = 1.0


def record(broker: Calls, manifest: BackupManifest, place: str, patience_s: float = PATIENCE_S) -> TarryError | None:
    """Tell the broker of a backup at ``place``; return why it could not be told.

    The backup is whole without that: a broker that has stopped meanwhile goes on to tell of an older one.
    """
    until_s = time.monotonic() + patience_s
    while True:
        try:
            broker.record_backup(manifest.at_ms, place[:PLACE_CHARS_MAX], manifest.bytes)
        except TarryError as error:
            if not error.retryable or time.monotonic() >= until_s:
                return error
            time.sleep(_PAUSE_S)
        else:
            return None
