"""Starting and stopping the broker's side: where gateways connect."""

from __future__ import annotations

import asyncio
import os
import tempfile
from concurrent.futures import Executor
from functools import partial
from hashlib import sha256
from pathlib import Path

from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import SOCKET, SOCKET_BYTES_MAX, socket_path
from tarry.base.errors import UnavailableError
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.gateway.authentication import Trust, tls_files
from tarry.fronts.gateway.served.connection import ServedConnection
from tarry.fronts.gateway.served.groups import GroupTable
from tarry.fronts.gateway.served.shared import ServedBroker, Shared
from tarry.fronts.kit.door import Door
from tarry.fronts.kit.listening import port_of
from tarry.fronts.kit.loop_thread import LoopThread, OnStarted
from tarry.fronts.kit.tls import ReloadedTls

HELLO_S = 10.0
"""Seconds that a connection may take to say who it is."""
GREETING_MAX = 256
"""Connections that may be at it; of more, the oldest are cut off."""


def socket_of(data: Path) -> str:
    """The address of the socket of a data directory, for gateways of the same machine."""
    path = data.absolute() / "gateway.sock"
    if len(os.fsencode(path)) > SOCKET_BYTES_MAX:
        name = sha256(os.fsencode(path)).hexdigest()[:16]
        path = Path(tempfile.gettempdir()) / f"tarry-{os.getuid()}-{name}.sock"
    return f"{SOCKET}{path}"


class GatewayFront:
    """Serves gateways from :meth:`start` on; :meth:`stop` before the broker is closed. Any thread."""

    def __init__(
        self,
        broker: ServedBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
    ) -> None:
        self._broker = broker
        self._asked = address
        self._connections = connections or ConnectionLimits()
        # A socket of this machine is its user's alone.
        is_far = socket_path(address) is None
        files = tls_files(broker.config) if is_far else None
        self._tls = None if files is None else ReloadedTls(files)
        self._trust = Trust.of_broker(broker.config, address) if is_far else Trust()
        self._thread: LoopThread[str] = LoopThread("tarry-gateway", placement, self._serve)
        try:
            self.address = self._thread.started()
            """Where it listens, with the port that it has."""
        except OSError as error:
            raise UnavailableError(f"cannot listen on {address}: {error.strerror or error}") from error

    @classmethod
    def start(
        cls,
        broker: ServedBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
    ) -> GatewayFront:
        """Listen on ``HOST:PORT`` or ``unix:PATH``; ``placement`` says where its threads run.

        Raises:
            InvalidArgumentError: no address, one by TCP without a secret, or a file of its settings is not what it
            should be. UnavailableError: it cannot be listened on.
        """
        return cls(broker, address, placement, connections)

    def stop(self, grace_s: float = 0.0) -> None:
        """Cut off the gateways, whose workers end then."""
        self._thread.stop(grace_s)

    async def _serve(self, pool: Executor, on_started: OnStarted[str]) -> None:
        loop = asyncio.get_running_loop()
        shared = Shared(self._broker, loop, GroupTable(loop), partial(loop.run_in_executor, pool), self._trust)
        door = Door(
            partial(ServedConnection, shared),
            self._connections,
            tls=self._tls,
            half_open_max=GREETING_MAX,
            begin_s=HELLO_S,
        )
        try:
            address = await door.listen(self._asked)
            host = self._asked.rpartition(":")[0]
            on_path = socket_path(self._asked) is not None
            await on_started(self._asked if on_path else f"{host}:{port_of(address)}")
        finally:
            door.close()
            shared.groups.close()
            await door.drain(0)
