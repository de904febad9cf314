"""The file by which a standby, or an owner, is seen on its machine, and the one by which it is told.

A standby has no open port, so programs of the same machine read this file. Its process writes it anew each second for
as long as it lives; an older one is of a process that is gone, or stands still. Format: ``docs/formats-log-store.md``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tarry.base.clock import Clock
from tarry.log.file_engine import ROLE_FILE, TAKEOVER_FILE
from tarry.log.objects.lease import boot_s

log = logging.getLogger(__name__)

WRITE_S = 1.0
DEAD_S = 5.0
"""Age of a file whose process is gone, or stands still."""


class RoleFile:
    """The file of one process in the directory ``data``; its logs are at ``uri``.

    ``clock`` is for people.
    """

    def __init__(self, data: Path, clock: Clock, uri: str) -> None:
        self._data, self._clock, self._uri = data, clock, uri
        self._role, self._since_ms = "", 0
        self._state: Callable[[], Mapping[str, Any]] = dict
        self._served: dict[str, Any] = {"serving_ms": None, "addresses": {}}
        self._writing: asyncio.Task[None] | None = None

    def begin(self, role: str, state: Callable[[], Mapping[str, Any]]) -> None:
        """Say what the process is from now on, and each second what else ``state`` returns. On an event loop."""
        self._role, self._since_ms, self._state = role, self._clock.now_ms(), state
        if role == "standby":
            (self._data / TAKEOVER_FILE).unlink(missing_ok=True)  # it was for a process of before
        self.write()
        if self._writing is None:
            self._writing = asyncio.create_task(self._keep_writing())

    def serve(self, addresses: Mapping[str, str]) -> None:
        """Say that the owner serves, at these addresses by front. From any thread."""
        self._served = {"serving_ms": self._clock.now_ms(), "addresses": dict(addresses)}

    def is_told(self) -> bool:
        """Return whether it was told to take over, once for each time."""
        try:
            (self._data / TAKEOVER_FILE).unlink()
        except FileNotFoundError:
            return False
        return True

    def write(self) -> None:
        """Write the file; readers find it as it was or as it is. A disk that fails is not told of here."""
        content = {
            "format": 1,
            "role": self._role,
            "log": self._uri,
            "process": os.getpid(),
            "since_ms": self._since_ms,
            "written_ms": self._clock.now_ms(),
            "written_boot_s": boot_s(),
            **(self._served if self._role == "owner" else {}),
            **self._state(),
        }
        path = self._data / ROLE_FILE
        with suppress(OSError):
            temporary = path.with_name(f"{ROLE_FILE}.new")
            temporary.write_text(json.dumps(content))
            temporary.replace(path)

    def end(self) -> None:
        """Say nothing any more; its event loop has ended."""
        if self._role:
            (self._data / ROLE_FILE).unlink(missing_ok=True)

    async def _keep_writing(self) -> None:
        while True:
            await asyncio.sleep(WRITE_S)
            self.write()


def read_role(data: Path) -> dict[str, Any] | None:
    """Return what the process of a directory says of itself; None: it does not, or not any more.

    ``age_ms``: so long ago.
    """
    try:
        role: dict[str, Any] = json.loads((data / ROLE_FILE).read_bytes())
        age_s = boot_s() - role.pop("written_boot_s")
    except (OSError, ValueError, KeyError):
        return None
    if not 0 <= age_s < DEAD_S:  # below 0: of before the machine was started
        return None
    return {**role, "age_ms": round(1000 * age_s)}


def tell_to_take_over(data: Path) -> None:
    """Tell the standby of a directory to take over. Raises OSError."""
    (data / TAKEOVER_FILE).touch()
