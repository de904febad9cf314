"""The broker as the applications of the HTTP front use it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from loopgrpc import UnreadBytes
from tarry.api.local import AnyBroker
from tarry.fronts.http.body_budget import BodyBudget
from tarry.fronts.kit.callers import Callers
from tarry.fronts.kit.desk import Desk


class HttpServices(Desk):
    """A desk that also bounds requests' bodies, and knows whose they are. On the event loop's thread."""

    def __init__(
        self, broker: AnyBroker, loop: asyncio.AbstractEventLoop, pool: Executor, unread: UnreadBytes | None = None
    ) -> None:
        super().__init__(broker, loop, pool, unread)
        self.bodies = BodyBudget()
        """The memory that bodies of requests take."""
        self.callers = Callers(broker, loop, "http")
        """Those whose requests are being carried out."""
        self.on_close(lambda _: self.callers.close())
