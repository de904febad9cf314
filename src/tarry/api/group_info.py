"""The answers about a group, and about a topic. Imports nothing slow."""

from __future__ import annotations

from dataclasses import dataclass

from tarry.api.settings import EARLIEST, GroupFields


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo(GroupFields):
    """A consumer group: its settings as they take effect, and the state of its messages.

    ``retry`` and ``lease_ms`` are the broker's defaults if the group has none of its own; ``filter`` is "*" for all.

    ``lag`` is the sum of ``ready``, ``leased``, ``waiting``, ``blocked`` and ``burying``.
    """

    topic: str
    group: str
    filter_paused: str = ""
    """The reason why the filter is paused; empty: it is not.

    Nothing is handed out until the filter is set, or a while has passed.
    """
    start: str = EARLIEST
    """Start of the group: "earliest" or "latest"."""
    ready: int = 0
    """Not handed out yet, or due for another try."""
    leased: int = 0
    waiting: int = 0
    """Until the moment of their next try."""
    blocked: int = 0
    """Held back behind an earlier one of their ordering key."""
    burying: int = 0
    """On their way to the dead letters."""
    dead: int = 0
    """Dead letters that are neither respawned nor purged."""
    lag: int = 0
    """Ready messages that are not settled."""
    lost: int = 0
    """Messages that retention deleted before the group had settled them, ever."""
    oldest_due_ms: int | None = None
    """Due time of the first message in the queue that is not settled; None when all are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerInfo:
    """A consumer of a group: what it holds, and since when. Each receive by a call of its own is one."""

    number: int
    """Its number in the group, since the process began."""
    identity: str | None
    """Name of its identity; None: the broker has none, or it is a part of the broker."""
    began_ms: int
    """The time at which it came (UTC milliseconds)."""
    state: str
    """full (it holds as much as it may), holding, idle (it holds nothing), or silent.

    Silent: it did not extend its leases, and gets nothing until it is heard of.
    """
    prefetch: int
    """Most messages that it may hold."""
    held: int
    """Messages in flight: leased to it, and not settled."""
    oldest_lease_ms: int | None = None
    """The time of its oldest hand-out that is not settled; None: it holds nothing."""
    lease_end_ms: int | None = None
    """The end of the first of its leases, when its messages come again if it is not extended."""
    attempt_max: int = 0
    """The highest try among what it holds."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic's settings as they take effect."""

    topic: str
    late: str
    """deliver, drop or dead."""
    lateness_ms_max: int | None
    """Highest lateness, in milliseconds, of a message without an expiry; None: any."""
    ordered: bool
    """True if all groups of the topic keep the order of ordering keys."""
    declared: bool
    """True if the topic was made before it had a message."""
    max_per_second: int = 0
    """Messages that each group is handed a second at most; 0: no limit but its own."""
    queues: int = 0
    """Number of queues that RocketMQ's clients see; 0: as many as the broker's setting says."""
