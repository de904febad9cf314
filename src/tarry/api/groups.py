"""What one may ask of a group and of a topic's policy: the same in-process and through the client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group: its settings (``docs/delivery-groups.md`` says what they mean), and where its messages are.

    ``lag`` is the sum of ``ready``, ``leased``, ``waiting``, ``blocked`` and ``burying``.
    """

    topic: str
    group: str
    retry: str
    """Back-off after a nack without a delay; the broker's default where it has none of its own."""
    tries: int
    """How many times a message is handed out before it goes to the dead letters; 0: no limit."""
    inflight_max: int
    """Messages leased at a time; 0: no limit but the consumers'."""
    filter: str
    """"*": every message."""
    ordered: bool
    paused: bool
    lease_ms: int
    start: str
    """Where it began: "earliest" or "latest"."""
    ready: int
    """Not looked at yet, or due for another try."""
    leased: int
    waiting: int
    """Until the moment of their next try."""
    blocked: int
    """Held back behind an earlier one of their ordering key."""
    burying: int
    """On their way to the dead letters."""
    dead: int
    """Dead letters that are neither respawned nor purged."""
    lag: int
    """Ready messages that are not settled."""
    lost: int
    """Messages that retention deleted before the group had settled them, ever."""
    oldest_due_ms: int | None
    """Due time of the first message in the queue that is not settled; None when all are."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic's settings: what becomes of late messages that do not say it themselves, and about order."""

    topic: str
    late: str
    """deliver, drop or dead."""
    lateness_ms_max: int | None
    """How late a message without an expiry may be; None: any."""
    ordered: bool
    """All of its groups keep the order of ordering keys."""
    declared: bool
    """It was made before it had a message."""
