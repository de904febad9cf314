"""``tarry bridge``: delay for a broker that has none, beside it."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.base.extras import missing_extra
from tarry.cli.failures import failure_of
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint
from tarry.cli.umask import UMASK

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tarry.bridge.rabbitmq import RabbitBridge
    from tarry.broker import Broker

app = typer.Typer(name="bridge", help="Delay for a broker that has none, beside it.", no_args_is_help=True)

log = logging.getLogger("tarry.bridge")
FIGURES_S = 60.0
LOOK_S = 0.5
"""Seconds between looks at the health of a broker in this process."""


@app.callback()
def bridge() -> None:
    """Keep the command's name, while there is one alone."""


@app.command()
def rabbitmq(
    url: Annotated[
        str,
        typer.Option(
            envvar="TARRY_AMQP_URL", metavar="amqp://USER@HOST/VHOST", help="RabbitMQ; its password in a file."
        ),
    ] = "amqp://guest@127.0.0.1/",
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Has the user's password; else that of the URL, or guest.")
    ] = None,
    exchange: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TARGET", help="What is published to NAME goes to TARGET when due; repeatable."),
    ] = None,
    queue: Annotated[str, typer.Option(help="Queue that the bridge takes from, and exchange by which it does.")] = (
        "tarry.delay"
    ),
    queue_type: Annotated[str, typer.Option(metavar="quorum|classic", help="Of the queue.")] = "quorum",
    ordered: Annotated[bool, typer.Option("--ordered", help="One message of a routing key at a time.")] = False,
    window: Annotated[int, typer.Option(min=1, max=65_535, help="Messages under way at most, each way.")] = 1000,
    tries: Annotated[int, typer.Option(min=0, help="Before a message that no queue takes is a dead letter.")] = 16,
    metrics: Annotated[
        str | None, typer.Option(metavar="[HOST:]PORT", help="Prometheus, over HTTP; a port alone: on this machine.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Have the broker in this process, of this directory; served at --endpoint."),
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Keep RabbitMQ's messages until they are due, until SIGTERM or SIGINT.

    A message says when by the header x-delay (milliseconds), as of the plugin rabbitmq-delayed-message-exchange, or
    x-tarry-due. docs/rabbitmq.md has all of it.

    \b
    tarry bridge rabbitmq --exchange orders.delayed=orders
    tarry bridge rabbitmq --exchange orders.delayed=orders --data data       # without a tarry serve
    tarry bridge rabbitmq --url amqp://bridge@rabbit/shop --password-file FILE --exchange orders.delayed=orders
    """
    from tarry.base.logs import log_to_stderr

    try:
        from tarry.bridge.settings import BridgeSettings, pairs
    except ImportError as error:
        raise NotFoundError(missing_extra("the bridge beside RabbitMQ", "rabbitmq", error)) from error
    log_to_stderr(verbose=verbose)
    logging.getLogger("aiormq").setLevel(logging.DEBUG if verbose else logging.CRITICAL)  # the bridge tells of it
    if queue_type not in ("quorum", "classic"):
        raise InvalidArgumentError(f"--queue-type is {queue_type!r}; allowed: quorum, classic")
    settings = BridgeSettings(
        url=with_password(url, password_file), queue=queue, queue_type=queue_type, exchanges=pairs(exchange or []),
        window=window, ordered=ordered, tries=tries,
    )  # fmt: skip
    if data is None:
        _in_loop(_run(settings, endpoint, metrics))
        return
    with _broker_of(data, endpoint) as broker:
        _in_loop(_run(settings, endpoint, metrics, broker))


def _in_loop(work: Coroutine[Any, Any, None]) -> None:
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def with_password(url: str, file: Path | None) -> str:
    """Return a URL with the password that a file has.

    Raises:
        InvalidArgumentError: it is no URL of AMQP, or the file cannot be read.
    """
    from yarl import URL

    try:
        parsed = URL(url)
        if parsed.scheme not in ("amqp", "amqps") or not parsed.host:
            raise ValueError(f"it begins with {parsed.scheme or 'nothing'}://")
    except ValueError as error:
        raise InvalidArgumentError(f"--url is no URL of RabbitMQ ({error}); allowed: amqp://USER@HOST/VHOST") from None
    if file is None:
        return str(parsed if parsed.password is not None or parsed.user != "guest" else parsed.with_password("guest"))
    try:
        return str(parsed.with_password(file.read_text().strip()))
    except OSError as error:
        raise InvalidArgumentError(f"--password-file is {file}: {error.strerror}; allowed: a file") from error


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


async def _run(settings: Any, endpoint: str, metrics: str | None, broker: Broker | None = None) -> None:
    import asyncio

    from tarry.bridge.rabbitmq import RabbitBridge
    from tarry.client.aio import AsyncClient

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
            log.info("taking from queue %s; exchanges: %s", settings.queue, dict(settings.exchanges) or "-")
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
    import asyncio

    while not broker.wait_fatal(0):
        await asyncio.sleep(LOOK_S)
    found.stop()


async def _tell(found: RabbitBridge) -> None:
    import asyncio

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
