"""RecallMessage: a delayed message is withdrawn, and the answer says truly whether it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tarry.api.outcome import Outcome
from tarry.fronts.rocketmq.caller import Caller
from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.handles import read_recall
from tarry.fronts.rocketmq.names import topic_of
from tarry.fronts.rocketmq.refusal import OK, Code, Refusal
from tarry.fronts.rocketmq.stubs import service


class Recaller:
    """On the loop's thread."""

    def __init__(self, core: Core, aside: Callable[[Callable[[], Any]], asyncio.Future[Any]]) -> None:
        self._core = core
        self._aside = aside

    async def recall(self, caller: Caller, request: Any) -> Any:
        """OK: no consumer will get it, durably. The original says so of any handle that is well-formed.

        What is refused is NOT_FOUND: clients take MESSAGE_NOT_FOUND, the code of an empty receive, for success.

        Raises:
            Refusal: BAD_REQUEST: it is no handle of this topic. NOT_FOUND: delivered, cancelled, or unknown.
        """
        topic = topic_of(request.topic, caller.space)
        handle, id = read_recall(request.recall_handle, topic)
        outcome = await self._aside(lambda: self._core.cancel(handle))
        if outcome is not Outcome.DONE:
            raise Refusal(Code.NOT_FOUND, f"message {id!r:.300} of topic {topic!r} is not recalled: {outcome}")
        return service.RecallMessageResponse(status=OK, message_id=id)
