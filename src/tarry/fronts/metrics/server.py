"""A registry of figures on Tarry's own HTTP server, with few connections; of a front, or by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial

from prometheus_client import CollectorRegistry

from loopgrpc import UnreadBytes
from tarry.base.clock import Clock, SystemClock
from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import parse_address
from tarry.base.errors import UnavailableError
from tarry.base.exposure import is_exposed
from tarry.base.placement import ANY_CORE
from tarry.fronts.http.exchange import HttpApplication, HttpRequest
from tarry.fronts.http.server.limits import HttpLimits
from tarry.fronts.http.server.server import HttpServer
from tarry.fronts.kit.listening import port_of, why_not_listening
from tarry.fronts.kit.loop_thread import LoopThread, OnStarted
from tarry.fronts.kit.tls_settings import PortTls
from tarry.fronts.metrics.exposition import Exposition, Refuse

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 8
"""Connections at a time.

Of more, the oldest without a request is closed; while all are being answered, the new one.
"""
LIMITS = HttpLimits(header_s=5.0, half_open_max=CONNECTIONS_MAX)


def figures_server(
    registry: CollectorRegistry,
    clock: Clock,
    pool: Executor,
    refuse: Refuse,
    *,
    connections: ConnectionLimits | None = None,
    tls: PortTls | None = None,
    by_prefix: Mapping[str, HttpApplication] | None = None,
) -> HttpServer:
    """Return a server of ``GET /metrics`` that does not listen yet. On the loop's thread.

    ``pool`` reads the figures. ``by_prefix``: what answers at other paths.
    """
    loop = asyncio.get_running_loop()
    application = HttpApplication(Exposition(registry, partial(loop.run_in_executor, pool), refuse), whole=False)
    allowed = connections or ConnectionLimits()
    few = ConnectionLimits(min(CONNECTIONS_MAX, allowed.in_all), min(CONNECTIONS_MAX, allowed.per_peer))
    # Bytes that clients of other ports have not read keep nobody from the figures that show them.
    return HttpServer(loop, clock, application, by_prefix or {}, few, UnreadBytes(), LIMITS, tls)


class FiguresPort:
    """A port of figures in a process without a broker, on its own thread. It asks nobody."""

    def __init__(
        self, registry: CollectorRegistry, address: str, by_prefix: Mapping[str, HttpApplication] | None = None
    ) -> None:
        """Serve a registry on ``HOST:PORT``; ``by_prefix``: what answers at other paths.

        Raises:
            InvalidArgumentError: the address cannot be parsed.
            UnavailableError: it cannot be listened on.
        """
        host, port = parse_address(address)
        if is_exposed(address):
            log.warning("metrics: open at %s to whoever reaches it, and asks nobody who they are", address)
        self._registry, self._by_prefix = registry, by_prefix
        self._asked = f"{host}:{port}"
        self._thread: LoopThread[int] = LoopThread("tarry-metrics", ANY_CORE, self._serve)
        try:
            self.address = f"{host}:{self._thread.started()}"
        except OSError as error:
            raise UnavailableError(f"cannot listen on {address}: {why_not_listening(error)}") from error

    def stop(self, grace_s: float = 1.0) -> None:
        """Accept nothing new, and let what is being answered end within ``grace_s`` seconds."""
        self._thread.stop(grace_s)

    async def _serve(self, pool: Executor, on_listening: OnStarted[int]) -> None:
        server = figures_server(self._registry, SystemClock(), pool, _refuse_nobody, by_prefix=self._by_prefix)
        grace_s = await on_listening(port_of(await server.listen(self._asked)))
        await server.stop(grace_s)


def _refuse_nobody(request: HttpRequest) -> None:
    return None
