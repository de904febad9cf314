"""EndTransaction: a producer's word on a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tarry.fronts.rocketmq.caller import Caller
from tarry.fronts.rocketmq.halves import Halves
from tarry.fronts.rocketmq.names import topic_of
from tarry.fronts.rocketmq.refusal import OK
from tarry.fronts.rocketmq.stubs import service


class Transactions:
    """On the loop's thread."""

    def __init__(self, halves: Halves, aside: Callable[[Callable[[], Any]], asyncio.Future[Any]]) -> None:
        self._halves = halves
        self._aside = aside

    async def end(self, caller: Caller, request: Any) -> Any:
        """Commit or roll back; durable when it is answered."""
        topic_of(request.topic, caller.space)
        await self._aside(lambda: self._halves.end(request.transaction_id, request.resolution, request.message_id))
        return service.EndTransactionResponse(status=OK)
