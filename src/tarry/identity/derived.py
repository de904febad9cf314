"""Topics that are made of the names of others: a group's dead letters, and its retries.

``%DLQ%TOPIC/GROUP`` has what a group gave up of one topic. ``%RETRY%GROUP``, and ``%DLQ%GROUP`` to RocketMQ's clients,
have messages of all topics that a group reads. So rights on such a name go by what is granted and denied on what is in
it, too: see :class:`tarry.identity.rights.Rights`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarry.message.dead_topics import PREFIX as DEAD_PREFIX

RETRY_PREFIX = "%RETRY%"
"""Beginning of the topics in which RocketMQ's clients get messages again."""


@dataclass(frozen=True, slots=True)
class Derived:
    """The origin of a topic's messages. Both are None where its name has a digest in their place."""

    origin: str | None
    """None: all topics that the group reads."""
    group: str | None


def derived(topic: str) -> Derived | None:
    """Return what a topic's name says of its messages' origin; None: it is a topic like others."""
    if topic.startswith(RETRY_PREFIX):
        return Derived(None, topic.removeprefix(RETRY_PREFIX))
    if not topic.startswith(DEAD_PREFIX):
        return None
    origin, slash, group = topic.removeprefix(DEAD_PREFIX).rpartition("/")
    if not slash:
        return Derived(None, group)
    return Derived(None, None) if not origin or origin.endswith("/") else Derived(origin, group)
