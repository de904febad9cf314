"""Starting and stopping the RocketMQ front: a thread with an event loop of its own, in the broker's process."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from loopgrpc import GrpcServer, Limits
from tarry.base import affinity
from tarry.base.config import Config, parse_address
from tarry.base.delay import parse_levels
from tarry.base.errors import UnavailableError
from tarry.fronts.rocketmq.caller import Gate, read_keys
from tarry.fronts.rocketmq.certificate import context_of
from tarry.fronts.rocketmq.checks import Checks
from tarry.fronts.rocketmq.clients import Clients
from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.draft import PROPERTIES_BYTES_MAX, Rules
from tarry.fronts.rocketmq.groups import Groups
from tarry.fronts.rocketmq.halves import Halves
from tarry.fronts.rocketmq.offsets import Offsets
from tarry.fronts.rocketmq.recalling import Recaller
from tarry.fronts.rocketmq.receiving import Receiver
from tarry.fronts.rocketmq.routes import Routes, endpoints
from tarry.fronts.rocketmq.sending import Sender, in_thread
from tarry.fronts.rocketmq.service import Service
from tarry.fronts.rocketmq.settling import Settler
from tarry.fronts.rocketmq.telemetry import Telemetry
from tarry.fronts.rocketmq.topics import Topics
from tarry.fronts.rocketmq.transactions import Transactions

log = logging.getLogger(__name__)

THREADS = 8
"""For what waits for the disk: cancelling, settings of groups and topics, transactions."""
STREAMS_MAX = 10_000
"""Calls of a connection at a time: clients in one process may share one, and each keeps two or more calls open."""
REQUEST_BYTES_SPARE = 1 << 20
"""Of a request beside the largest body."""


class RocketMQFront:
    """Start with :meth:`start`; :meth:`stop` before the broker is closed. Any thread."""

    def __init__(self, core: Core, address: str) -> None:
        self._core = core
        self._host, self.port = parse_address(address)
        self._thread = threading.Thread(target=self._run, name="tarry-rocketmq", daemon=True)
        self._started = threading.Event()
        self._failed: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._grace_s = 0.0
        self.rooms: Rooms
        """On the loop's thread."""

    @classmethod
    def start(cls, core: Core, address: str) -> RocketMQFront:
        """Serve a broker on ``"HOST:PORT"``; port 0 takes a free one, see :attr:`port`.

        Raises:
            InvalidArgumentError: no address, or a setting that cannot be. UnavailableError: it cannot be listened on.
        """
        front = cls(core, address)
        front._thread.start()
        front._started.wait()
        if front._failed is not None:
            front._thread.join()
            if isinstance(front._failed, OSError):
                error = front._failed
                raise UnavailableError(f"cannot listen on {address}: {error.strerror or error}") from error
            raise front._failed
        return front

    @property
    def address(self) -> str:
        """``"HOST:PORT"`` with the port that is listened on."""
        return f"{self._host}:{self.port}"

    def stop(self, grace_s: float = 2.0) -> None:
        """Take no more calls, let those that run end for up to ``grace_s`` seconds, then cut what is left."""
        if self._thread.is_alive():
            self._grace_s = grace_s
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def __enter__(self) -> RocketMQFront:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        affinity.together()
        try:
            uvloop.run(self._serve())
        except BaseException as error:
            self._failed = error
            if self._started.is_set():
                log.critical("the RocketMQ front has ended", exc_info=error)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        # Threads begin on the cores of the thread that makes them.
        with ThreadPoolExecutor(THREADS, "tarry-rocketmq", initializer=affinity.apart) as pool:
            rooms = self.rooms = Rooms(
                self._core, self._loop, partial(in_thread, self._loop, pool), self._host, self.port
            )
            limits = Limits(
                streams_max=STREAMS_MAX,
                message_bytes_max=self._core.config.body_bytes_max + REQUEST_BYTES_SPARE,
                buffer_bytes_max=max(16 << 20, 2 * self._core.config.body_bytes_max),
                pending_bytes_max=32 << 20,
            )
            server = GrpcServer(
                rooms.service.handlers(),
                self._host.strip("[]"),
                self.port,
                tls=self._tls(),
                tls_optional=self._core.config.rocketmq_tls == "both",
                limits=limits,
            )
            await server.start()
            self.port = server.port
            rooms.listening(self._host, server.port)
            self._started.set()
            await self._stop.wait()
            rooms.close()
            await server.stop(self._grace_s)

    def _tls(self) -> ssl.SSLContext | None:
        config = self._core.config
        if config.rocketmq_tls == "off":
            return None
        now_ms = self._core.clock.now_ms()
        return context_of(config.rocketmq_tls_certificate, config.rocketmq_tls_key, config.data, now_ms)


class Rooms:
    """The parts of the front, put together."""

    def __init__(
        self,
        core: Core,
        loop: asyncio.AbstractEventLoop,
        aside: Callable[[Callable[[], Any]], asyncio.Future[Any]],
        host: str,
        port: int,
    ) -> None:
        config = core.config
        properties_bytes = min(config.properties_bytes_max, PROPERTIES_BYTES_MAX)
        rules = Rules(config.body_bytes_max, properties_bytes, config.delay_ms_max, parse_levels(config.delay_levels))
        create = config.rocketmq_create_topics == "on"
        self._place = endpoints(host, port)
        self._clients = Clients(loop)
        topics = Topics(core, aside, create=create)
        self.groups = Groups(core, loop, aside)
        halves = Halves(
            core,
            first_ms=config.rocketmq_check_first_ms,
            every_ms=config.rocketmq_check_ms,
            most=config.rocketmq_checks_max,
        )
        self._checks = Checks(core, loop, self._clients, host)
        telemetry = Telemetry(self._clients, self.groups, body_bytes_max=config.body_bytes_max)
        routes = Routes(core, topics, aside, self._place)
        settler = Settler(core, loop, self._clients)
        offsets = Offsets(core, loop, self.groups, topics, aside, host)
        transactions = Transactions(halves, aside)
        sender = Sender(core, loop, rules, topics, halves)
        receiver = Receiver(core, loop, self.groups, topics, self._clients, host)
        self.service = Service(
            Gate(_keys(config)),
            one={
                "QueryRoute": routes.route,
                "QueryAssignment": routes.assignment,
                "Heartbeat": telemetry.heartbeat,
                "NotifyClientTermination": telemetry.goodbye,
                "ChangeInvisibleDuration": settler.change,
                "ForwardMessageToDeadLetterQueue": settler.bury,
                "EndTransaction": transactions.end,
                "RecallMessage": Recaller(core, aside).recall,
                "UpdateOffset": offsets.update,
                "GetOffset": offsets.get,
                "QueryOffset": offsets.query,
            },
            raw={
                "SendMessage": lambda caller, request, call: sender.send(caller, request, call.peer),
                "AckMessage": lambda caller, request, _: settler.ack(caller, request),
            },
            piece={"ReceiveMessage": receiver.receive},
            many={"PullMessage": offsets.pull},
            both=telemetry.stream,
        )

    def listening(self, host: str, port: int) -> None:
        """The port is known."""
        self._place.CopyFrom(endpoints(host, port))

    def close(self) -> None:
        """Who waits is let go."""
        self._checks.close()
        self.groups.close()
        self._clients.close()


def _keys(config: Config) -> dict[str, str]:
    return {} if config.rocketmq_keys is None else read_keys(Path(config.rocketmq_keys))
