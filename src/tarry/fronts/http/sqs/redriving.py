"""Dead-letter queues: what was handed out too often is moved there, and back by a task.

As with SQS, a message is moved when a receive would hand it out once more than its queue's ``maxReceiveCount``. The
copy is durable before the original is acknowledged, and has an id by which a second copy, after a crash between the
two, is none. It keeps its message id, its attributes and the time when it was sent.
"""

from __future__ import annotations

import asyncio

from tarry.api.consuming import ConsumerGroup
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.sqs import message_attributes as kept
from tarry.fronts.http.sqs.queue_attributes import Queue
from tarry.fronts.http.sqs.queue_table import QueueTable
from tarry.fronts.http.sqs.received import SqsDelivery
from tarry.fronts.http.sqs.settling import SqsSettling
from tarry.message.rows import Row, with_cells
from tarry.message.topics import RESERVED


class Redriving:
    """On the event loop's thread."""

    def __init__(self, services: HttpServices, table: QueueTable, settling: SqsSettling) -> None:
        self._services = services
        self._table = table
        self._settling = settling

    async def sift(self, queue: Queue, group: ConsumerGroup, deliveries: list[SqsDelivery]) -> list[SqsDelivery]:
        """Return those that may be handed out; move the others to the queue's dead-letter queue."""
        target = None if queue.dead_letter_queue is None else self._table.get(queue.dead_letter_queue)
        if target is None or all(each.attempt <= queue.receives_max for each in deliveries):
            return deliveries
        spent = [each for each in deliveries if each.attempt > queue.receives_max]
        await asyncio.gather(*(self.move(each, queue, group, target) for each in spent))
        return [each for each in deliveries if each.attempt <= queue.receives_max]

    async def move(
        self, delivery: SqsDelivery, queue: Queue, group: ConsumerGroup, target: Queue, *, back: bool = False
    ) -> None:
        """Move a message that was handed out to another queue; ``back``: where it is a new message.

        Raises:
            TarryError: not now; it stays where it is, and comes again.
        """
        # The policy of the queue moves it, and not who happens to receive: no right on the other queue is asked for.
        await self._services.schedule_row(moved(delivery, queue, target, back=back))
        await self._settling.settle(group, delivery.held)


def moved(delivery: SqsDelivery, queue: Queue, target: Queue, *, back: bool) -> Row:
    """Return a message of a queue as a row for another one."""
    properties = {name: text for name, text in delivery.properties.items() if not name.startswith(RESERVED)}
    if back:
        for name in (kept.ID, kept.SENT, kept.SOURCE):
            properties.pop(name, None)
    else:
        properties |= {kept.ID: delivery.message_id, kept.SENT: str(delivery.sent_ms), kept.SOURCE: queue.name}
    cells = {"properties": list(properties.items()), "ttl_ms": target.retention_s * 1000}
    if delivery.group_id is not None and target.is_fifo:
        cells["order_key"] = delivery.group_id
    id_ = f"sqs-moved/{queue.created_ms:x}/{queue.name}/{delivery.held.seq}"
    return with_cells((target.name, delivery.body, None, 0, id_), cells)
