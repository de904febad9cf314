"""Interface between a broker, which keeps push subscriptions, and the pusher that carries them out.

Both are in the same process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tarry.api.push import PushAttempt, PushProgress, PushSubscription


class Pusher(Protocol):
    """The pusher of a process, as the broker sees it. Any thread."""

    def on_change(self) -> None:
        """Subscriptions have changed: quick, and never raises."""
        ...

    def wake(self) -> None:
        """Look again at what is due, for the clock was moved: quick, and never raises."""
        ...

    def progress(self, name: str) -> PushProgress | None:
        """Return the progress of a subscription; None: nothing is known of it yet."""
        ...

    def attempts(self, name: str | None, id: str | None, failed: bool, limit: int) -> list[PushAttempt]:
        """Return the last requests, the newest first: of a subscription, of a message, or all."""
        ...

    def test(self, subscription: PushSubscription) -> PushAttempt:
        """Send one request with a body of its own, and wait for what comes of it."""
        ...


class PushSubscriptions(Protocol):
    """The subscriptions of a broker, with their secrets. Any thread."""

    def all(self) -> Mapping[str, PushSubscription]:
        """Return all subscriptions, by name."""
        ...

    def attach(self, pusher: Pusher) -> Callable[[], None]:
        """Notify ``pusher`` of changes, and ask it what it knows. What is returned ends that.

        Raises:
            InvalidArgumentError: there is one already.
        """
        ...
