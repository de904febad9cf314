"""EndTransaction: a producer decides a transaction."""

from __future__ import annotations

from typing import Any

from tarry.fronts.rocketmq.common.half_messages import HalfMessages, check_transaction_id
from tarry.fronts.rocketmq.common.stubs import definition, service
from tarry.fronts.rocketmq.common.threads import RunInThread
from tarry.fronts.rocketmq.v5.authentication import CallingClient
from tarry.fronts.rocketmq.v5.resources import topic_of
from tarry.fronts.rocketmq.v5.statuses import OK

_RESOLUTION = definition.TransactionResolution


class Transactions:
    """Answers EndTransaction. On the event loop's thread."""

    def __init__(self, half_messages: HalfMessages, run_in_thread: RunInThread) -> None:
        self._run_in_thread = run_in_thread
        self._decisions = {_RESOLUTION.COMMIT: half_messages.commit, _RESOLUTION.ROLLBACK: half_messages.rollback}

    async def end(self, caller: CallingClient, request: Any) -> Any:
        """Commit or roll back, durably when it is answered.

        After any other decision the producer is asked again.

        Raises:
            Refusal: INVALID_TRANSACTION_ID. NOT_FOUND: the transaction was decided before.
        """
        topic_of(request.topic, caller.namespace)
        check_transaction_id(request.transaction_id)
        decide = self._decisions.get(request.resolution)
        if decide is not None:
            await self._run_in_thread(lambda: decide(request.transaction_id, request.message_id, caller.principal))
        return service.EndTransactionResponse(status=OK)
