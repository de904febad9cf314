"""The broker puts the rooms together: schedule, receive, settle; start, recovery, stop."""

from tarry.api.receipt import Receipt, TopicPending
from tarry.broker.broker import Broker
from tarry.intake import Accepted

__all__ = ["Accepted", "Broker", "Receipt", "TopicPending"]
