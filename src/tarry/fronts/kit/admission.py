"""Admission of connections: bounds in all, by peer, and of those that have said nothing yet."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from tarry.base.descriptors import ConnectionLimits

log = logging.getLogger(__name__)

BEGIN_S = 10.0
"""Seconds that a connection may take to say something, its TLS handshake included."""
LOOK_S = 1.0
"""Seconds between checks of that time."""
REFUSED_MAX = 64
"""Refused connections that may stay until they have read why."""
ABORTED_S = 5.0
"""Seconds that aborted connections may take to end."""


class Admission:
    """One connection's place at a door, from its accept until :meth:`released`. On the loop's thread."""

    __slots__ = ("_owner", "cut", "half_open", "on_drain", "peer_host", "principal", "refusal", "since_s")

    def __init__(self, owner: Admissions, peer_host: str, cut: Callable[[], object], since_s: float) -> None:
        self._owner = owner
        self.peer_host = peer_host
        """The client's address without its port, an IPv6 one without brackets; empty for a Unix socket."""
        self.principal: str | None = None
        """The client's name: the subject of its certificate; None where it showed none."""
        self.refusal: str | None = None
        """The reason why it is refused, for the protocol to say in its own way."""
        self.cut = cut
        """Ends the connection at once."""
        self.on_drain: Callable[[], object] | None = None
        """Ends the connection when what it has begun is done; without it, it is cut."""
        self.half_open = False
        """True until the client has said something."""
        self.since_s = since_s

    def begun(self) -> None:
        """Note that the client has said something. Protocols call it when :attr:`half_open` and data has come."""
        self._owner.on_begun(self)

    def released(self) -> None:
        """Give the place back: the connection is lost. A second call does nothing."""
        self._owner.on_released(self)

    @property
    def is_open(self) -> bool:
        """False once released, or once cut to make room for another."""
        return self._owner.has(self)


class Admissions:
    """The places of one door. On the loop's thread."""

    def __init__(
        self, limits: ConnectionLimits, half_open_max: int | None = None, begin_s: float | None = BEGIN_S
    ) -> None:
        """Count connections against limits.

        Args:
            limits: bounds in all and by peer.
            half_open_max: bound of connections that have said nothing; None: a quarter of all.
            begin_s: seconds that a connection may say nothing; None: for ever.
        """
        self._limits = limits
        self._half_open_max = max(1, limits.in_all // 4) if half_open_max is None else half_open_max
        self._begin_s = begin_s
        self._loop = asyncio.get_running_loop()
        self._open: set[Admission] = set()
        """All that there are, also refused ones."""
        self._taken = 0
        self._by_peer: Counter[str] = Counter()
        self._half_open: dict[Admission, None] = {}
        """The oldest first."""
        self._draining = False
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._taken

    def has(self, admission: Admission) -> bool:
        """Return whether a connection has its place still."""
        return admission in self._open

    def admit(self, peer_host: str, cut: Callable[[], object]) -> Admission:
        """Return the place of a connection that was accepted, with a refusal where there is none for it.

        Args:
            peer_host: the client's address; empty for a Unix socket, which has no bound by peer.
            cut: ends the connection at once.
        """
        admission = Admission(self, peer_host, cut, self._loop.time())
        admission.refusal = self._refusal(peer_host)
        self._open.add(admission)
        self._none_open.clear()
        if admission.refusal is None:
            self._take(admission)
        return admission

    def has_room_to_refuse(self) -> bool:
        """Return whether a refused connection may stay until its client has read why."""
        return len(self._open) - self._taken <= REFUSED_MAX

    def on_begun(self, admission: Admission) -> None:
        """Note that a client has said something."""
        admission.half_open = False
        self._half_open.pop(admission, None)

    def on_released(self, admission: Admission) -> None:
        """Give a place back."""
        if admission not in self._open:
            return
        self._open.remove(admission)
        self.on_begun(admission)
        if admission.refusal is None:
            self._taken -= 1
            self._by_peer[admission.peer_host] -= 1
            if not self._by_peer[admission.peer_host]:
                del self._by_peer[admission.peer_host]
        if not self._open:
            self._none_open.set()

    async def drain(self, grace_s: float) -> None:
        """Refuse new connections, let others end within ``grace_s`` seconds, then cut the rest."""
        self._draining = True
        for admission in list(self._open):
            (admission.on_drain or admission.cut)()
        if not await self._wait_until_closed(grace_s):
            log.debug("%d connections did not end within %g s", len(self._open), grace_s)
            for admission in list(self._open):
                admission.cut()
            if not await self._wait_until_closed(ABORTED_S):
                log.warning("%d connections that were aborted have not ended", len(self._open))
        if self._timer is not None:
            self._timer.cancel()

    async def _wait_until_closed(self, timeout_s: float) -> bool:
        try:
            await asyncio.wait_for(self._none_open.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def _refusal(self, host: str) -> str | None:
        if self._draining:
            return "the server stops"
        limits = self._limits
        if host and self._by_peer[host] >= limits.per_peer and not self._cut_oldest(host):
            return f"too many connections of {host}; allowed: {limits.per_peer}"
        if self._taken >= limits.in_all and not self._cut_oldest(None):
            return f"too many connections; allowed: {limits.in_all}"
        return None

    def _take(self, admission: Admission) -> None:
        self._taken += 1
        self._by_peer[admission.peer_host] += 1
        admission.half_open = True
        self._half_open[admission] = None
        if len(self._half_open) > self._half_open_max:
            self._cut_oldest(None)
        if self._timer is None and self._begin_s is not None:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def _cut_oldest(self, host: str | None) -> bool:
        """Make room by ending the oldest half-open connection (of ``host``); False where there is none."""
        oldest = next((each for each in self._half_open if host is None or each.peer_host == host), None)
        if oldest is None:
            return False
        oldest.released()  # now, and not when the transport says so: its place is given away
        oldest.cut()
        return True

    def _look(self) -> None:
        self._timer = None
        if self._begin_s is None:
            return
        until_s = self._loop.time() - self._begin_s
        while (oldest := next(iter(self._half_open), None)) is not None and oldest.since_s <= until_s:
            self._cut_oldest(None)
        if self._half_open:
            self._timer = self._loop.call_later(LOOK_S, self._look)
