"""A front on an event loop and a thread of its own, in the broker's process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Executor
from typing import ClassVar, Self, TypeAlias

from loopgrpc import UnreadBytes
from tarry.api.local import LocalBroker
from tarry.base.descriptors import ConnectionLimits
from tarry.base.endpoint import parse_address
from tarry.base.errors import UnavailableError
from tarry.base.placement import ANY_CORE, Placement
from tarry.fronts.kit.loop_thread import LoopThread, OnStarted

OnListening: TypeAlias = OnStarted[int]
"""Called once, with the port that is listened on; see :data:`tarry.fronts.kit.loop_thread.OnStarted`."""


class LoopFront(ABC):
    """Made by :meth:`start`; :meth:`stop` before the broker is closed. Any thread."""

    THREAD: ClassVar[str]
    """The name of its threads."""

    def __init__(
        self,
        broker: LocalBroker,
        address: str,
        placement: Placement,
        connections: ConnectionLimits,
        unread: UnreadBytes | None = None,
    ) -> None:
        self._broker = broker
        self._placement = placement
        self._connections = connections
        self._unread = unread or UnreadBytes()
        self._host, self._asked_port = parse_address(address)
        self._thread: LoopThread[int] = LoopThread(self.THREAD, placement, self._serve)
        try:
            self.port = self._thread.started()
        except OSError as error:
            raise UnavailableError(f"cannot listen on {address}: {error.strerror or error}") from error

    @classmethod
    def start(
        cls,
        broker: LocalBroker,
        address: str,
        placement: Placement = ANY_CORE,
        connections: ConnectionLimits | None = None,
        unread: UnreadBytes | None = None,
    ) -> Self:
        """Serve a broker on ``"HOST:PORT"``; port 0 takes a free one, see :attr:`port`.

        ``placement`` says where its threads run, ``connections`` how many it takes,
        ``unread`` the bound of answers that are not read, where other fronts share it.

        Raises:
            InvalidArgumentError: no address, or a setting that cannot be. UnavailableError: it cannot be listened on.
        """
        return cls(broker, address, placement, connections or ConnectionLimits(), unread=unread)

    @property
    def address(self) -> str:
        """``"HOST:PORT"`` with the port that is listened on."""
        return f"{self._host}:{self.port}"

    def stop(self, grace_s: float = 2.0) -> None:
        """Take nothing more, let what runs or was written end for up to ``grace_s`` seconds, then cut what is left."""
        self._thread.stop(grace_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    async def _serve(self, pool: Executor, on_listening: OnListening) -> None:
        """Listen, say so, await the stop, and end. On the front's thread; ``pool`` for what waits for the disk."""
