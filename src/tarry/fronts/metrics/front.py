"""Starting and stopping the metrics front: its port, on Tarry's own HTTP server."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import partial

from prometheus_client import CollectorRegistry, ProcessCollector

from loopgrpc import UnreadBytes
from tarry.base.descriptors import ConnectionLimits
from tarry.fronts.http.exchange import HttpApplication
from tarry.fronts.http.server.limits import HttpLimits
from tarry.fronts.http.server.server import HttpServer
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import port_of
from tarry.fronts.kit.loop_front import LoopFront, OnListening
from tarry.fronts.kit.tls_settings import port_tls
from tarry.fronts.metrics.collector import BrokerCollector
from tarry.fronts.metrics.exposition import Exposition
from tarry.fronts.metrics.viewers import Viewers
from tarry.identity.authenticator import Authenticator

CONNECTIONS_MAX = 8
"""Connections at a time.

Of more, the oldest without a request is closed; while all are being answered, the new one.
"""
LIMITS = HttpLimits(header_s=5.0, half_open_max=CONNECTIONS_MAX)


class MetricsFront(LoopFront):
    """Figures of a broker for Prometheus, over HTTP."""

    NAME = "metrics"
    THREAD = "tarry-metrics"

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        loop = asyncio.get_running_loop()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(BrokerCollector(self._broker))
        ProcessCollector(registry=registry)
        viewers = Viewers(Authenticator(self._broker, "metrics"))
        exposition = Exposition(registry, partial(loop.run_in_executor, pool), viewers.refusal)
        application = HttpApplication(exposition, whole=False)
        few = ConnectionLimits(
            min(CONNECTIONS_MAX, self._connections.in_all), min(CONNECTIONS_MAX, self._connections.per_peer)
        )
        # Bytes that clients of other ports have not read keep nobody from the figures that show them.
        unread, tls = UnreadBytes(), port_tls(self._broker.config)
        server = HttpServer(loop, self._broker.clock, application, {}, few, unread, LIMITS, tls)
        grace_s = await on_listening(port_of(await server.listen(f"{self._host}:{self._asked_port}")))
        await server.stop(grace_s)


def start(services: FrontServices) -> MetricsFront:
    """Start the front for ``tarry serve``."""
    return MetricsFront.of(services)
