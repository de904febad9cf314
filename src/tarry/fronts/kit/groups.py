"""The groups that clients of a front have named, each with the queue of its waiting receives."""

from __future__ import annotations

import asyncio

from tarry.api.consuming import ConsumerGroup
from tarry.fronts.kit.receiving import ReceiveQueue


class ReceiveQueues:
    """Receive queues by topic and group. On the loop's thread, except :meth:`waiting`.

    A group that was deleted and made again is another one, with a queue of its own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[tuple[str, str], ReceiveQueue] = {}

    def find(self, topic: str, group: str) -> ReceiveQueue | None:
        """Return the queue of a group; None: nobody has named the group yet, or it was deleted since."""
        queue = self._queues.get((topic, group))
        return None if queue is None or queue.group.closed else queue

    def of(self, group: ConsumerGroup) -> ReceiveQueue:
        """Return the queue of a group, which is made if it is new."""
        queue = self.find(group.topic_name, group.name)
        if queue is None:
            queue = self._queues[group.topic_name, group.name] = ReceiveQueue(self._loop, group)
        return queue

    def forget(self, topic: str, group: str) -> None:
        """End the waiting receives of a group that is not needed any more."""
        queue = self._queues.pop((topic, group), None)
        if queue is not None:
            queue.close()

    def waiting(self, topic: str, group: str) -> int:
        """Return the number of receives that wait for messages of a group. Any thread."""
        queue = self._queues.get((topic, group))
        return 0 if queue is None else len(queue)

    def close(self) -> None:
        """Stop serving: all waiting receives end."""
        for queue in self._queues.values():
            queue.close()
