"""State shared by the connections of one port of the link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from loopgrpc import UnreadBytes
from tarry.api.local import AnyBroker
from tarry.base.errors import TarryError
from tarry.fronts.link.groups import GroupTable
from tarry.fronts.link.half_frames import HalfFrames
from tarry.fronts.link.threads import PortThreads


class Secret(Protocol):
    """A secret that the other side has to prove."""

    def check(self, nonce: bytes, proof: bytes) -> None:
        """Refuse a wrong proof.

        Raises:
            InvalidArgumentError: the proof was not made with this secret.
        """
        ...


class Refusable(Protocol):
    """A connection that can be cut off."""

    def refuse(self, error: TarryError) -> None: ...


@dataclass(slots=True)
class Shared:
    """The shared state. On the loop's thread."""

    broker: AnyBroker
    loop: asyncio.AbstractEventLoop
    groups: GroupTable
    run_in_thread: Callable[..., asyncio.Future[Any]]
    unread: UnreadBytes
    threads: PortThreads
    """Threads for what takes long."""
    secret: Secret | None = None
    """None: nobody is asked for one."""
    half_frames: HalfFrames[Refusable] = field(default_factory=HalfFrames)
    on_close: list[Callable[[], None]] = field(default_factory=list)
    """Called when the port has closed."""
