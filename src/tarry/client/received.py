"""The long poll: messages without a stream, settled by calls."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any, Unpack

from tarry.api.settings import Start
from tarry.base.delay import Delay
from tarry.base.errors import TarryError
from tarry.base.types import Int64s
from tarry.client.connection import BrokerConnection
from tarry.client.consume_options import ReceiveOptions, check_count, check_seconds, held_by, settled_in
from tarry.client.delivery import Delivery
from tarry.client.delivery_batch import DeliveryBatch
from tarry.client.encoding import encoded
from tarry.client.questions import Question
from tarry.client.settling import Settler, Source
from tarry.client.stream_op import StreamOp
from tarry.client.unanswered import Unanswered
from tarry.link.frames import FrameKind, decode_rows

log = logging.getLogger(__name__)

_ACTIONS = {
    StreamOp.ACK: ("ack", None),
    StreamOp.NACK: ("nack", "delay_ms"),
    StreamOp.FAIL: ("nack", "delay_ms"),
    StreamOp.EXTEND: ("extend", "lease_ms"),
}
"""The operation of each, and the name of its argument."""
ANSWER_S = 5.0
"""Seconds beyond its wait in which a receive is answered: as long as a try to connect may take."""
CLOSE_S = 5.0
"""Seconds that closing waits for the broker to confirm the last acks."""


class ClientReceiver:
    """Receives for a client, and settles what it received; all of it by calls on the client's connection."""

    def __init__(self, connection: BrokerConnection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._unanswered = Unanswered(_warn)
        self.settler = Settler(self._send, loop=connection.loop)

    def receive(self, source: Source, **options: Unpack[ReceiveOptions]) -> list[Delivery]:
        """See :meth:`tarry.client.Client.receive`."""
        question, patience_s, settled = self._ask(source, **options)
        return self._deliveries(question.wait(patience_s), settled)

    async def receive_async(self, source: Source, **options: Unpack[ReceiveOptions]) -> list[Delivery]:
        """:meth:`receive`, to be awaited."""
        question, patience_s, settled = self._ask(source, **options)
        return self._deliveries(await question.answer(patience_s), settled)

    def _ask(
        self,
        source: Source,
        max_messages: int = 1,
        wait: float = 0.0,
        lease: Delay | None = None,
        start: Start | None = None,
        broadcast: str | None = None,
    ) -> tuple[Question, float, Source]:
        """Ask; return the question, the seconds to wait for its answer, and the source to settle for."""
        check_count("max_messages", max_messages)
        check_seconds("wait", wait)
        topic, group = source
        request = {
            "topic": topic,
            "group": group,
            "max_messages": max_messages,
            "wait_ms": round(wait * 1000),
            **held_by(lease, start, broadcast),
        }
        settled = settled_in(topic, group, broadcast)
        # A broker that stands still is not waited for as for an answer that takes its time: who polls asks again.
        return self._connection.receive(request), wait + min(self._timeout_s, ANSWER_S), settled

    def _deliveries(self, answer: memoryview, source: Source) -> list[Delivery]:
        batches = decode_rows(answer).to_batches()
        return [m for batch in batches if batch.num_rows for m in DeliveryBatch(batch, self.settler, source)]

    def flush(self) -> None:
        """Wait until all acks so far are durable.

        Raises:
            StaleLeaseError, UnavailableError: some were not settled; those messages come again.
        """
        self.settler.push()
        self._unanswered.wait(self._timeout_s)

    def close(self) -> None:
        """Send the last acks, and wait for their answers."""
        self.settler.push()
        with suppress(TarryError):  # it was logged
            self._unanswered.wait(CLOSE_S)
        self.settler.close()

    def _send(self, op: StreamOp, argument: int, source: Source, leases: Int64s, offsets: Int64s, reason: str) -> None:
        action, argument_name = _ACTIONS[op]
        body: dict[str, Any] = {"op": action, "topic": source[0], "group": source[1]}
        body |= {"leases": leases.tolist(), "offsets": offsets.tolist()}
        if argument_name is not None:
            body[argument_name] = None if argument < 0 else argument
        if reason:
            body["reason"] = reason
        on_answer = self._unanswered.begin()
        try:
            self._connection.ask_from_anywhere(FrameKind.CALL, encoded(body), on_answer)
        except TarryError as error:
            on_answer(error)


def _warn(error: TarryError | None) -> None:
    if error is not None:
        log.warning("messages could not be settled and will come again: %s", error)
