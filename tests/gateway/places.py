"""A broker, and a front of it behind a gateway's link, both in this process: what tests of a front begin with."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tarry.broker import Broker
from tarry.fronts.gateway.front import GatewayFront, socket_of
from tarry.fronts.gateway.remote.broker import RemoteBroker
from tarry.fronts.kit.listening import SharedPort
from tarry.fronts.rocketmq.front import RocketMQFront
from tests.rocketmq.conftest import Place


class Worker:
    """A front behind a link, as a worker's process has it."""

    def __init__(
        self,
        address: str,
        name: str = "rocketmq-1",
        listening: socket.socket | None = None,
        own: Mapping[str, Any] | None = None,
    ) -> None:
        listening = listening or socket.create_server(("127.0.0.1", 0))
        self.remote = RemoteBroker(address, secrets.token_hex(8), "rocketmq", name, own)
        self.lost = False
        port = listening.getsockname()[1]
        shared = SharedPort(listening, lambda: self.remote.connect(self._on_lost))
        self.front = RocketMQFront(self.remote, f"127.0.0.1:{port}", shared=shared)

    def _on_lost(self) -> None:
        self.lost = True

    def stop(self, grace_s: float = 0.2) -> None:
        self.front.stop(grace_s)
        self.remote.close()


class GatewayPlace(Place):
    """As its base, with the front behind a link."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.workers: list[Worker] = []
        super().__init__(directory, **settings)

    def open(self) -> None:
        self.broker = Broker.open(self.config, files=self.files)
        self.gateway = GatewayFront.start(self.broker, socket_of(self.config.data))
        self.front = self.worker().front

    def worker(self, name: str = "rocketmq-1") -> Worker:
        """Another worker, with a port of its own."""
        worker = Worker(self.gateway.address, name)
        self.workers.append(worker)
        return worker

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.clients.clear()
        for worker in self.workers:
            worker.stop()
        self.workers.clear()
        self.gateway.stop()
        self.broker.close()
