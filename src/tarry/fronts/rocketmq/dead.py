"""Dead letters as RocketMQ's users look for them: ``%DLQ%GROUP``, all topics of a group together.

In the broker each topic of a group has dead letters of its own (:func:`tarry.base.dead_topics.dead_topic`). To clients
these are the queues of ``%DLQ%GROUP``: a queue's broker name is the topic that it stands for.
"""

from __future__ import annotations

from tarry.base.dead_topics import dead_topic
from tarry.fronts.rocketmq.core import Core
from tarry.fronts.rocketmq.names import DEAD


def is_alias(topic: str) -> bool:
    """Whether a topic's name stands for all dead letters of a group."""
    return topic.startswith(DEAD) and "/" not in topic


def topics_of(core: Core, alias: str) -> list[str]:
    """The topics that a name stands for, as far as there are any; it may take a while."""
    group = alias.removeprefix(DEAD)
    found = (dead_topic(info.topic, group) for info in core.groups() if info.group == group)
    return sorted(topic for topic in found if core.has_topic(topic))


def actual_topic(asked: str, queue: str) -> str:
    """The topic to read: of ``asked``, or what the queue's broker name says where that stands for several."""
    return queue if is_alias(asked) and queue.startswith(DEAD) else asked
