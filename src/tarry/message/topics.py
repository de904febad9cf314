"""Names of topics: which there may be, and which are Tarry's own. Imports nothing slow."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote

from tarry.base.errors import InvalidMessageError

RESERVED = "tarry."
"""Names of properties that begin so are Tarry's own."""
TOPIC_PATTERN = r"^[A-Za-z0-9._%|/-]{1,255}$"
TOPIC_ALLOWED = "1 to 255 of A-Z a-z 0-9 . _ % | / -"
DEAD_LETTERS = "%DLQ%"
"""Topics of dead letters begin so: see :mod:`tarry.message.dead_topics`."""
OWN_TOPICS = (RESERVED, DEAD_LETTERS + RESERVED)
"""Topics that begin so are Tarry's own, those of their dead letters included."""
INTERNAL_TOPIC = f"names that begin with {' or '.join(OWN_TOPICS)} are Tarry's own; allowed: other names"
_TOPIC = re.compile(TOPIC_PATTERN)


@lru_cache(maxsize=1024)
def encoded_topic(name: str) -> str:
    """Return a name with each character percent-encoded that a topic cannot have.

    It may still be too long for one.
    """
    return quote(name, safe="._%|/-").replace("~", "%7E")


def is_topic(name: str) -> bool:
    """Return whether a topic may have this name."""
    return bool(_TOPIC.match(name)) and not name.endswith("\n")


def is_internal(topic: str) -> bool:
    """Return whether a topic is Tarry's own, made and consumed by fronts and never by their clients."""
    return topic.startswith(OWN_TOPICS)


def check_topic(topic: str) -> str:
    """``topic`` itself, when its name is allowed.

    Raises:
        InvalidMessageError: otherwise.
    """
    if not isinstance(topic, str) or not is_topic(topic):
        raise InvalidMessageError(f"topic {topic!r} is not a topic name; allowed: {TOPIC_ALLOWED}")
    return topic
