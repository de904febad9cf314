"""RecallMessage: recall a delayed message; the answer tells whether it was really recalled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tarry.api.local import AnyBroker
from tarry.api.outcome import Outcome
from tarry.fronts.rocketmq.common.recall import cancel_in
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.rights import check_produce
from tarry.fronts.rocketmq.common.stubs import service
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.v5.authentication import CallingClient
from tarry.fronts.rocketmq.v5.handles import read_recall
from tarry.fronts.rocketmq.v5.resources import topic_of
from tarry.fronts.rocketmq.v5.statuses import OK


@dataclass(slots=True)
class Recaller:
    """Answers RecallMessage. On the loop's thread."""

    _broker: AnyBroker
    _run_in_thread: RunInThread

    async def recall(self, caller: CallingClient, request: Any) -> Any:
        """Answer RecallMessage; OK means that no consumer will get the message, durably.

        RocketMQ (``RecallMessageActivity``) answers OK for any handle that is well-formed. A message that cannot be
        recalled is NOT_FOUND: clients take MESSAGE_NOT_FOUND, the code of an empty receive, for success.

        What is refused is NOT_FOUND: clients take MESSAGE_NOT_FOUND, the code of an empty receive, for success.

        Raises:
            Refusal: BAD_REQUEST: it is no handle of this topic. NOT_FOUND: delivered, cancelled, or unknown.
        """
        topic = topic_of(request.topic, caller.namespace)
        handle, id = read_recall(request.recall_handle, topic)
        check_produce(caller.principal, topic, peer=caller.host)
        [outcome] = await self._run_in_thread(lambda: cancel_in(self._broker, caller.principal, topic, handle))
        if outcome is not Outcome.DONE:
            raise Refusal(Code.NOT_FOUND, f"message {id!r:.300} of topic {topic!r} is not recalled: {outcome}")
        return service.RecallMessageResponse(status=OK, message_id=id)
