"""Dead letters under the names that RocketMQ's users know: ``%DLQ%GROUP``, for all topics of a group.

In the broker each topic of a group has dead letters of its own (:func:`tarry.message.dead_topics.dead_topic`); those of
classic consumers are in the topic of that name itself. To v5's clients all these are the queues of ``%DLQ%GROUP``: a
queue's broker name is the topic that it stands for. The name is that of ``MixAll.getDLQTopic`` of apache/rocketmq.
"""

from __future__ import annotations

from tarry.api.local import AnyBroker
from tarry.api.operations import HasTopic, ListGroups
from tarry.fronts.rocketmq.common.names import DEAD_PREFIX
from tarry.message.dead_topics import dead_topic
from tarry.message.topics import is_internal


def is_alias(topic: str) -> bool:
    """Return whether a topic's name stands for all dead letters of a group."""
    return topic.startswith(DEAD_PREFIX) and "/" not in topic


def dead_topics_of(broker: AnyBroker, alias: str) -> list[str]:
    """Return the existing topics that a name stands for, sorted.

    It looks at all groups, so it may take a while.
    """
    topics = possible_dead_topics_of(broker, alias)
    # The topic of that name itself has messages that classic consumers could not handle.
    return sorted(topic for topic in [*topics, alias] if broker.call(HasTopic(topic)))


def possible_dead_topics_of(broker: AnyBroker, alias: str) -> list[str]:
    """Return the topics that may have a group's dead letters, existing or not, sorted."""
    group = alias.removeprefix(DEAD_PREFIX)
    read = (info.topic for info in broker.call(ListGroups()) if info.group == group)
    return sorted(dead_topic(topic, group) for topic in read if not is_internal(topic))


def actual_topic(topic: str, queue: str) -> str:
    """Return the topic to read: the one asked for or, if that stands for several, the one of its queue.

    ``queue``: the broker name of the queue that was asked for.
    """
    stands_for = is_alias(topic) and queue.startswith(DEAD_PREFIX) and not is_internal(queue)
    return queue if stands_for else topic
