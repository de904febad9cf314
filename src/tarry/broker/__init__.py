"""The broker puts the rooms together: schedule, receive, settle; start, recovery, stop."""

from tarry.broker.broker import Broker
from tarry.intake import Accepted
from tarry.receipt import Receipt, TopicPending

__all__ = ["Accepted", "Broker", "Receipt", "TopicPending"]
