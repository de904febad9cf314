"""Which clients are connected, and how many may be: in all, and from one address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tarry.base.descriptors import ConnectionLimits
from tarry.fronts.rocketmq.classic.connection import RemotingConnection


class RemotingConnections:
    """On the loop's thread."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._open: set[RemotingConnection] = set()
        self._hosts: Counter[str] = Counter()

    def __iter__(self) -> Iterator[RemotingConnection]:
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def on_connected(self, connection: RemotingConnection) -> str | None:
        """A connection begins; why it is refused, if it is."""
        host = connection.peer_host
        if len(self._open) >= self._limits.in_all:
            return f"{len(self._open)} connections are open; allowed: {self._limits.in_all}"
        if self._hosts[host] >= self._limits.per_peer:
            return f"{host} has {self._hosts[host]} connections; allowed: {self._limits.per_peer} from one address"
        self._open.add(connection)
        self._hosts[host] += 1
        return None

    def on_closed(self, connection: RemotingConnection) -> bool:
        """It is lost or closed; whether it had been taken."""
        if connection not in self._open:
            return False
        self._open.remove(connection)
        self._hosts[connection.peer_host] -= 1
        if not self._hosts[connection.peer_host]:
            del self._hosts[connection.peer_host]
        return True
