"""Places of queues.

A task queue is a topic with one group; a temporary queue is a group of its exchange's topic.
Celery's remote control and events go to exchanges of which each listener has a queue of its own, which ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tarry.message.topics import encoded_topic

EXCHANGES = "celery.exchange/"
"""Topics of exchanges with temporary queues begin so."""
PRIORITIES = (0, 3, 6, 9)
"""Steps of priorities, as kombu's Redis transport has them: a topic each."""


class QueuePlace(NamedTuple):
    """A topic, and the group by which a queue is consumed. ``priority``: that of all in it."""

    topic: str
    group: str
    priority: int = 0


class DeclaredQueue(NamedTuple):
    """A queue as it was declared. ``exchange``: that of a temporary one; None: it is not bound yet."""

    is_temporary: bool
    priority_max: int
    exchange: str | None = None


UNDECLARED = DeclaredQueue(is_temporary=False, priority_max=0)
"""A queue that this process has not declared."""


def exchange_topic(exchange: str) -> str:
    """Return the topic of an exchange with temporary queues."""
    return EXCHANGES + encoded_topic(exchange)


def priority_topic(queue: str, priority: int) -> str:
    """Return the topic of a queue's messages of a priority, 0 to 9: of the step at or below it."""
    step = max(each for each in PRIORITIES if each <= priority)
    return encoded_topic(queue) + (f"|{step}" if step else "")


def places_of(queue: str, group: str, priority_max: int) -> Iterator[QueuePlace]:
    """Yield the places of a task queue, the highest priority first.

    ``priority_max`` 0: it has no priorities.
    """
    for step in reversed(PRIORITIES):
        if step <= priority_max:
            yield QueuePlace(priority_topic(queue, step), group, step)


def is_temporary(options: Mapping[str, Any]) -> bool:
    """Return whether a queue, by the arguments of its declaration, ends with its only consumer."""
    return bool(options.get("auto_delete") or options.get("exclusive"))


def priority_max_of(options: Mapping[str, Any]) -> int:
    """Return the highest priority of a declared queue; 0: it has none."""
    return min(9, int((options.get("arguments") or {}).get("x-max-priority") or 0))
