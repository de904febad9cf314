"""Starting and stopping the HTTP front: its port, the admin's, and the applications on them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import cache
from typing import cast

from loopgrpc import UnreadBytes
from tarry.api.local import AnyBroker, LocalBroker
from tarry.base.addresses import Network, parse_networks
from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import parse_address
from tarry.base.errors import UnavailableError
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.http.access import Access, mode_of
from tarry.fronts.http.app import App, Apps, Receive, Scope, Send
from tarry.fronts.http.console.app import console_app
from tarry.fronts.http.exchange import HttpApplication
from tarry.fronts.http.health import HEALTHY, READY, HealthAnswers
from tarry.fronts.http.lmstfy.access_log import AccessLog
from tarry.fronts.http.lmstfy.admin import Admin
from tarry.fronts.http.lmstfy.routes import PREFIX, Lmstfy
from tarry.fronts.http.passing import PassOn
from tarry.fronts.http.read_your_writes import ELSEWHERE_S
from tarry.fronts.http.rest.app import rest_app
from tarry.fronts.http.scheduler import app as scheduler
from tarry.fronts.http.server.asgi import asgi
from tarry.fronts.http.server.limits import HttpLimits
from tarry.fronts.http.server.server import HttpServer
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.settings import HttpSettings
from tarry.fronts.http.sqs.app import Sqs, beside
from tarry.fronts.http.sqs.queue_table import QueueTable
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import SharedPort, port_of
from tarry.fronts.kit.loop_front import LoopFront, OnListening
from tarry.fronts.kit.tls_settings import PortTls, port_tls

EVENTS = "/events"
"""End of the paths of event streams, whose sessions are in one process."""


class HttpFront(LoopFront):
    """HTTP/1.1: in one process, in workers that share a port, or in the home of those workers.

    A worker carries out what is done for each message; event streams, the console, requests that it would refuse and
    those of tokens with limits go to the home (docs/decisions/0045-homes-of-fronts.md).
    """

    NAME = "http"
    THREAD = "tarry-http"
    _server: HttpServer
    _services: HttpServices

    def __init__(
        self,
        broker: AnyBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
        admin: str | None = None,
        limits: HttpLimits | None = None,
        unread: UnreadBytes | None = None,
        *,
        shared: SharedPort | None = None,
        home: str | None = None,
    ) -> None:
        """Serve; arguments as those of every front, and two more.

        ``admin``: the address of lmstfy's admin API; None: it is off. ``limits``: limits on requests.
        """
        self._admin = None if admin is None else parse_address(admin)
        self._limits = limits
        self.admin_address: str | None = None
        """``"HOST:PORT"`` of the admin API, with the port that is listened on."""
        super().__init__(broker, address, placement, connections, unread, shared=shared, home=home)

    @property
    def addresses(self) -> Mapping[str, str]:
        """The port, unless workers listen on it, and that of lmstfy's admin API."""
        own = {} if self._home is not None else {self.NAME: self.address}
        return own | ({} if self.admin_address is None else {"http admin": self.admin_address})

    def figures(self) -> Mapping[str, int]:
        """Return the number of connections."""
        return {"connections": len(self._server)}

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        if self._shared is not None:
            await self._shared.connect()
        loop = asyncio.get_running_loop()
        services = self._services = HttpServices(self._broker, loop, pool, self._unread)
        setting = HttpSettings.of(self._broker.config).http_access
        authenticator = services.callers.authenticator
        access = Access(self._broker, mode_of(setting, f"{self._host}:0"), authenticator)
        access_log = AccessLog(self._broker, loop)
        if self._shared is not None:
            access_log.ask()
        server = self._server = self._server_of(loop, *self._applications(services, access, access_log))
        servers = [server]
        port = port_of(await server.listen(self._listening))
        if self._admin is not None:
            servers.append(await self._serve_admin(loop, services, setting, access_log, *self._admin))
        try:
            grace_s = await on_listening(port)
        finally:
            access_log.close()
            services.close()
        await asyncio.gather(*(each.stop(grace_s) for each in servers))

    @property
    def _listening(self) -> str | socket.socket:
        if self._shared is not None:
            return self._shared.listening
        return f"{self._host}:{self._asked_port}" if self._home is None else self._home

    def _applications(
        self, services: HttpServices, access: Access, access_log: AccessLog
    ) -> tuple[HttpApplication, HttpApplication]:
        """Return the applications of ASGI as one, and lmstfy's."""
        elsewhere_s = 0.0 if self._home is None else ELSEWHERE_S
        if self._shared is None or self._home is None:
            lmstfy = Lmstfy(services, access, access_log, elsewhere_s=elsewhere_s)
            proxies = parse_networks(HttpSettings.of(self._broker.config).http_proxies)
            others = asgi(Apps(applications(services, access, proxies)))
            queues = cache(lambda: QueueTable(services, cast(LocalBroker, services.broker)))
            sqs = Sqs(services, access, queues, proxies)
            of_aws = scheduler.beside(scheduler.SchedulerApp(services, access, queues), beside(sqs, others.handler))
            return HttpApplication(of_aws, others.whole), HttpApplication(lmstfy)
        services.callers.authenticator.notes = False  # who is refused here is passed on, and noted there
        pass_on = PassOn(self._home)
        lmstfy = Lmstfy(services, access, access_log, elsewhere_s=elsewhere_s, pass_on=asgi(pass_on).handler)
        worker = asgi(WorkerApps(rest_app(services, access, pass_on), HealthAnswers(services), pass_on))
        # The tables of queues and of groups of schedules are in the broker's process.
        home = asgi(pass_on).handler
        return (
            HttpApplication(scheduler.beside(home, beside(home, worker.handler)), worker.whole),
            HttpApplication(lmstfy),
        )

    async def _serve_admin(
        self,
        loop: asyncio.AbstractEventLoop,
        services: HttpServices,
        setting: str,
        access_log: AccessLog,
        host: str,
        port: int,
    ) -> HttpServer:
        access = Access(self._broker, mode_of(setting, f"{host}:0"), services.callers.authenticator)
        admin = HttpApplication(Admin(services, access, access_log), whole=False)
        tls = self._tls()
        server = HttpServer(loop, self._broker.clock, admin, {}, self._connections, self._unread, self._limits, tls)
        try:
            listening = await server.listen(f"{host}:{port}")
        except OSError as error:
            raise UnavailableError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self.admin_address = f"{host}:{port_of(listening)}"
        return server

    def _server_of(self, loop: asyncio.AbstractEventLoop, app: HttpApplication, lmstfy: HttpApplication) -> HttpServer:
        from_workers = self._home is not None and self._shared is None
        return HttpServer(
            loop,
            self._broker.clock,
            app,
            {PREFIX: lmstfy},
            self._connections,
            self._unread,
            self._limits,
            None if from_workers else self._tls(),
            from_workers=from_workers,
        )

    def _tls(self) -> PortTls:
        return port_tls(self._broker.config, "http").noted(self._broker, "http")


