"""State shared by the connections of one gateway front."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tarry.api.board import Board
from tarry.api.local import LocalBroker
from tarry.base.errors import TarryError
from tarry.fronts.gateway.authentication import Trust
from tarry.fronts.gateway.served.groups import GroupTable, Listener
from tarry.fronts.gateway.served.half_frames import HalfFrames


class ServedBroker(LocalBroker, Protocol):
    """The broker that serves gateways."""

    @property
    def board(self) -> Board: ...
    def listen_to_tokens(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after each change of the access tokens, from any thread; return what ends this."""
        ...


class Refusable(Protocol):
    """A connection that can be cut off."""

    def refuse(self, error: TarryError) -> None: ...


@dataclass(slots=True)
class Shared:
    """The shared state. On the loop's thread."""

    broker: ServedBroker
    loop: asyncio.AbstractEventLoop
    groups: GroupTable
    run_in_thread: Callable[..., asyncio.Future[Any]]
    trust: Trust
    half_frames: HalfFrames[Refusable] = field(default_factory=HalfFrames)
    links: dict[str, Listener] = field(default_factory=dict)
    """Links that are told about groups, by the names that workers gave themselves."""
