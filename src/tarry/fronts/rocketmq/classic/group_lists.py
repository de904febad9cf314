"""The topics that a group reads, found without its positions.

Tools ask for each of hundreds of groups.
"""

from __future__ import annotations

from tarry.api.local import AnyBroker
from tarry.api.operations import GetQueues
from tarry.base.errors import NotFoundError

_TOOLS, _SYSTEM_PREFIX = "TOOLS_CONSUMER", "CID_RMQ_SYS_"


def topics_of(broker: AnyBroker, group: str) -> list[str]:
    """Return the topics that a group reads, sorted, including its retry topic. In a thread."""
    return sorted(topic for topic in broker.call(GetQueues()) if has_group(broker, topic, group))


def has_group(broker: AnyBroker, topic: str, group: str) -> bool:
    """Return whether there is such a group."""
    try:
        broker.find_group(topic, group)
    except NotFoundError:
        return False
    return True


def only_looks(group: str) -> bool:
    """Return whether a group is one of tools, which look at messages and never commit.

    Its progress is of no interest. Source: ``MixAll.TOOLS_CONSUMER_GROUP``, ``MixAll.isSysConsumerGroup`` of
    apache/rocketmq.
    """
    return group == _TOOLS or group.startswith(_SYSTEM_PREFIX)
