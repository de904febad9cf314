"""The broker's side: listens for gateways."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import cast

from tarry.base.config import Config
from tarry.base.endpoint import SOCKET, SOCKET_BYTES_MAX, parse_address, socket_path
from tarry.base.errors import UnavailableError
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.gateway.authentication import Trust
from tarry.fronts.gateway.served.connection import HELLO_S, ServedConnection
from tarry.fronts.gateway.served.groups import GroupTable
from tarry.fronts.gateway.served.shared import ServedBroker, Shared
from tarry.fronts.gateway.settings import GatewaySettings
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import listen_on
from tarry.fronts.kit.loop_thread import LoopThread, OnStarted

BACKLOG = 128


def socket_of(data: Path) -> str:
    """Return the address of the socket of a data directory, for gateways of the same machine."""
    path = data.absolute() / "gateway.sock"
    if len(os.fsencode(path)) > SOCKET_BYTES_MAX:
        name = sha256(os.fsencode(path)).hexdigest()[:16]
        path = Path(tempfile.gettempdir()) / f"tarry-{os.getuid()}-{name}.sock"
    return f"{SOCKET}{path}"


class GatewayFront:
    """Serves gateways from :meth:`start` on; :meth:`stop` before the broker is closed. Any thread."""

    def __init__(self, broker: ServedBroker, address: str, placement: Placement = ANY_CORE) -> None:
        self._broker = broker
        self._asked = address
        # A socket of this machine belongs to its user alone.
        self._trust = (
            Trust.of_broker(GatewaySettings.of(broker.config), address) if socket_path(address) is None else Trust()
        )
        self._thread: LoopThread[str] = LoopThread("tarry-gateway", placement, self._serve)
        try:
            self.address = self._thread.started()
            """The address it listens on, with its actual port."""
        except OSError as error:
            raise UnavailableError(f"cannot listen on {address}: {error.strerror or error}") from error

    @classmethod
    def start(cls, broker: ServedBroker, address: str, placement: Placement = ANY_CORE) -> GatewayFront:
        """Listen on ``HOST:PORT`` or ``unix:PATH``; ``placement`` chooses the cores of its threads.

        Raises:
            InvalidArgumentError: no address, one by TCP without a secret, or a file of its settings is not what it
            should be. UnavailableError: it cannot be listened on.
        """
        return cls(broker, address, placement)

    def stop(self, grace_s: float = 0.0) -> None:
        """Cut off the gateways, whose workers end then."""
        self._thread.stop(grace_s)

    async def _serve(self, pool: Executor, on_started: OnStarted[str]) -> None:
        loop = asyncio.get_running_loop()
        path = socket_path(self._asked)
        listening = _listen_at(path) if path is not None else listen_on(*parse_address(self._asked), backlog=BACKLOG)
        run_in_thread = partial(loop.run_in_executor, pool)
        shared = Shared(self._broker, loop, GroupTable(loop), run_in_thread, self._trust)
        make = loop.create_unix_server if path is not None else loop.create_server
        server = await make(
            lambda: ServedConnection(shared),
            sock=listening,
            backlog=BACKLOG,
            ssl=self._trust.tls,
            ssl_handshake_timeout=None if self._trust.tls is None else HELLO_S,
        )
        try:
            host = self._asked.rpartition(":")[0]
            await on_started(self._asked if path is not None else f"{host}:{listening.getsockname()[1]}")
        finally:
            server.close()
            shared.groups.close()
            for connection in list(shared.connections):
                connection.stop()
            if path is not None:
                with suppress(OSError):
                    Path(path).unlink()


class GatewayPorts:
    """Ports of gateways: that of the setting, and one for the broker's own workers. Any thread."""

    def __init__(self, services: FrontServices) -> None:
        config = services.broker.config
        settings = GatewaySettings.of(config)
        given = [] if settings.gateway is None else [settings.gateway]
        if settings.workers and (settings.gateway is None or socket_path(settings.gateway) is None):
            # Its own workers come by a socket of this machine, whatever those of others have to show.
            given.append(socket_of(config.data))
        # Whoever serves gateways has the board: the broker itself, and no front behind a link.
        broker = cast(ServedBroker, services.broker)
        self._fronts: list[GatewayFront] = []
        try:
            for address in given:
                self._fronts.append(GatewayFront.start(broker, address, services.placement))
        except BaseException:
            self.stop()
            raise
        self.addresses: Mapping[str, str] = {} if settings.gateway is None else {"gateways": self._fronts[0].address}
        """The port of the setting, by a name for people."""

    @property
    def near_address(self) -> str:
        """Address for workers of this machine."""
        return self._fronts[-1].address

    def stop(self, grace_s: float = 0.0) -> None:
        """Cut off the gateways, whose workers end then."""
        for front in reversed(self._fronts):
            front.stop(grace_s)


def check(config: Config) -> None:
    """Raise an error if gateways by TCP could not be told from strangers.

    Raises:
        InvalidArgumentError: there is no secret, or a file of the settings is not what it should be.
    """
    settings = GatewaySettings.of(config)
    if settings.gateway is not None and socket_path(settings.gateway) is None:
        Trust.of_broker(settings, settings.gateway)


def start(services: FrontServices) -> GatewayPorts:
    """Start the ports of gateways for ``tarry serve``."""
    return GatewayPorts(services)


def _listen_at(path: str) -> socket.socket:
    """Listen on a socket that only this user can connect to.

    The data directory's lock ensures that no other broker has it.
    """
    Path(path).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(path)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening
