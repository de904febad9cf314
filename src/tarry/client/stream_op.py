"""Orders of a consumer for what it holds."""

from __future__ import annotations

from enum import Enum, auto


class StreamOp(Enum):
    """Orders of a consumer; the link has other names for what they become."""

    ACK = auto()
    NACK = auto()
    EXTEND = auto()
    RETURN = auto()
    """Nobody has looked at these."""
    WINDOW = auto()
    """Hold up to so many messages from now on."""
    FAIL = auto()
    """As NACK, with a reason."""
    REJECT = auto()
    """To the dead letters at once."""
