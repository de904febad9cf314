"""SEND_REPLY_MESSAGE: hand a consumer's reply on to the producer that waits for it.

A reply is not stored: nobody would read it after its request has timed out and is sent again. Source:
``ReplyMessageProcessor`` of apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarry.base.clock import Clock
from tarry.fronts.rocketmq.classic.awaiting import awaits_reply
from tarry.fronts.rocketmq.classic.clients import ClientRegistry
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode, ToClient
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.message_bytes import decode_properties, encode_properties
from tarry.fronts.rocketmq.classic.sending import sent_fields
from tarry.fronts.rocketmq.common.draft import DraftRules, check_body
from tarry.fronts.rocketmq.common.properties import REPLY_TO

_PUSH_TIME = "PUSH_REPLY_TIME"
_HANDED_ON = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
)  # fmt: skip


@dataclass(eq=False)
class Replier:
    """Answers SEND_REPLY_MESSAGE. On the event loop's thread."""

    _clock: Clock
    _clients: ClientRegistry
    _rules: DraftRules

    async def reply(self, request: OpenRequest) -> Reply:
        """Answer SEND_REPLY_MESSAGE; SUCCESS means that the producer has the reply.

        Raises:
            Refusal: MESSAGE_ILLEGAL. RequestRefused: SYSTEM_ERROR: no such producer is there, or it does not take it.
        """
        fields, body, connection = sent_fields(request), request.command.body, request.connection
        check_body(body, self._rules.body_bytes_max)
        properties = decode_properties(fields.text("properties", " "))
        client_id = properties.get(REPLY_TO, "")
        is_known = request.principal.is_local
        producer = self._clients.client(client_id, lambda each: is_known or awaits_reply(each, properties))
        if producer is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"no producer {client_id!r:.300} ({REPLY_TO}) is there to get the reply"
            )
        now_ms = self._clock.now_ms()
        handed_on = {name: fields.text(name) for name in _HANDED_ON} | {
            "reconsumeTimes": str(fields.whole("reconsumeTimes", 0)), "unitMode": "false",
            "bornHost": connection.peer, "storeHost": connection.local, "storeTimestamp": str(now_ms),
            "properties": encode_properties({**properties, _PUSH_TIME: str(now_ms)}).decode(),
        }  # fmt: skip
        try:
            answer = await producer.ask(ToClient.PUSH_REPLY_MESSAGE_TO_CLIENT, handed_on, body)
        except (TimeoutError, ConnectionError) as error:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"producer {client_id!r:.300} did not take the reply: {error}"
            ) from error
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"producer {client_id!r:.300} refused the reply: {answer.remark:.300}"
            )
        return Reply(fields={"msgId": "0", "queueId": str(fields.whole("queueId")), "queueOffset": "0"})