def start(services: FrontServices) -> HttpFront:
    """Start the front for ``tarry serve``, or in a worker."""
    return _start(services, None if services.shared is None else services.home(HttpFront.NAME))


def start_home(services: FrontServices) -> HttpFront:
    """Start the part of the front that stays in the broker's process, beside workers."""
    return _start(services, services.home(HttpFront.NAME))


def _start(services: FrontServices, home: str | None) -> HttpFront:
    return HttpFront(
        services.broker,
        services.address,
        services.placement,
        services.connections,
        None if services.shared is not None else HttpSettings.of(services.broker.config).http_admin,
        unread=services.unread,
        shared=services.shared,
        home=home,
    )


def applications(services: HttpServices, access: Access, proxies: Sequence[Network] = ()) -> dict[str, App]:
    """Return the applications by path prefix; ``access`` says who may use them.

    lmstfy's API is not among them.
    """
    rest = rest_app(services, access)
    console, health = console_app(services, access, proxies), HealthAnswers(services)
    return {"/v1/": rest, "/openapi.json": rest, "/docs": rest, HEALTHY: health, READY: health, "/": console}


class WorkerApps:
    """An ASGI application: REST in a worker, and the home's for event streams and the console."""

    def __init__(self, rest: App, health: App, pass_on: App) -> None:
        self._rest, self._health, self._pass_on = rest, health, pass_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        app = self._rest if path.startswith("/v1/") and not path.endswith(EVENTS) else self._pass_on
        await (self._health if path in (HEALTHY, READY) else app)(scope, receive, send)
