"""Consumer groups: they lease what is in a topic's queue to consumers until one settles it.

``consumer_groups`` is what a broker asks: which groups there are (``registry``), how they come to be, are set and end
(``lifecycle``, ``settings_file``), and what becomes of ``dead_letters``. One group is a ``control`` for the broker and
a ``group`` with its subscriptions for consumers, over these parts:

``delivery`` hands out, as ``selection`` (with ``order``) says · ``lease_manager`` takes back ·
``copier`` makes dead letters (``dead_letter_rows``) · ``news`` wakes who waits · ``policy`` is what the settings mean ·
``group_state`` knows of each message where it is, by the table in ``states``: settled (``intervals``), with a consumer
(``leases``), to be handed out at a moment (``upcoming``), or being copied (``copies``).
"""

from tarry.groups.consumer_groups import ConsumerGroups
from tarry.groups.dead_letters import DeadLetters
from tarry.groups.group import Group, GroupSubscription
from tarry.groups.registry import GroupRegistry

__all__ = ["ConsumerGroups", "DeadLetters", "Group", "GroupRegistry", "GroupSubscription"]
