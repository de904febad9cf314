"""Credentials that callers have used, as one process has seen it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

WORKERS_KEY = "uses"
"""Key on the board under which a worker posts the credentials that its callers have used lately."""
OpenCredentials = Callable[[], Iterable[str]]
"""Return the credentials of the callers that are connected. Called from any thread."""


class CredentialUses:
    """Credentials that were used since :meth:`take` was called last. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: set[str] = set()
        self._open: tuple[OpenCredentials, ...] = ()

    def note(self, credential: str) -> None:
        """Note that a credential was used, by its id: an entry of a set, as it is done for each request."""
        self._used.add(credential)

    def watch(self, open_: OpenCredentials) -> Callable[[], None]:
        """Count the credentials of connections as used as long as they are open; return what ends this."""

        def stop() -> None:
            with self._lock:
                self._open = tuple(each for each in self._open if each is not open_)

        with self._lock:
            self._open = (*self._open, open_)
        return stop

    def take(self) -> set[str]:
        """Return the credentials that were used."""
        used, self._used = self._used, set()
        # One that is noted in the former set after this line is lost until it is used again: no lock is worth that.
        return used.union(*(each() for each in self._open))
