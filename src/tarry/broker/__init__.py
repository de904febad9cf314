"""The broker puts the parts together: schedule, receive, settle; start, recovery, stop."""

from tarry.broker.broker import Broker

__all__ = ["Broker"]
