"""HTTP's and the classic front behind links, with their home, in this process: what tests of clients begin with."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from loopgrpc import UnreadBytes
from tarry.base.endpoint import local_socket
from tarry.broker import Broker
from tarry.fronts.gateway.front import GatewayFront, socket_of
from tarry.fronts.gateway.remote.broker import RemoteBroker
from tarry.fronts.http.front import HttpFront
from tarry.fronts.kit.listening import SharedPort
from tarry.fronts.registry import ServerConfig
from tarry.fronts.rocketmq.classic.front import RemotingFront
from tests.rocketmq_classic.conftest import Place

F = TypeVar("F", HttpFront, RemotingFront)
ADDRESS = "127.0.0.1:0"


@dataclass
class Workers(Generic[F]):
    """The workers of a front, each with a port of its own, and their home."""

    broker: Broker
    home: F
    fronts: list[F]


@contextmanager
def workers_of(front: type[F], broker: Broker, count: int = 2, **more: Any) -> Iterator[Workers[F]]:
    """Workers of a broker's front; ``more`` is for their home."""
    data = broker.config.data
    home = local_socket(data, front.NAME)
    unread = UnreadBytes()  # one for all, so that a test can fill it; processes have one each
    with ExitStack() as stack:
        gateway = GatewayFront.start(broker, socket_of(data))
        stack.callback(gateway.stop)
        at_home = stack.enter_context(front(broker, ADDRESS, home=home, unread=unread, **more))
        fronts = []
        for number in range(1, count + 1):
            listening = socket.create_server(("127.0.0.1", 0))
            remote = RemoteBroker(gateway.address, secrets.token_hex(8), front.NAME, f"{front.NAME}-{number}")
            stack.callback(remote.close)
            shared = SharedPort(listening, lambda remote=remote: remote.connect(lambda: None))
            address = f"127.0.0.1:{listening.getsockname()[1]}"
            fronts.append(stack.enter_context(front(remote, address, shared=shared, home=home, unread=unread)))
        yield Workers(broker, at_home, fronts)


@contextmanager
def http_workers(directory: Path, count: int = 2, **settings: Any) -> Iterator[Workers[HttpFront]]:
    """A broker on ``directory`` whose HTTP front is in workers."""
    admin = settings.pop("admin", None)
    config = ServerConfig(data=directory, pipeline="off", flight=None, **{"disk_free_bytes_min": 0, **settings})
    with Broker.open(config) as broker, workers_of(HttpFront, broker, count, admin=admin) as workers:
        yield workers


class ClassicPlace(Place):
    """As its base, with the front behind two links; clients reach the first worker, where nothing else is said."""

    def open(self) -> None:
        self._stack = ExitStack()
        self.broker = Broker.open(self.config, files=self.files, clock=self.clock)
        self.workers = self._stack.enter_context(workers_of(RemotingFront, self.broker))
        self.front = self.workers.fronts[0]

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.clients.clear()
        self._stack.close()
        self.broker.close()
