"""Starting and stopping the HTTP front: its port, the admin's, and the applications on them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor

from loopgrpc import UnreadBytes
from tarry.api.local import LocalBroker
from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import parse_address
from tarry.base.errors import UnavailableError
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.http.access import Access, mode_of
from tarry.fronts.http.app import App, Apps
from tarry.fronts.http.console.app import console_app
from tarry.fronts.http.exchange import HttpApplication
from tarry.fronts.http.lmstfy.access_log import AccessLog
from tarry.fronts.http.lmstfy.admin import Admin
from tarry.fronts.http.lmstfy.routes import PREFIX, Lmstfy
from tarry.fronts.http.rest.app import rest_app
from tarry.fronts.http.server.asgi import asgi
from tarry.fronts.http.server.limits import HttpLimits
from tarry.fronts.http.server.server import HttpServer
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.settings import HttpSettings
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import port_of
from tarry.fronts.kit.loop_front import LoopFront, OnListening
from tarry.fronts.kit.tls_settings import port_tls


class HttpFront(LoopFront):
    """HTTP/1.1."""

    NAME = "http"
    THREAD = "tarry-http"

    def __init__(
        self,
        broker: LocalBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
        admin: str | None = None,
        limits: HttpLimits | None = None,
        unread: UnreadBytes | None = None,
    ) -> None:
        """``admin``: the address of lmstfy's admin API; None: it is off. The rest as in :meth:`start`."""
        self._admin = None if admin is None else parse_address(admin)
        self._limits = limits
        self.admin_address: str | None = None
        """``"HOST:PORT"`` of the admin API, with the port that is listened on."""
        super().__init__(broker, address, placement, connections or ConnectionLimits(), unread)

    @property
    def addresses(self) -> Mapping[str, str]:
        """The port, and that of lmstfy's admin API."""
        return {self.NAME: self.address} | ({} if self.admin_address is None else {"http admin": self.admin_address})

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        loop = asyncio.get_running_loop()
        services = HttpServices(self._broker, loop, pool, self._unread)
        setting = HttpSettings.of(self._broker.config).http_access
        access = Access(self._broker, mode_of(setting, f"{self._host}:0"))
        access_log = AccessLog()
        lmstfy = HttpApplication(Lmstfy(services, access, access_log))
        server = self._server(loop, asgi(Apps(applications(services, access))), {PREFIX: lmstfy})
        servers = [server]
        port = port_of(await server.listen(f"{self._host}:{self._asked_port}"))
        if self._admin is not None:
            servers.append(await self._serve_admin(loop, services, setting, access_log, *self._admin))
        try:
            grace_s = await on_listening(port)
        finally:
            services.close()
        await asyncio.gather(*(each.stop(grace_s) for each in servers))

    async def _serve_admin(
        self,
        loop: asyncio.AbstractEventLoop,
        services: HttpServices,
        setting: str,
        access_log: AccessLog,
        host: str,
        port: int,
    ) -> HttpServer:
        access = Access(self._broker, mode_of(setting, f"{host}:0"))
        admin = HttpApplication(Admin(services, access, access_log), whole=False)
        server = self._server(loop, admin, {})
        try:
            listening = await server.listen(f"{host}:{port}")
        except OSError as error:
            raise UnavailableError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self.admin_address = f"{host}:{port_of(listening)}"
        return server

    def _server(
        self, loop: asyncio.AbstractEventLoop, app: HttpApplication, by_prefix: dict[str, HttpApplication]
    ) -> HttpServer:
        tls = port_tls(self._broker.config)
        return HttpServer(loop, self._broker.clock, app, by_prefix, self._connections, self._unread, self._limits, tls)


def start(services: FrontServices) -> HttpFront:
    """Start the front for ``tarry serve``."""
    admin = HttpSettings.of(services.broker.config).http_admin
    return HttpFront(
        services.broker, services.address, services.placement, services.connections, admin, unread=services.unread
    )


def applications(services: HttpServices, access: Access) -> dict[str, App]:
    """Return the applications by path prefix; ``access`` says who may use them.

    lmstfy's API is not among them.
    """
    rest = rest_app(services, access)
    console = console_app(services, access)
    return {"/v1/": rest, "/openapi.json": rest, "/docs": rest, "/": console}
