"""Counts of pending messages by topic: accepted, less cancelled, less fallen due.

The three numbers change at different moments, in the order of a message's way: it is accepted before it is cancelled or
falls due. What fell due is read first, the others together. So a message is counted as long as it is pending; one that
falls due between the two looks may be, too.
"""

from __future__ import annotations

from tarry.broker.queries.cut import Places
from tarry.queue import ReadyLog


def count_pending(places: Places, ready: ReadyLog) -> dict[str, int]:
    """Return the number of pending messages of each topic, in O(topics)."""
    ends = ready.ends()
    with places.wheel.lock:
        accepted, cancelled = dict(places.intake.accepted), dict(places.intake.cancelled)
    # Less than nothing fell due of a topic that was forgotten between the two looks; and messages of a bulk job may
    # fall due before the log names the job, after a crash and while the disk is full.
    return {
        name: max(0, accepted.get(name, 0) - cancelled.get(name, 0) - ends.get(name, 0))
        for name in accepted.keys() | ends.keys()
    }
