"""Starting and stopping the metrics front: its port, on Tarry's own HTTP server."""

from __future__ import annotations

from concurrent.futures import Executor

from prometheus_client import CollectorRegistry, ProcessCollector

from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import port_of
from tarry.fronts.kit.loop_front import LoopFront, OnListening
from tarry.fronts.kit.tls_settings import port_tls
from tarry.fronts.metrics.collector import BrokerCollector
from tarry.fronts.metrics.server import figures_server
from tarry.fronts.metrics.viewers import Viewers
from tarry.identity.authenticator import Authenticator


class MetricsFront(LoopFront):
    """Figures of a broker for Prometheus, over HTTP."""

    NAME = "metrics"
    THREAD = "tarry-metrics"

    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(BrokerCollector(self._broker))
        ProcessCollector(registry=registry)
        server = figures_server(
            registry,
            self._broker.clock,
            pool,
            Viewers(Authenticator(self._broker, "metrics")).refusal,
            connections=self._connections,
            tls=port_tls(self._broker.config, "metrics").noted(self._broker, "metrics"),
        )
        grace_s = await on_listening(port_of(await server.listen(f"{self._host}:{self._asked_port}")))
        await server.stop(grace_s)


def start(services: FrontServices) -> MetricsFront:
    """Start the front for ``tarry serve``."""
    return MetricsFront.of(services)
