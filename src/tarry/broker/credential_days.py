"""Days on which credentials were used last, so that those which nobody uses can be found.

Kept in ``credential-uses.json``, beside the identities: a lost or damaged file of days must keep nobody out, and a use
is no change of who is known. It is written at most once a minute, and only if a day has changed. A crash loses the uses
of the last minute, and the day with them if there are no more.

Format: ``docs/formats.md``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tarry.api.credential_uses import CredentialUses
from tarry.api.identities import Credential, Identity
from tarry.base.clock import Clock
from tarry.base.delay import format_ms
from tarry.base.errors import CorruptError
from tarry.log.files import Files
from tarry.log.json_file import read_json, write_json

log = logging.getLogger(__name__)

FILE = "credential-uses.json"
VERSION = 1
LOOK_MS = 60_000
_DAY_CHARS = len("2026-11-26")


class CredentialDays:
    """The days, by credential. Any thread."""

    def __init__(self, files: Files, clock: Clock, directory: Path) -> None:
        self._files, self._clock, self._path = files, clock, directory / FILE
        self._lock = threading.Lock()
        self._looked_ms = clock.now_ms()
        self._written: Mapping[str, str] = self._read()
        self._days = dict(self._written)
        self.uses = CredentialUses()
        """Takes the uses of this process."""
        self.elsewhere: Callable[[], Iterable[Mapping[str, Any]]] = tuple
        """Returns what workers have posted under :data:`tarry.api.credential_uses.WORKERS_KEY`."""

    def of(self, credential: Credential) -> str | None:
        """Return the day of the last use, as "2026-11-26" in UTC; None: none is known."""
        return self._days.get(credential.id)

    def look(self, identities: Iterable[Identity]) -> None:
        """Take the uses, and write the days if some have changed, at most once in :data:`LOOK_MS`.

        Raises:
            OSError: they could not be written; they will be with the next look.
        """
        if abs(self._clock.now_ms() - self._looked_ms) < LOOK_MS:
            return
        self.take()
        self.write(identities)

    def take(self) -> None:
        """Take the uses, without writing them."""
        with self._lock:
            now_ms = self._clock.now_ms()
            day = format_ms(now_ms)[:_DAY_CHARS]
            self._days.update(dict.fromkeys(self.uses.take(), day))
            for posted in self.elsewhere():
                self._days.update(dict.fromkeys(map(str, posted.get("credentials", ())), day))

    def write(self, identities: Iterable[Identity]) -> None:
        """Write the days of these identities' credentials, if some have changed.

        Raises:
            OSError: they could not be written.
        """
        with self._lock:
            self._looked_ms = self._clock.now_ms()
            ids = {credential.id for identity in identities for credential in identity.credentials}
            self._days = {id: day for id, day in self._days.items() if id in ids}
            if self._days != self._written:
                write_json(self._files, self._path, VERSION, {"days": self._days})
                self._written = dict(self._days)

    def _read(self) -> dict[str, str]:
        try:
            fields = read_json(self._path, [VERSION]) or {"days": {}}
            return {str(id): str(day) for id, day in fields["days"].items()}
        except (CorruptError, KeyError, AttributeError) as error:
            log.warning("%s: when credentials were used is not known any more", error)
            return {}
