"""The last backup that ended well: its time, place and size.

Whoever made it tells of it, and it is known after a restart. It is kept in ``last-backup.json`` (format:
``docs/formats.md``). A broker serves without it: one that is lost or damaged means that none is known. Backups do not
have it, since a restored broker has none of its own.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import CorruptError
from tarry.log.engine import LogEngine
from tarry.log.file_engine import FileEngine
from tarry.log.files import Files
from tarry.log.json_file import change_json, read_json

log = logging.getLogger(__name__)

FILE = "last-backup.json"
VERSION = 1


class LastBackup:
    """The last backup. Any thread."""

    def __init__(self, config: Config, clock: Clock, files: Files, engine: LogEngine) -> None:
        self._clock, self._files, self._path = clock, files, config.data / FILE
        self._lock = threading.Lock()
        self._state = self._read() if isinstance(engine, FileEngine) else None

    @property
    def state(self) -> dict[str, Any] | None:
        """Moment (UTC, ms), place and bytes, each None where there was no backup yet.

        None: the logs are in an object store, and backups are made of the bucket.
        """
        return self._state

    def record(self, at_ms: int, place: str, size: int) -> None:
        """Note a backup of the moment ``at_ms``, durably; an older one than the last changes nothing.

        Raises:
            DiskFullError, OverloadedError: it could not be written; nothing was changed.
        """
        with self._lock:
            if self._state is None:
                return
            now_ms = self._clock.now_ms()
            known_ms = self._state["at_ms"]
            # One that is ahead of the clock is of a clock that was wrong, and would hide all others.
            if known_ms is not None and at_ms < known_ms <= now_ms:
                return
            state = {"at_ms": min(at_ms, now_ms), "place": place, "bytes": size}
            change_json(self._files, self._path, VERSION, state)
            self._state = state

    def _read(self) -> dict[str, Any]:
        try:
            found = read_json(self._path, [VERSION])
            if found is not None:
                return {"at_ms": int(found["at_ms"]), "place": str(found["place"]), "bytes": int(found["bytes"])}
        except (CorruptError, KeyError, TypeError, ValueError) as error:
            log.warning("%s: when the last backup was made is not known any more", error)
        return {"at_ms": None, "place": None, "bytes": None}
