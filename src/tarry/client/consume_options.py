"""Options of ``consume`` and ``receive``, and their checks. Imports nothing slow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from tarry.api.settings import Start
from tarry.base.delay import Delay
from tarry.base.errors import InvalidArgumentError
from tarry.client.delivery import duration_ms


class HoldOptions(TypedDict, total=False):
    """Options about holding messages.

    - ``lease``: for how long a message is this consumer's before it goes to another; default: the group's, 30 s where
      it has none. :meth:`Client.consume` extends it while the message is worked on: then it is how long it takes until
      others get what a consumer had that was cut off or stands still.
    - ``start``: where a group that is new begins: at the "earliest" message that is kept (the default), or the
      "latest".
    - ``broadcast``: a name of this consumer: it gets all messages, not a share, as a group of its own,
      ``group@broadcast``, which begins at the latest.
    """

    lease: Delay | None
    start: Start | None
    broadcast: str | None


class ReceiveOptions(HoldOptions, total=False):
    """Options of ``receive``.

    - ``max_messages``: at most so many, 1 by default. ``wait``: seconds to wait for the first, 0 by default.
    """

    max_messages: int
    wait: float


class ConsumeOptions(HoldOptions, total=False):
    """Options of ``consume``.

    - ``prefetch``: how many unsettled messages may be here at most, 1000 by default; more for herds. It begins with a
      few, and has as many as the loop works through in half a second.
    - ``timeout``: end when no message came for so many seconds; else it goes on for ever. Where the broker could not be
      reached in all of that time, nobody knows whether there are any: then it is an UnavailableError.
    - ``auto_ack``: acknowledge each message when the loop asks for the next.
    """

    prefetch: int
    timeout: float | None
    auto_ack: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedConsumeOptions:
    """:class:`ConsumeOptions`, checked.

    Raises:
        InvalidArgumentError: one is not allowed.
    """

    prefetch: int = 1000
    lease: Delay | None = None
    timeout: float | None = None
    auto_ack: bool = False
    start: Start | None = None
    broadcast: str | None = None

    def __post_init__(self) -> None:
        check_seconds("timeout", self.timeout, "more than 0")
        if self.timeout == 0:
            raise InvalidArgumentError(
                "timeout is 0: nothing would ever come; allowed: more than 0, or receive(wait=0) for what there is now"
            )
        check_count("prefetch", self.prefetch)


def held_by(lease: Delay | None, start: Start | None, broadcast: str | None) -> dict[str, Any]:
    """:class:`HoldOptions` on the wire."""
    return {"lease_ms": lease_ms_of(lease), "start": start, "broadcast": broadcast}


def settled_in(topic: str, group: str, broadcast: str | None) -> tuple[str, str]:
    """Return where messages are settled: a consumer of a broadcast has a group of its own."""
    return topic, group if broadcast is None else f"{group}@{broadcast}"


def lease_ms_of(lease: Delay | None) -> int | None:
    """Return a lease in milliseconds; None: the group's."""
    return None if lease is None else duration_ms("lease", lease, 1)


def check_seconds(name: str, seconds: float | None, allowed: str = "0 or more") -> float | None:
    """Check a waiting time, and give it back.

    Raises:
        InvalidArgumentError: otherwise.
    """
    if seconds is not None and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9
    ):
        raise InvalidArgumentError(f"{name} is {seconds!r}; allowed: a number of seconds, {allowed}")
    return seconds


def check_count(name: str, count: int) -> None:
    """Check a number of messages.

    Raises:
        InvalidArgumentError: ``count`` is no number of messages.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidArgumentError(f"{name} is {count!r}; allowed: 1 or more")
