"""The names of topics of dead letters: each group of a topic has one of its own."""

from __future__ import annotations

import re
from hashlib import sha256

from tarry.message.topics import DEAD_LETTERS, is_topic

PREFIX = DEAD_LETTERS
DEAD_LETTER_GROUP = "tarry.dead"
"""Group of a dead-letter topic that lists what is neither respawned nor purged; hands out nothing."""
_NAME_BYTES_MAX = 255
_DIGEST_CHARACTERS = 32


def dead_topic(topic: str, group: str) -> str:
    """Return the topic of a group's dead letters.

    It is ``%DLQ%topic/group`` if that is a topic name that no other pair has, else one with a digest after ``//``.
    """
    plain = f"{PREFIX}{topic}/{group}"
    # The last "/" tells the two apart; "//" before the end is kept for the digests.
    if is_topic(plain) and "/" not in group and not topic.endswith("/"):
        return plain
    digest = sha256(f"{topic}\0{group}".encode()).hexdigest()[:_DIGEST_CHARACTERS]
    readable = re.sub(r"[^A-Za-z0-9._%|/-]", "_", plain)
    return f"{readable[: _NAME_BYTES_MAX - 2 - _DIGEST_CHARACTERS]}//{digest}"


def is_dead_topic(topic: str) -> bool:
    """Return whether a topic is for dead letters: its messages never become dead letters again."""
    return topic.startswith(PREFIX)
