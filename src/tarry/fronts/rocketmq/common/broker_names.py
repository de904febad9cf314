"""The names of the broker and its cluster, to RocketMQ's clients and tools."""

from __future__ import annotations

from typing import NamedTuple

from tarry.base.config import Config
from tarry.fronts.rocketmq.settings import RocketMQSettings

TEMPLATE = "TBW102"
"""The topic that RocketMQ makes others after: clients ask where it is, to make a topic there."""
TRACE = "RMQ_SYS_TRACE_TOPIC"
"""Where clients that trace messages send what they noted. It is taken, and thrown away."""


class BrokerNames(NamedTuple):
    """Scripts name the cluster (``mqadmin … -c``); clients keep the broker's name with queues' offsets and handles."""

    cluster: str
    broker: str

    @classmethod
    def of(cls, config: Config) -> BrokerNames:
        """Read them from the settings."""
        settings = RocketMQSettings.of(config)
        return cls(settings.rocketmq_cluster, settings.rocketmq_broker)

    @property
    def replies(self) -> str:
        """The topic where replies go, which are handed on and not stored. Source: ``MixAll.getReplyTopic``."""
        return f"{self.cluster}_REPLY_TOPIC"

    @property
    def own_topics(self) -> list[str]:
        """Where these are is answered whatever topics there are. A broker has topics that are called as it and its
        cluster: tools ask for the cluster's, to make a topic on all of its brokers. Source: ``TopicConfigManager``,
        ``MQAdminImpl``.
        """
        return [self.cluster, self.broker, TEMPLATE, TRACE, self.replies]
