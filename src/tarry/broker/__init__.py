"""The broker puts the rooms together: schedule, receive, settle; start, recovery, stop."""

from tarry.broker.broker import Broker, Receipt, TopicPending
from tarry.intake import Accepted

__all__ = ["Accepted", "Broker", "Receipt", "TopicPending"]
