"""Topics of a queue: one for each step of priority, since a topic is in the order of due times."""

from __future__ import annotations

from tarry.message.topics import encoded_topic

GROUP = "django"
"""The group by which all workers share a topic."""
STEPS = (50, 1, 0, -49, -100)
"""A task of priority p is in the topic of the highest step that is not above p."""


def topic_of(prefix: str, queue: str, priority: int) -> str:
    """Return the topic of a queue's tasks of a priority, -100 to 100."""
    step = next(each for each in STEPS if each <= priority)
    return f"{prefix}/{encoded_topic(queue)}" + (f"|{step}" if step else "")


def topics_of(prefix: str, queue: str) -> list[str]:
    """Return all topics of a queue, the highest priority first."""
    return [topic_of(prefix, queue, step) for step in STEPS]
