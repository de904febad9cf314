"""The long poll: messages without a stream, settled by calls."""

from __future__ import annotations

import pyarrow as pa

from tarry.api.settings import Start
from tarry.api.wire import StreamOp
from tarry.base.delay import Delay
from tarry.base.errors import InvalidArgumentError
from tarry.base.types import Int64s
from tarry.client.connection import BrokerConnection
from tarry.client.consumer import check_count, check_seconds, held_by
from tarry.client.delivery import Delivery, DeliveryBatch
from tarry.client.settling import Settler, Source

_ACTIONS = {StreamOp.ACK: "ack", StreamOp.NACK: "nack", StreamOp.FAIL: "nack", StreamOp.EXTEND: "extend"}
ANSWER_S = 5.0
"""Seconds beyond its wait in which a receive is answered: as long as a try to connect may take."""
_ARGUMENTS = {StreamOp.NACK: "delay_ms", StreamOp.FAIL: "delay_ms", StreamOp.EXTEND: "lease_ms"}


class ClientReceiver:
    """Receives for a client, and settles what it received; all of it by calls on the client's connection."""

    def __init__(self, connection: BrokerConnection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._is_older = False
        self.settler = Settler(self._send)

    def receive(
        self,
        source: Source,
        max_messages: int = 1,
        wait: float = 0.0,
        lease: Delay | None = None,
        start: Start | None = None,
        broadcast: str | None = None,
    ) -> list[Delivery]:
        """See :meth:`tarry.client.Client.receive`."""
        check_count("max_messages", max_messages)
        check_seconds("wait", wait)
        topic, group = source
        ticket = {
            "op": "receive",
            "topic": topic,
            "group": group,
            "max_messages": max_messages,
            "wait_ms": round(wait * 1000),
            **held_by(lease, start, broadcast),
        }
        # A broker that stands still is not waited for as for an answer that takes its time: who polls asks again.
        table: pa.Table = self._connection.read(ticket, timeout_s=wait + min(self._timeout_s, ANSWER_S))
        # A consumer of a broadcast has a group of its own.
        settled = source if broadcast is None else (topic, f"{group}@{broadcast}")
        batches = [DeliveryBatch(batch, self.settler, settled) for batch in table.to_batches() if batch.num_rows]
        return [message for batch in batches for message in batch]

    def flush(self) -> None:
        """Wait until all acks so far are durable.

        Raises:
            StaleLeaseError, UnavailableError: some were not settled; those messages come again.
        """
        self.settler.push()
        error = self.settler.take_error()
        if error is not None:
            raise error

    def close(self) -> None:
        """Send the last acks."""
        self.settler.push()
        self.settler.close()

    def _send(self, op: StreamOp, argument: int, source: Source, leases: Int64s, offsets: Int64s, reason: str) -> None:
        body = {"topic": source[0], "group": source[1], "leases": leases.tolist(), "offsets": offsets.tolist()}
        if op in _ARGUMENTS:
            body[_ARGUMENTS[op]] = None if argument < 0 else argument
        if reason and not self._is_older:
            try:
                self._connection.action(_ACTIONS[op], {**body, "reason": reason}, timeout_s=self._timeout_s)
                return
            except InvalidArgumentError as error:
                if "reason is not a field" not in str(error):
                    raise
                self._is_older = True  # a broker that knows of no reasons
        self._connection.action(_ACTIONS[op], body, timeout_s=self._timeout_s)
