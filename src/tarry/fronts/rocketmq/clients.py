"""The clients that are there: what they said of themselves, their telemetry streams, and what push consumers hold.

A push consumer's messages stay its own as long as it is there, however long its listener takes (the client relies on
that: it asks for no invisible time). It is gone when it says so, or when its streams have ended and nothing was heard
of it for a while; then what it held is handed to others at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from typing import Any

from tarry.base.errors import TarryError
from tarry.base.types import Int64s
from tarry.fronts.rocketmq.names import topic_of
from tarry.groups import Subscription

log = logging.getLogger(__name__)

LEASE_MS = 60_000
"""Of a push consumer's messages; renewed each third of it."""
HELD_MS_MAX = 3 * 3_600_000
"""And for how long at most: a listener that never comes back must not keep a message for ever. The original's."""
LOST_S = 5.0
"""How long a client whose stream was cut may take to come back."""
SILENT_S = 60.0
"""How long one that never had a stream may be silent; heartbeats come each 10 s."""
SWEEP_S = 1.0
CLIENTS_MAX = 100_000

COMMANDS_MAX = 1_000
"""Commands that wait for a client that does not read."""

Stream = asyncio.Queue[Any]
"""Commands for a client; None ends it. Of at most :data:`COMMANDS_MAX`."""


def end_stream(stream: Stream, how: Any = None) -> None:
    """Put the end into a stream, in the place of a command if there is no room for it."""
    if stream.full():
        stream.get_nowait()
    stream.put_nowait(how)


class Client:
    """One of them. ``subscriptions``: what it holds as a push consumer, by topic and group."""

    __slots__ = ("attempts", "calls", "heard_s", "id", "settings", "space", "streams", "subscriptions", "was_streaming")

    def __init__(self, id: str, space: str, now_s: float) -> None:
        self.id = id
        self.space = space
        self.settings: Any = None
        self.streams: list[Stream] = []
        self.was_streaming = False
        self.subscriptions: dict[tuple[str, str], Subscription] = {}
        self.attempts: dict[tuple[str, str, int], tuple[str, Int64s, Int64s]] = {}
        """What was handed out last, by topic, group and queue: the attempt's id, leases and offsets."""
        self.calls = 0
        """Receives that wait now."""
        self.heard_s = now_s

    def is_there(self, now_s: float) -> bool:
        """Whether it may still do something with what it holds."""
        return bool(self.streams or self.calls) or now_s - self.heard_s < (LOST_S if self.was_streaming else SILENT_S)


class Clients:
    """On the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._known: dict[tuple[str, str], Client] = {}
        self._renewed_s = loop.time()
        self._timer = loop.call_later(SWEEP_S, self._sweep)

    def __len__(self) -> int:
        return len(self._known)

    def heard(self, id: str, space: str) -> Client:
        """A client has called; it is known from now on."""
        now_s = self._loop.time()
        client = self._known.get((space, id))
        if client is None:
            client = Client(id, space, now_s)
            if len(self._known) < CLIENTS_MAX:
                self._known[space, id] = client
        client.heard_s = now_s
        return client

    def find(self, id: str, space: str) -> Client | None:
        """A client, if it is known."""
        return self._known.get((space, id))

    def begin(self, client: Client, stream: Stream) -> None:
        """A telemetry stream of a client begins."""
        client.streams.append(stream)
        client.was_streaming = True

    def end(self, client: Client, stream: Stream) -> None:
        """It has ended."""
        client.streams.remove(stream)
        client.heard_s = self._loop.time()

    def gone(self, client: Client) -> None:
        """It has said goodbye, or was given up: what it holds is for others."""
        self._known.pop((client.space, client.id), None)
        for subscription in client.subscriptions.values():
            try:
                subscription.close()
            except TarryError as error:
                log.warning("what client %r held comes again with its leases: %s", client.id, error)
        client.subscriptions.clear()

    def producer_of(self, topic: str) -> Stream | None:
        """The stream of one of the producers that publish to a topic; None: there is none."""
        found = [
            client.streams[-1]
            for client in self._known.values()
            if client.streams and not client.streams[-1].full() and topic in _published(client)
        ]
        return random.choice(found) if found else None

    def close(self) -> None:
        """The front stops: all streams end."""
        self._timer.cancel()
        for client in self._known.values():
            for stream in client.streams:
                end_stream(stream)

    def _sweep(self) -> None:
        now_s = self._loop.time()
        renew = now_s - self._renewed_s > LEASE_MS / 3000
        self._renewed_s = now_s if renew else self._renewed_s
        for client in list(self._known.values()):
            if not client.is_there(now_s):
                self.gone(client)
            elif renew:
                for subscription in client.subscriptions.values():
                    subscription.renew(HELD_MS_MAX)
        self._timer = self._loop.call_later(SWEEP_S, self._sweep)


def _published(client: Client) -> Iterable[str]:
    settings = client.settings
    if settings is None or not settings.HasField("publishing"):
        return ()
    return {topic_of(topic, client.space) for topic in settings.publishing.topics}
