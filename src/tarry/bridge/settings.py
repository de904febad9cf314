"""Settings of a bridge beside RabbitMQ, and its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tarry.base.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """Settings of a bridge.

    ``queue``: where messages come from, made if it is not there. ``exchanges``: by name of an exchange that messages
    are published to, the one that they go to when they are due. ``window``: how many are under way at most, each way.
    ``ordered``: one message of a routing key at a time.
    """

    url: str
    queue: str = "tarry.delay"
    queue_type: str = "quorum"
    exchanges: Mapping[str, str] = field(default_factory=dict)
    window: int = 1000
    ordered: bool = False
    tries: int = 16
    retry: str = "exponential 1s max 1m"


@dataclass(slots=True)
class BridgeFigures:
    """Numbers of messages, since the bridge began."""

    taken: int = 0
    given: int = 0
    refused: int = 0
    """Taken, and put into the queue of the refused."""
    returned: int = 0
    """Not taken by an exchange; tried again, and at last a dead letter."""
    cancelled: int = 0
    known: int = 0
    """Handed out by Tarry again after RabbitMQ had confirmed them; acknowledged, and not published again."""
    connected: bool = False


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Return ``NAME=TARGET`` texts as a mapping. Raises InvalidArgumentError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, target = text.partition("=")
        if not name or not equals:
            raise InvalidArgumentError(
                f"--exchange is {text!r}; allowed: NAME=TARGET, two exchanges, as in orders.delayed=orders"
            )
        if found.setdefault(name, target) != target:
            raise InvalidArgumentError(
                f"--exchange says {name}={found[name]} and {text}; allowed: one target for each name"
            )
        if name == target:
            raise InvalidArgumentError(
                f"--exchange is {text!r}: what is due would come to the bridge again; allowed: another target"
            )
    return found
