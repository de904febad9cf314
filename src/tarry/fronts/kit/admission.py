"""Admission of connections: limits in all, by peer, and of those that have sent nothing yet.

Where all places are taken, the oldest connection makes room that has sent nothing; then the oldest whose client has not
shown who it is for a while, at a port that finds that out by each request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from tarry.base.descriptors import ConnectionLimits
from tarry.fronts.kit.peer_proof import PeerProof

log = logging.getLogger(__name__)

BEGIN_S = 10.0
"""Seconds within which a connection must send something, its TLS handshake included."""
LOOK_S = 1.0
"""Seconds between checks of that time."""
REFUSED_MAX = 64
"""Most refused connections that are kept until their clients have read the reason."""
ABORTED_S = 5.0
"""Seconds that aborted connections may take to end."""


class Admission:
    """The place of one connection at a door, from its accept until :meth:`released`. On the loop's thread."""

    __slots__ = ("_owner", "cut", "half_open", "on_drain", "peer_host", "principal", "refusal", "since_s")

    def __init__(self, owner: Admissions, peer_host: str, cut: Callable[[], object], since_s: float) -> None:
        self._owner = owner
        self.peer_host = peer_host
        """The client's address without its port, an IPv6 one without brackets; empty for a Unix socket."""
        self.principal: PeerProof | None = None
        """The identity that the connection has proved; None if it has proved none."""
        self.refusal: str | None = None
        """The reason for a refusal, which the protocol tells the client; None if admitted."""
        self.cut = cut
        """Ends the connection at once."""
        self.on_drain: Callable[[], object] | None = None
        """Ends the connection once the work that it has begun is done. None: the connection is cut instead."""
        self.half_open = False
        """True until the client has sent something."""
        self.since_s = since_s

    def begun(self) -> None:
        """Note that the client has sent something.

        Protocols call it if :attr:`half_open` is true when data arrives.
        """
        self._owner.on_begun(self)

    def trusted(self) -> None:
        """Note that the client has shown who it is, or need not."""
        self._owner.on_trusted(self)

    def passed_for(self, peer_host: str) -> bool:
        """Count the connection, which a worker has passed on, as that of its client.

        Return False if that client has too many.
        """
        return self._owner.on_passed(self, peer_host)

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
        self,
        limits: ConnectionLimits,
        half_open_max: int | None = None,
        begin_s: float | None = BEGIN_S,
        *,
        asks: bool = False,
    ) -> None:
        """Count connections against limits.

        Args:
            limits: limits on all connections and on those of one peer.
            half_open_max: limit on connections that have sent nothing; None: a quarter of all.
            begin_s: seconds within which a connection must send something; None: no limit.
            asks: connections are noted as trusted after they have begun.
        """
        self._limits, self._asks = limits, asks
        self._half_open_max = max(1, limits.in_all // 4) if half_open_max is None else half_open_max
        self._begin_s = begin_s
        self._loop = asyncio.get_running_loop()
        self._open: set[Admission] = set()
        """All places, also those of refused connections."""
        self._taken = 0
        self._by_peer: Counter[str] = Counter()
        self._half_open: dict[Admission, None] = {}
        """Oldest first."""
        self._untrusted: dict[Admission, None] = {}
        """The same of those that have shown nothing; only where ``asks``."""
        self._draining = False
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._taken

    def has(self, admission: Admission) -> bool:
        """Return whether a connection still has its place."""
        return admission in self._open

    def admit(self, peer_host: str, cut: Callable[[], object]) -> Admission:
        """Return the place of an accepted connection. It has a refusal if a limit is reached.

        Args:
            peer_host: the client's address; empty for a Unix socket, which has no limit by peer.
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
        """Return whether a refused connection may stay until its client has read the reason."""
        return len(self._open) - self._taken <= REFUSED_MAX

    def on_begun(self, admission: Admission) -> None:
        """Note that a client has sent something."""
        admission.half_open = False
        self._half_open.pop(admission, None)

    def on_trusted(self, admission: Admission) -> None:
        """Note that a client has shown who it is."""
        self._untrusted.pop(admission, None)

    def on_passed(self, admission: Admission, peer_host: str) -> bool:
        """Count a connection as one of another peer; return False, and do not, if that has too many."""
        if self._by_peer[peer_host] >= self._limits.per_peer and not self._cut_oldest(peer_host):
            return False
        self._count(admission.peer_host, -1)
        self._count(peer_host, 1)
        admission.peer_host = peer_host
        return True

    def on_released(self, admission: Admission) -> None:
        """Give a place back."""
        if admission not in self._open:
            return
        self._open.remove(admission)
        self.on_begun(admission)
        self.on_trusted(admission)
        if admission.refusal is None:
            self._taken -= 1
            self._count(admission.peer_host, -1)
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
        self._count(admission.peer_host, 1)
        admission.half_open = True
        self._half_open[admission] = None
        if self._asks:
            self._untrusted[admission] = None
        if len(self._half_open) > self._half_open_max:
            self._cut_oldest(None)
        if self._timer is None and self._begin_s is not None:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def _count(self, peer_host: str, more: int) -> None:
        self._by_peer[peer_host] += more
        if not self._by_peer[peer_host]:
            del self._by_peer[peer_host]

    def _cut_oldest(self, host: str | None) -> bool:
        """Make room by cutting the oldest half-open connection (of ``host``); return False if there is none.

        Then the oldest that is not trusted, though it has been there for :data:`BEGIN_S`.
        """
        oldest = next((each for each in self._half_open if host is None or each.peer_host == host), None)
        if oldest is None:
            oldest = next((each for each in self._untrusted if host is None or each.peer_host == host), None)
            if oldest is None or oldest.since_s > self._loop.time() - BEGIN_S:
                return False
        oldest.released()  # released now, not when the transport has closed: its place goes to another
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
