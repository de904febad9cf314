"""Starting and stopping the RocketMQ front: a thread with an event loop of its own, in the broker's process."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import uvloop

from loopgrpc import GrpcServer, Limits
from tarry.api.local import LocalBroker
from tarry.base.config import Config, parse_address
from tarry.base.descriptors import ConnectionLimits
from tarry.base.errors import UnavailableError
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.rocketmq.certificate import server_context
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.v5.components import Components
from tarry.fronts.rocketmq.v5.routes import ListeningAddress

log = logging.getLogger(__name__)

THREADS = 8
"""For what waits for the disk: cancelling, settings of groups and topics, transactions."""
STREAMS_MAX = 10_000
"""Calls of a connection at a time: clients in one process may share one, and each keeps two or more calls open."""
REQUEST_BYTES_SPARE = 1 << 20
"""Of a request beside the largest body."""


@dataclass(frozen=True, slots=True)
class _Running:
    """What the front's thread has made once it listens."""

    loop: asyncio.AbstractEventLoop
    stop: asyncio.Future[float]
    """Its result, set on the loop's thread, stops the front: the seconds of grace."""
    address: ListeningAddress
    components: Components

    def request_stop(self, grace_s: float) -> None:
        """On the loop's thread; only the first request counts."""
        if not self.stop.done():
            self.stop.set_result(grace_s)


class RocketMQFront:
    """Made by :meth:`start`; :meth:`stop` before the broker is closed. Any thread."""

    def __init__(self, thread: threading.Thread, running: _Running) -> None:
        self._thread = thread
        self._running = running

    @classmethod
    def start(
        cls,
        broker: LocalBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
    ) -> RocketMQFront:
        """Serve a broker on ``"HOST:PORT"``; port 0 takes a free one, see :attr:`port`.

        ``placement`` says where its threads run, ``connections`` how many it takes.

        Raises:
            InvalidArgumentError: no address, or a setting that cannot be. UnavailableError: it cannot be listened on.
        """
        host, port = parse_address(address)
        listening: Future[_Running] = Future()
        target = ListeningAddress(host, port)
        limits = _limits(broker.config, connections or ConnectionLimits())
        arguments = (broker, target, listening, placement, limits)
        thread = threading.Thread(target=_run, args=arguments, name="tarry-rocketmq", daemon=True)
        thread.start()
        try:
            return cls(thread, listening.result())
        except BaseException as error:
            thread.join()
            if isinstance(error, OSError):
                raise UnavailableError(f"cannot listen on {address}: {error.strerror or error}") from error
            raise

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._running.address.port

    @property
    def address(self) -> str:
        """``"HOST:PORT"`` with the port that is listened on."""
        return f"{self._running.address.host}:{self.port}"

    def waiting_receives(self, topic: str, group: str) -> int:
        """How many receives of clients wait for messages of a group; names are the broker's."""
        return self._running.components.groups.waiting_receives(topic, group)

    def stop(self, grace_s: float = 2.0) -> None:
        """Take no more calls, let those that run end for up to ``grace_s`` seconds, then cut what is left."""
        try:
            self._running.loop.call_soon_threadsafe(self._running.request_stop, grace_s)
        except RuntimeError:
            pass  # the loop is closed: it has stopped already, or has failed
        self._thread.join()

    def __enter__(self) -> RocketMQFront:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _run(
    broker: LocalBroker, address: ListeningAddress, listening: Future[_Running], placement: Placement, limits: Limits
) -> None:
    """The front's thread. ``listening`` gets what was made, or why it could not be."""
    placement.together()
    try:
        uvloop.run(_serve(broker, address, listening, placement, limits))
    except BaseException as error:
        if listening.done():
            log.critical("the RocketMQ front has ended", exc_info=error)
        else:
            listening.set_exception(error)


async def _serve(
    broker: LocalBroker, address: ListeningAddress, listening: Future[_Running], placement: Placement, limits: Limits
) -> None:
    loop, config = asyncio.get_running_loop(), broker.config
    tls = _tls(config, broker.clock.now_ms())
    # Threads begin on the cores of the thread that makes them.
    with ThreadPoolExecutor(THREADS, "tarry-rocketmq", initializer=placement.apart) as pool:
        components = Components(broker, loop, RunInThread(loop, pool), address)
        server = GrpcServer(
            components.service.handlers(),
            address.host.strip("[]"),
            address.port,
            tls=tls,
            tls_optional=config.rocketmq_tls == "both",
            limits=limits,
        )
        try:
            await server.start()
            address.port = server.port
            stop: asyncio.Future[float] = loop.create_future()
            listening.set_result(_Running(loop, stop, address, components))
            grace_s = await stop
        finally:
            components.close()
        await server.stop(grace_s)


def _limits(config: Config, connections: ConnectionLimits) -> Limits:
    return Limits(
        connections_max=connections.in_all,
        peer_connections_max=connections.per_peer,
        streams_max=STREAMS_MAX,
        message_bytes_max=config.body_bytes_max + REQUEST_BYTES_SPARE,
        buffer_bytes_max=max(16 << 20, 2 * config.body_bytes_max),
        pending_bytes_max=32 << 20,
    )


def _tls(config: Config, now_ms: int) -> ssl.SSLContext | None:
    if config.rocketmq_tls == "off":
        return None
    return server_context(config.rocketmq_tls_certificate, config.rocketmq_tls_key, config.data, now_ms)
