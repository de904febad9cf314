"""Consumer groups: they lease what is in a topic's queue to consumers until one settles it.

``consumer_groups`` is what a broker asks: which groups there are (``registry``), how they come to be, are set and end
(``lifecycle``, ``replay``, ``settings_file``, ``names``), what becomes of ``dead_letters``, and of old messages
(``retention``). One group is a ``control`` for the broker and a ``group`` with ``subscription`` objects for consumers,
over these parts:

``delivery`` hands out, as ``selection`` (with ``lateness`` and ``order``) says · ``lease_manager`` takes back ·
``copier`` makes dead letters (``dead_letter_rows``) · ``news`` wakes who waits · ``policy`` is what the settings mean ·
``group_state`` knows of each message where it is, by the table in ``states``: settled (``intervals``), with a consumer
(``leases``), to be handed out at a moment (``upcoming``), or being copied (``copies``); ``inspection`` asks it.
"""

from tarry.groups.consumer_groups import ConsumerGroups
from tarry.groups.group import Group
from tarry.groups.registry import GroupRegistry
from tarry.groups.subscription import Subscription

__all__ = ["ConsumerGroups", "Group", "GroupRegistry", "Subscription"]
