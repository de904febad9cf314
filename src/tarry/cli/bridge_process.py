"""The process of ``tarry bridge rabbitmq``: a bridge, its figures, and with ``--data`` a broker."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from tarry.base.errors import InvalidArgumentError
from tarry.bridge.rabbitmq import RabbitBridge
from tarry.bridge.settings import BridgeSettings
from tarry.cli.failures import failure_of
from tarry.cli.umask import UMASK
from tarry.client.aio import AsyncClient

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tarry.broker import Broker

log = logging.getLogger("tarry.bridge")
FIGURES_S = 60.0
LOOK_S = 0.5
"""Seconds between looks at the health of a broker in this process."""


def serve(settings: BridgeSettings, endpoint: str, metrics: str | None, data: Path | None) -> None:
    """Run a bridge until a signal comes; with ``data``, beside a broker of that directory in this process.

    Raises:
        InvalidArgumentError: RabbitMQ refuses what the bridge needs, or the directory is none.
        TarryError: the broker in this process could not start, or a disk failed it.
    """
    if data is None:
        _in_loop(_run(settings, endpoint, metrics))
        return
    with _broker_of(data, endpoint) as broker:
        _in_loop(_run(settings, endpoint, metrics, broker))


def _in_loop(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


@contextmanager
def _broker_of(data: Path, endpoint: str) -> Iterator[Broker]:
    """Open a broker here, and serve it, so that other commands reach it."""
    from tarry.broker.embedded import open as open_broker
    from tarry.fronts.flight.front import FlightFront

    os.umask(UMASK)
    try:
        opened = open_broker(data)
    except OSError as error:
        raise InvalidArgumentError(
            f"--data is {data}: {error.filename or data}: {error.strerror}; allowed: a broker's directory, or a place "
            "for one"
        ) from error
    with opened as broker:
        front = FlightFront.start(broker, endpoint)
        log.info("serving %s at %s", data, endpoint)
        try:
            yield broker
        finally:
            front.stop()


async def _run(settings: BridgeSettings, endpoint: str, metrics: str | None, broker: Broker | None = None) -> None:
    async with AsyncClient(endpoint) as client:
        found = RabbitBridge(settings, client)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, found.stop)
        port = None if metrics is None else _port(found, metrics)
        looking = [loop.create_task(_tell(found))]
        if broker is not None:
            looking.append(loop.create_task(_stop_with(broker, found)))
        try:
            await found.run()
        finally:
            for task in looking:
                task.cancel()
            if port is not None:
                port.stop()
    log.info("stopped: %s", found.figures)
    if broker is not None and broker.wait_fatal(0):
        raise failure_of(broker.status())


async def _stop_with(broker: Broker, found: RabbitBridge) -> None:
    while not broker.wait_fatal(0):
        await asyncio.sleep(LOOK_S)
    found.stop()


async def _tell(found: RabbitBridge) -> None:
    told = ""
    while True:
        await asyncio.sleep(FIGURES_S)
        if (text := str(found.figures)) != told:
            log.info("%s", text)
            told = text


def _port(found: RabbitBridge, address: str) -> Any:
    from tarry.fronts.metrics.server import FiguresPort

    return FiguresPort(_registry(found), address if ":" in address else f"127.0.0.1:{address}")


def _registry(found: RabbitBridge) -> CollectorRegistry:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

    class Figures(Collector):
        def collect(self) -> Any:
            figures = found.figures
            yield GaugeMetricFamily("tarry_bridge_connected", "RabbitMQ is there", value=figures.connected)
            messages = CounterMetricFamily("tarry_bridge_messages", "messages, by what became of them", labels=["what"])
            for what in ("taken", "given", "refused", "returned", "cancelled", "known"):
                messages.add_metric([what], getattr(figures, what))
            yield messages

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures())
    return registry
