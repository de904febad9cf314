"""A broker with a front for RocketMQ's clients in this process, and raw clients of it: what the tests of both protocols
begin with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tarry.base.clock import Clock, SystemClock
from tarry.broker import Broker
from tarry.fronts.kit.loop_front import LoopFront
from tarry.fronts.registry import ServerConfig
from tarry.log.files import Files


class Closeable(Protocol):
    def close(self) -> None: ...


F = TypeVar("F", bound=LoopFront)
C = TypeVar("C", bound=Closeable)
P = TypeVar("P", bound="Place[Any, Any]")


class Place(Generic[F, C]):
    """A data directory, and the broker and front that serve it now. ``connect`` makes a client of a port."""

    files: Files | None = None
    clock: Clock = SystemClock()

    def __init__(self, front: type[F], connect: Callable[..., C], directory: Path, **settings: Any) -> None:
        self.config = ServerConfig(data=directory, pipeline="off", **{"disk_free_bytes_min": 0, **settings})
        self._front, self._connect = front, connect
        self.clients: list[C] = []
        self.open()

    def open(self) -> None:
        self.broker = Broker.open(self.config, files=self.files, clock=self.clock)
        self.front: F = self._front.start(self.broker, "127.0.0.1:0")

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.clients.clear()
        self.front.stop(0.2)
        self.broker.close()

    def restart(self) -> None:
        """As after a stop; the port is another one."""
        self.close()
        self.open()

    def client(self, *args: Any, **more: Any) -> C:
        client = self._connect(self.front.port, *args, **more)
        self.clients.append(client)
        return client


@contextmanager
def serving(make: Callable[..., P], directory: Path) -> Iterator[Callable[..., P]]:
    """Brokers with settings of their own, each in a directory below; closed at the end."""
    with ExitStack() as stack:

        def start(**settings: Any) -> P:
            place = make(directory / f"data-{len(list(directory.iterdir()))}", **settings)
            stack.callback(place.close)
            return place

        yield start
