"""Consumer groups: they lease what is in a topic's queue to consumers until one settles it.

``group`` hands out to each ``subscription`` · ``choosing`` says what of it · ``settling`` takes back · ``ledger`` knows
where each message is, by the table in ``states``. A group's parts: ``leases`` · ``waiting`` (tries to come) · ``order``
(by key) · ``graves`` (on the way to ``dead`` letters) · ``lateness`` · ``filter`` · ``retry``, by its ``settings``.
"""

from tarry.groups.group import Group
from tarry.groups.ledger import Services
from tarry.groups.subscription import Subscription

__all__ = ["Group", "Services", "Subscription"]
