"""The names of the broker and its cluster, as RocketMQ's clients and tools see them."""

from __future__ import annotations

from typing import NamedTuple

from tarry.base.config import Config
from tarry.fronts.rocketmq.settings import RocketMQSettings

TEMPLATE = "TBW102"
"""The topic that is RocketMQ's template for others: clients ask for its route to create a topic there."""
TRACE = "RMQ_SYS_TRACE_TOPIC"
"""The topic to which clients send their traces. They are accepted and discarded."""


class BrokerNames(NamedTuple):
    """Names of the cluster and the broker.

    Scripts name the cluster (``mqadmin … -c``); clients keep the broker's name with queues' offsets and handles.
    """

    cluster: str
    broker: str

    @classmethod
    def of(cls, config: Config) -> BrokerNames:
        """Read the names from the settings."""
        settings = RocketMQSettings.of(config)
        return cls(settings.rocketmq_cluster, settings.rocketmq_broker)

    @property
    def replies(self) -> str:
        """The topic of replies, which are handed on and not stored. Source: ``MixAll.getReplyTopic``."""
        return f"{self.cluster}_REPLY_TOPIC"

    @property
    def own_topics(self) -> list[str]:
        """Topics whose route is answered whatever topics exist.

        A broker has topics with its own name and its cluster's: tools ask for the cluster's, to make a topic on all of
        its brokers. Source: ``TopicConfigManager``, ``MQAdminImpl``.
        """
        return [self.cluster, self.broker, TEMPLATE, TRACE, self.replies]
