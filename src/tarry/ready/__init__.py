"""What has become due: a log of frames by topic, and the groups that lease it to consumers.

``log`` appends and reads · ``topic`` is one topic's queue · ``group`` hands out to each ``subscription`` · ``choosing``
says what of it · ``settling`` takes back · ``ledger`` knows where each message is, by the table in ``states``, and
``journal`` makes that durable. A group's parts: ``leases`` · ``waiting`` (tries to come) · ``order`` (by key) ·
``graves`` (on the way to ``dead`` letters) · ``lateness`` · ``filter`` · ``retry``, by its ``settings``.
"""

from tarry.ready.group import DELIVERY, Group
from tarry.ready.journal import Journal
from tarry.ready.ledger import Services
from tarry.ready.log import ReadyLog
from tarry.ready.settings import GroupSettings, TopicSettings
from tarry.ready.subscription import Subscription
from tarry.ready.topic import Topic

__all__ = [
    "DELIVERY",
    "Group",
    "GroupSettings",
    "Journal",
    "ReadyLog",
    "Services",
    "Subscription",
    "Topic",
    "TopicSettings",
]
