"""RECALL_MESSAGE: recall a delayed message; the answer tells whether it was really recalled.

A handle is ``v1 TOPIC BROKER HANDLE ID`` in base64url, as clients expect to read it; the broker's own handle stands
where RocketMQ has a time.
"""

from __future__ import annotations

import base64
import binascii

from tarry.api.local import AnyBroker
from tarry.api.outcome import Outcome
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.common.recall import cancel_in
from tarry.fronts.rocketmq.common.threads import RunInThread

_VERSION = "v1"


class Recaller:
    """Answers RECALL_MESSAGE. On the event loop's thread."""

    def __init__(self, broker: AnyBroker, run_in_thread: RunInThread) -> None:
        self._broker = broker
        self._run_in_thread = run_in_thread

    async def recall(self, request: OpenRequest) -> Reply:
        """Answer RECALL_MESSAGE; SUCCESS means that no consumer will get the message, durably.

        Raises:
            RequestRefused: INVALID_PARAMETER: it is no handle of this topic. ILLEGAL_OPERATION: delivered, cancelled,
                or unknown.
        """
        topic = request.fields.text("topic")
        handle, id = read_recall_handle(request.fields.text("recallHandle"), topic)
        [outcome] = await self._run_in_thread(lambda: cancel_in(self._broker, request.principal, topic, handle))
        if outcome is not Outcome.DONE:
            raise RequestRefused(
                ResponseCode.ILLEGAL_OPERATION,
                f"message {id!r:.300} of topic {topic!r:.300} is not recalled: {outcome}",
            )
        return Reply(fields={"msgId": id})


def recall_handle(broker: str, topic: str, handle: str, id: str) -> str:
    """Return the handle of a delayed message; clients recall it at the broker of that name."""
    text = " ".join((_VERSION, topic, broker, handle, id or "-"))
    return base64.urlsafe_b64encode(text.encode()).decode("ascii")


def read_recall_handle(text: str, topic: str) -> tuple[str, str]:
    """Return the broker's handle and the message id.

    Raises:
        RequestRefused: INVALID_PARAMETER.
    """
    try:
        parts = base64.b64decode(text, altchars=b"-_", validate=True).decode().split(" ", 4)
    except (binascii.Error, ValueError):
        parts = []
    if len(parts) != 5 or parts[0] != _VERSION or parts[1] != topic:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER, f"recall handle {text!r:.200} is none, or not of topic {topic!r:.300}"
        )
    return parts[3], parts[4]
