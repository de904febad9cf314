"""What has become due: a log of frames by topic, and the groups that lease it to consumers.

``log`` appends and reads · ``topic`` is one topic's queue · ``group`` leases, acknowledges, retries · ``journal`` makes
that durable.
"""

from tarry.ready.group import DELIVERY, Group, Subscription
from tarry.ready.journal import Journal
from tarry.ready.log import ReadyLog
from tarry.ready.topic import Topic

__all__ = ["DELIVERY", "Group", "Journal", "ReadyLog", "Subscription", "Topic"]
