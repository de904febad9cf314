"""The callers whose connections a port has: one that is not known any more loses them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tarry.api.local import LocalBroker
from tarry.base.errors import TarryError, UnavailableError
from tarry.base.event_loop import post
from tarry.identity.authenticator import Authenticator
from tarry.identity.principal import Principal

GRACE_S = 0.5
"""Seconds until a change is looked at: whoever made it gets the answer first."""
_GONE = UnavailableError(
    "the credential of this connection was removed or has expired, or its rights have changed; connect again"
)
"""Whoever connects again is told what is the matter, or goes on with the new rights."""


class Callers:
    """Callers by connection. On the loop's thread; made on it.

    A change of the identities is looked at soon after it was made, and an expiry when it comes.
    """

    def __init__(self, broker: LocalBroker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker, self._loop = broker, loop
        self.authenticator = Authenticator(broker)
        """Tells who a caller is."""
        self._known: dict[object, tuple[Principal, Callable[[TarryError], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._stop = broker.listen_to_identities(lambda: post(loop, self._look_soon))
        self._look()

    def add(self, connection: object, principal: Principal, refuse: Callable[[TarryError], None]) -> None:
        """Note whose a connection is; ``refuse`` tells the other side and cuts it off."""
        self._known[connection] = principal, refuse

    def remove(self, connection: object) -> None:
        """Forget a connection that has ended."""
        self._known.pop(connection, None)

    def close(self) -> None:
        """Look no more."""
        self._stop()
        if self._timer is not None:
            self._timer.cancel()

    def _look_soon(self) -> None:
        self._loop.call_later(GRACE_S, self._look)

    def _look(self) -> None:
        for principal, refuse in list(self._known.values()):
            if not self.authenticator.is_known(principal):
                refuse(_GONE)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        expiry_ms = self.authenticator.next_expiry_ms
        if expiry_ms is not None:
            # A clock that is set may make it early or late: within an hour it is looked at again.
            wait_s = min(3600.0, max(0.0, self._broker.clock.seconds_until(expiry_ms)) + 0.001)
            self._timer = self._loop.call_later(wait_s, self._look)
