"""Starting and stopping the HTTP front, and the server that it runs on."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import Executor
from contextlib import suppress

import uvicorn

from tarry.fronts.common.loop_front import LoopFront, OnListening
from tarry.fronts.http.access import Access, mode_of
from tarry.fronts.http.app import App, Apps
from tarry.fronts.http.console.app import console_app
from tarry.fronts.http.exchange import as_app
from tarry.fronts.http.lmstfy.routes import PREFIX, Lmstfy
from tarry.fronts.http.rest.app import rest_app
from tarry.fronts.http.services import Services

BACKLOG = 1024


class HttpFront(LoopFront):
    """HTTP/1.1."""

    THREAD = "tarry-http"

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        loop = asyncio.get_running_loop()
        services = Services(self._broker, loop, pool)
        with socket.create_server((self._host.strip("[]"), self._asked_port), backlog=BACKLOG) as listening:
            access = Access(self._broker, mode_of(self._broker.config.http_access, f"{self._host}:0"))
            server = _server(Apps(applications(services, access)), self._connections.in_all)
            running = asyncio.ensure_future(server.serve([listening]))
            try:
                grace_s = await on_listening(listening.getsockname()[1])
            finally:
                services.close()
                server.should_exit = True
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(running), grace_s)
            server.force_exit = True
            await running


def applications(services: Services, access: Access) -> dict[str, App]:
    """The applications by the prefix of their paths; ``access`` says who may ask them."""
    rest = rest_app(services, access)
    console = console_app(services, access)
    lmstfy = as_app(Lmstfy(services, access))
    return {PREFIX: lmstfy, "/v1/": rest, "/openapi.json": rest, "/docs": rest, "/": console}


def _server(app: App, connections_max: int) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=connections_max,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
