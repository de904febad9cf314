"""Messages that RabbitMQ has confirmed, until Tarry has their acknowledgements durably.

Where Tarry, or the connection to it, is lost, so are acknowledgements that were on their way, and Tarry hands those
messages out again. They are known here, and are acknowledged once more instead of published. What is acknowledged
durably is forgotten: it comes again only where somebody wants that, by a seek.

A message is known by its seq and by when the broker accepted it. Both are durable before anybody gets it, so a restart,
a power failure or a takeover changes neither. (Its offset may change: the ready log may lack its end after a crash.)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from tarry.base.errors import TarryError

Name = tuple[int, int]
"""The seq of a message, and its ``born_ms``."""

KNOWN_MAX = 100_000
"""Of more messages that may come again, the oldest are forgotten."""
DOUBT_S = 600.0
"""A message in doubt is known for so long after Tarry is back."""
SETTLE_S = 1.0
FLUSH_S = 5.0


class Flushes(Protocol):
    """The consumer, as far as it is asked here: :class:`tarry.client.aio_consumer.AsyncConsumer`."""

    @property
    def is_served(self) -> bool:
        """True if the broker is there."""
        ...

    async def flush(self, timeout: float = 30.0) -> None:
        """Wait until what was acknowledged is durable. Raises TarryError."""
        ...


class Confirmed:
    """The confirmed messages of one bridge, over all its connections."""

    def __init__(self, known_max: int = KNOWN_MAX, now: Callable[[], float] = time.monotonic) -> None:
        self._known_max, self._now = known_max, now
        self._recent: dict[Name, None] = {}
        """Acknowledged since the last flush began."""
        self._doubtful: dict[Name, None] = {}
        """Acknowledged, and nobody knows whether Tarry has noted it; in the order of their confirms."""
        self._doubtful_until_s = 0.0

    def __contains__(self, name: Name) -> bool:
        return name in self._recent or name in self._doubtful

    def __len__(self) -> int:
        return len(self._recent) + len(self._doubtful)

    def add(self, name: Name) -> None:
        """Note that RabbitMQ has a message, right before its acknowledgement."""
        self._doubtful.pop(name, None)
        self._recent[name] = None
        if len(self) > self._known_max:
            oldest = self._doubtful or self._recent
            del oldest[next(iter(oldest))]

    async def follow(self, consumer: Flushes) -> None:
        """Forget, until cancelled, what the consumer has acknowledged durably."""
        while True:
            await asyncio.sleep(SETTLE_S)
            await self.settle(consumer)

    async def settle(self, consumer: Flushes) -> None:
        """Flush what was acknowledged, and forget it; where that fails, it is in doubt."""
        if not len(self):
            return
        asked, self._recent = self._recent, {}
        # Known while the answer is on its way, too: one of them may be handed out again meanwhile.
        self._doubtful.update(asked)
        try:
            await consumer.flush(FLUSH_S)
        except (TarryError, asyncio.CancelledError) as error:
            # A flush tells of all acknowledgements until its end, once: of those that came meanwhile, no other will.
            self._doubtful.update(self._recent)
            self._recent = {}
            self._doubtful_until_s = self._now() + DOUBT_S
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for name in asked:
            self._doubtful.pop(name, None)
        if not consumer.is_served:  # a flush has nothing to wait for then
            self._doubtful_until_s = self._now() + DOUBT_S
        elif self._now() >= self._doubtful_until_s:
            self._doubtful.clear()
