"""Base class of fronts that run in the broker's process, on an event loop and thread of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import ClassVar, Self, TypeAlias

from loopgrpc import UnreadBytes
from tarry.api.local import AnyBroker
from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import parse_address
from tarry.base.errors import UnavailableError
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.kit.front import FrontServices
from tarry.fronts.kit.listening import SharedPort, why_not_listening
from tarry.fronts.kit.loop_thread import LoopThread, OnStarted

OnListening: TypeAlias = OnStarted[int]
"""Callback for the listening port, called once; see :data:`tarry.fronts.kit.loop_thread.OnStarted`."""


class LoopFront(ABC):
    """A running front. :meth:`start` makes it; :meth:`stop` it before the broker is closed. Any thread."""

    NAME: ClassVar[str]
    """Name of the front's setting."""
    THREAD: ClassVar[str]
    """Name of the front's threads."""

    def __init__(
        self,
        broker: AnyBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
        unread: UnreadBytes | None = None,
        *,
        shared: SharedPort | None = None,
        home: str | None = None,
    ) -> None:
        """Serve; arguments as in :meth:`start`, and more.

        Args:
            broker: the broker that is served.
            address: where its clients connect.
            placement: the cores that its threads run on.
            connections: limits on the number of connections.
            unread: limit on the bytes of answers that clients have not read.
            shared: in a worker: the port that all workers listen on.
            home: with workers: ``unix:PATH`` of their home; without ``shared``, this is it.
        """
        self._shared, self._home = shared, home
        self._broker = broker
        self._placement = placement
        self._connections = connections or ConnectionLimits()
        self._unread = unread or UnreadBytes()
        self._host, self._asked_port = parse_address(address)
        self._thread: LoopThread[int] = LoopThread(self.THREAD, placement, self._serve)
        try:
            self.port = self._thread.started()
        except OSError as error:
            raise UnavailableError(f"cannot listen on {address}: {why_not_listening(error)}") from error

    @classmethod
    def start(
        cls,
        broker: AnyBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
        unread: UnreadBytes | None = None,
    ) -> Self:
        """Serve a broker on ``"HOST:PORT"``; port 0 takes a free port, which :attr:`port` then gives.

        Args:
            broker: the broker that is served.
            address: ``"HOST:PORT"``.
            placement: the cores that the front's threads run on.
            connections: limits on the number of connections.
            unread: limit on the bytes of answers that clients have not read; pass it where fronts share one.

        Raises:
            InvalidArgumentError: the address cannot be parsed, or a setting is invalid.
            UnavailableError: the address cannot be listened on.
        """
        return cls(broker, address, placement, connections, unread=unread)

    @classmethod
    def of(cls, services: FrontServices, *, home: str | None = None) -> Self:
        """Start the front for ``tarry serve``, in a worker, or as the ``home`` of workers."""
        return cls(
            services.broker,
            services.address,
            services.placement,
            services.connections,
            unread=services.unread,
            shared=services.shared,
            home=home,
        )

    @property
    def address(self) -> str:
        """``"HOST:PORT"``, with the port that is actually listened on."""
        return f"{self._host}:{self.port}"

    @property
    def addresses(self) -> Mapping[str, str]:
        """Every address that the front listens on, by a name for people."""
        return {self.NAME: self.address}

    def stop(self, grace_s: float = 2.0) -> None:
        """Accept nothing new, wait up to ``grace_s`` seconds for calls and answers to end, then cut the rest."""
        self._thread.stop(grace_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        """Listen, call ``on_listening``, await the stop that it returns, and shut down.

        On the front's thread. ``pool`` runs work that waits for the disk.
        """
