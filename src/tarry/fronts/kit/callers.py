"""The callers whose connections a port has: one that is not known any more loses them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from tarry.api.accounts import QuotaAccount
from tarry.api.local import AnyBroker
from tarry.base.errors import TarryError, UnauthenticatedError, UnavailableError
from tarry.base.event_loop import post
from tarry.identity.authenticator import Authenticator
from tarry.identity.principal import Principal

GRACE_S = 0.5
"""Seconds until a change is looked at: whoever made it gets the answer first."""
LOOK_S = 1.0
"""Seconds between two looks at a broker that does not tell of changes, while there are connections."""
EXPIRY_S_MAX = 3600.0
"""A clock that is set may make an expiry early or late: within this time it is looked at again."""
_CHANGED = "the rights of this connection's caller have changed, or callers are asked now who they are; connect again"
_GONE = (
    "the credential of this connection was removed or has expired, or its provider's key or its claims are taken no "
    "longer; connect again with one that is taken"
)


@runtime_checkable
class TellsOfChanges(Protocol):
    """A broker in this process; one behind a link is looked at now and then instead."""

    def listen_to_identities(self, on_change: Callable[[], None]) -> Callable[[], None]: ...
    def listen_to_tokens(self, on_change: Callable[[], None]) -> Callable[[], None]: ...
    def listen_to_issuers(self, on_change: Callable[[], None]) -> Callable[[], None]: ...


class Callers:
    """Callers by connection, or by request. On the loop's thread; made on it.

    A change of the identities, of access tokens or of a provider's keys is looked at soon after it was made, and an
    expiry when it comes.
    """

    def __init__(self, broker: AnyBroker, loop: asyncio.AbstractEventLoop, front: str) -> None:
        """``front``: whose callers they are, for the audit log."""
        self._broker, self._loop = broker, loop
        self.authenticator = Authenticator(broker, front)
        """Tells who a caller is."""
        self._known: dict[object, tuple[Principal, Callable[[TarryError], None], QuotaAccount | None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._stops: list[Callable[[], None]] = []
        self._stops.append(broker.credential_uses.watch(self._open))
        self._is_told = isinstance(broker, TellsOfChanges)
        if isinstance(broker, TellsOfChanges):
            for listen in (broker.listen_to_identities, broker.listen_to_tokens, broker.listen_to_issuers):
                self._stops.append(listen(lambda: post(loop, self._look_soon)))
            self._look()

    def add(
        self,
        connection: object,
        principal: Principal,
        refuse: Callable[[TarryError], None],
        *,
        counts: bool = False,
    ) -> None:
        """Note whose a connection is; ``refuse`` tells the other side and cuts it off.

        It gets an UnauthenticatedError where the credential is gone, which no retry helps, and an UnavailableError
        where the caller may connect again with what it has: its rights have changed.

        ``counts``: it counts as one of the connections that its identity may have.

        Raises:
            QuotaExceededError: these are too many; it was not noted.
        """
        account = principal.account if counts else None
        if account is not None:
            account.begin_connection()
        self._known[connection] = principal, refuse, account
        if principal.expires_ms is not None and self._is_told:
            self._look_at(principal.expires_ms)
        if not self._is_told and self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def remove(self, connection: object) -> None:
        """Forget a connection that has ended."""
        account = self._known.pop(connection, (None, None, None))[2]
        if account is not None:
            account.end_connection()

    def _open(self) -> list[str]:
        # Any thread: the list is made in one step.
        return [principal.credential for principal, _, _ in list(self._known.values()) if principal.credential]

    def close(self) -> None:
        """Look no more."""
        for stop in self._stops:
            stop()
        if self._timer is not None:
            self._timer.cancel()

    def _look_soon(self) -> None:
        self._loop.call_later(GRACE_S, self._look)

    def _look(self) -> None:
        for principal, refuse, _ in list(self._known.values()):
            if not self.authenticator.is_known(principal):
                is_changed = self.authenticator.has_credential(principal)
                refuse(UnavailableError(_CHANGED) if is_changed else UnauthenticatedError(_GONE))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait_s = self._wait_s()
        if wait_s is not None:
            self._timer = self._loop.call_later(wait_s, self._look)

    def _wait_s(self) -> float | None:
        """Return the seconds until the next look; None: something will be told before."""
        if not self._is_told:
            return LOOK_S if self._known else None
        moments = {principal.expires_ms for principal, _, _ in self._known.values()}
        moments.add(self.authenticator.next_expiry_ms)
        # Whose connection has not ended yet, though it was told to, is not looked for again.
        now_ms = self._broker.clock.now_ms()
        expiry_ms = min((each for each in moments if each is not None and each > now_ms), default=None)
        if expiry_ms is None:
            return None
        return self._wait_until_s(expiry_ms)

    def _look_at(self, expiry_ms: int) -> None:
        """Look when a caller's token ends, if no look comes before."""
        wait_s = self._wait_until_s(expiry_ms)
        if self._timer is not None:
            if self._timer.when() <= self._loop.time() + wait_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(wait_s, self._look)

    def _wait_until_s(self, expiry_ms: int) -> float:
        return min(EXPIRY_S_MAX, max(0.0, self._broker.clock.seconds_until(expiry_ms)) + 0.001)
