"""Which names a group may have."""

from __future__ import annotations

from tarry.base.errors import InvalidArgumentError
from tarry.base.message import RESERVED

NAME_BYTES_MAX = 255


def check_group(name: str) -> str:
    """``name`` itself, when a group may have it.

    Raises:
        InvalidArgumentError: otherwise.
    """
    if not isinstance(name, str) or not name or len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        raise InvalidArgumentError(f"group {name!r} is not a group name; allowed: 1 to {NAME_BYTES_MAX} bytes")
    if name.startswith(RESERVED) or not _encodes(name):
        raise InvalidArgumentError(
            f"group {name!r} is not a group name; allowed: UTF-8 that begins without {RESERVED!r}"
        )
    return name


def broadcast_group(group: str, consumer: str) -> str:
    """The name of the group that one consumer of a broadcast has for itself.

    Raises:
        InvalidArgumentError: the consumer's name is not allowed, or both together are too long.
    """
    if not isinstance(consumer, str) or not consumer or "@" in consumer:
        raise InvalidArgumentError(f"broadcast consumer {consumer!r}; allowed: 1 or more characters without '@'")
    return check_group(f"{group}@{consumer}")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
