"""Connected clients: settings, telemetry streams, and the messages that push consumers hold.

A front may have several processes, and a client may change from one to another. So each process posts on the board
which clients it has (:mod:`tarry.fronts.rocketmq.v5.peers`). A client that is connected to another process counts as
present, and keeps what was handed out to it here. When it says goodbye, all processes are told.

A push consumer keeps its messages as long as it is present, however long its listener takes: such clients rely on that,
and ask for no invisible time. A client is gone when it says so, or when its streams have ended and it has not called
for a while; then the messages it held are handed to others at once. Source: ``ReceiptHandleManager`` and
``ClientActivity`` of apache/rocketmq's proxy.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from typing import Any

from tarry.api.accounts import QuotaAccount
from tarry.api.consuming import ConsumerGroup, Subscription
from tarry.api.needs import Right
from tarry.base.errors import TarryError
from tarry.base.types import Int64s
from tarry.fronts.rocketmq.v5.peers import Colleagues
from tarry.fronts.rocketmq.v5.resources import topic_of
from tarry.identity.principal import LOCAL

log = logging.getLogger(__name__)

LEASE_MS = 60_000
"""Lease of a push consumer's messages."""
RENEW_S = LEASE_MS / 3000
"""Interval at which such leases are renewed."""
HELD_MS_MAX = 3 * 3_600_000
"""Longest time for which such leases are renewed, as in RocketMQ.

Its name there is ``renewMaxTimeMillis`` of ``ProxyConfig``. A listener that never returns must not keep a message for
ever.
"""
HELD_MAX = 2048
"""Unacknowledged messages that a push consumer may hold; it gets more as it acknowledges.

Java's client keeps them in a list that each acknowledgement searches: with 65,536 in it, a burst takes it an eighth
longer. The client's own bound is 1,024 unless it is configured otherwise.
"""
LOST_S = 5.0
"""Time that a client whose stream was cut has to come back."""
SILENT_S = 60.0
"""Time that a client without any stream so far may be silent; heartbeats come every 10 s."""
SWEEP_S = 1.0
"""Interval at which clients that are gone are looked for."""
CLIENTS_MAX = 100_000
REQUEST_TIMEOUT_S = 3
"""Time that a client waits for an answer if its settings do not say so."""
COMMANDS_MAX = 1_000
"""Commands that are queued for a client that does not read."""

Stream = asyncio.Queue[Any]
"""Commands (``TelemetryCommand``) for a client, at most :data:`COMMANDS_MAX`.

A GrpcError or None ends the stream.
"""
Attempt = tuple[str, Int64s, Int64s]
"""Messages handed out for one receive of a push consumer: the attempt's id, leases and offsets."""
AttemptKey = tuple[str, str, int]
"""Topic, group and queue."""


def end_stream(stream: Stream, end: Any = None) -> None:
    """Put the end into a stream; it replaces a command if there is no room."""
    if stream.full():
        stream.get_nowait()
    stream.put_nowait(end)


class ConnectedClient:
    """One client. On the event loop's thread."""

    __slots__ = (
        "_subscriptions", "_was_streaming", "attempts", "id", "is_posted", "last_call_s", "namespace", "principal",
        "settings", "streams", "waiting_receives",
    )  # fmt: skip

    def __init__(self, id: str, namespace: str, now_s: float) -> None:
        self.id = id
        self.namespace = namespace
        self.principal = LOCAL
        """The caller that its settings came from: all clients of one id are one caller's."""
        self.settings: Any = None
        """The client's ``Settings`` as they were answered; None if it has sent none."""
        self.streams: list[Stream] = []
        self.attempts: dict[AttemptKey, Attempt] = {}
        """The messages handed out last, by topic, group and queue."""
        self.waiting_receives = 0
        self.last_call_s = now_s
        """In the loop's time; the end of a stream or a receive counts as a call."""
        self.is_posted = False
        """True if the other processes have been told that the client is here."""
        self._was_streaming = False
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        """The client's subscriptions as a push consumer, by topic and group."""

    def add_stream(self) -> Stream:
        """Note that a telemetry stream of the client begins."""
        stream: Stream = asyncio.Queue(COMMANDS_MAX)
        self.streams.append(stream)
        self._was_streaming = True
        return stream

    def is_present(self, now_s: float) -> bool:
        """Return whether the client may still do something with the messages it holds."""
        if self.streams or self.waiting_receives:
            return True
        return now_s - self.last_call_s < (LOST_S if self._was_streaming else SILENT_S)

    def push_subscription(self, group: ConsumerGroup, account: QuotaAccount | None) -> Subscription:
        """Return the subscription by which it receives messages of the group as a push consumer."""
        key = (group.topic_name, group.name)
        subscription = self._subscriptions.get(key)
        if subscription is None or subscription.group is not group or subscription.closed:
            subscription = group.subscribe(prefetch=HELD_MAX, lease_ms=LEASE_MS, account=account)
            self._subscriptions[key] = subscription
        return subscription

    def is_full(self, group: ConsumerGroup) -> bool:
        """Return whether it holds as many messages of the group as a push consumer may.

        Behind a gateway it is always False: the broker knows.
        """
        subscription = None if group.gathers else self._subscriptions.get((group.topic_name, group.name))
        return subscription is not None and subscription.held >= HELD_MAX

    def give_back(self, key: AttemptKey, attempt: Attempt) -> None:
        """Give back the messages handed out for an attempt."""
        subscription = self._subscriptions.get(key[:2])
        if subscription is not None:
            subscription.group.nack(attempt[1], attempt[2], 0)

    def renew_leases(self) -> None:
        """Extend the leases of the messages that the client holds."""
        for subscription in self._subscriptions.values():
            subscription.renew(HELD_MS_MAX)

    def give_up_leases(self) -> None:
        """Give back the messages that the client holds, for others."""
        for subscription in self._subscriptions.values():
            try:
                subscription.close()
            except TarryError as error:
                log.warning("what client %r held comes again with its leases: %s", self.id, error)
        self._subscriptions.clear()

    def published_topics(self) -> Iterable[str]:
        """Return the topics that the client publishes to, by its settings, and may produce to.

        It is asked about transactions of these, and so sees their messages.
        """
        if self.settings is None or not self.settings.HasField("publishing"):
            return ()
        topics = {topic_of(topic, self.namespace) for topic in self.settings.publishing.topics}
        return {topic for topic in topics if self.principal.rights.allow(Right.PRODUCE, topic)}


class ClientRegistry:
    """All connected clients. On the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, colleagues: Colleagues) -> None:
        self._loop = loop
        self._colleagues = colleagues
        colleagues.on_goodbye = self._on_goodbye_elsewhere
        colleagues.on_attempt = self._on_attempt_elsewhere
        self._clients: dict[tuple[str, str], ConnectedClient] = {}
        """By namespace and id."""
        self._renewed_s = loop.time()
        self._timer = loop.call_later(SWEEP_S, self._sweep)

    def __len__(self) -> int:
        return len(self._clients)

    def get_or_create(self, id: str, namespace: str) -> ConnectedClient:
        """Return the client, which has just called; add it if it is new."""
        now_s = self._loop.time()
        client = self._clients.get((namespace, id))
        if client is None:
            client = ConnectedClient(id, namespace, now_s)
            if len(self._clients) < CLIENTS_MAX:
                self._clients[namespace, id] = client
        client.last_call_s = now_s
        if not client.is_posted:
            self._post(client)
        return client

    def set_settings(self, client: ConnectedClient, settings: Any) -> None:
        """Keep the settings that a client sent."""
        client.settings = settings
        self._post(client)
        self._colleagues.plan_topics(self._published_topics)

    def request_timeout_s(self, client: ConnectedClient) -> float:
        """Return how long a client waits for an answer, without the time a receive may wait for a message.

        The client may have told another process.
        """
        said_s = _said_timeout_s(client) or self._colleagues.timeout_s(client.namespace, client.id)
        return said_s or REQUEST_TIMEOUT_S

    def find(self, id: str, namespace: str) -> ConnectedClient | None:
        """Return a client that is known here, or None."""
        return self._clients.get((namespace, id))

    def remove_stream(self, client: ConnectedClient, stream: Stream) -> None:
        """Note that a telemetry stream of a client has ended."""
        client.streams.remove(stream)
        client.last_call_s = self._loop.time()
        self._colleagues.plan_topics(self._published_topics)

    def say_goodbye(self, id: str, namespace: str) -> None:
        """Remove a client that leaves; the messages it held in any process are for others at once."""
        client = self._clients.get((namespace, id))
        if client is not None:
            self._remove(client)
        self._colleagues.say_goodbye(namespace, id)

    def _remove(self, client: ConnectedClient) -> None:
        """Forget a client that has left or was given up; its messages are for others."""
        self._clients.pop((client.namespace, client.id), None)
        self._withdraw(client)
        self._colleagues.plan_topics(self._published_topics)
        client.give_up_leases()

    def _post(self, client: ConnectedClient) -> None:
        client.is_posted = True
        self._colleagues.post_client(client.namespace, client.id, _said_timeout_s(client))

    def _withdraw(self, client: ConnectedClient) -> None:
        if client.is_posted:
            client.is_posted = False
            self._colleagues.withdraw_client(client.namespace, client.id)

    def _published_topics(self) -> set[str]:
        return {topic for client in self._clients.values() if client.streams for topic in client.published_topics()}

    def find_lost_attempt(self, client: ConnectedClient, key: AttemptKey, attempt_id: str) -> Attempt | None:
        """Remove and return what a client was handed out in an attempt with this id, but did not get.

        The caller gives those messages back. If another process handed them out, that process gives them back.
        """
        attempt = client.attempts.pop(key, None)
        if attempt is None:
            self._colleagues.announce_attempt(client.namespace, client.id, key, attempt_id)
            return None
        return attempt if attempt[0] == attempt_id else None

    def _on_attempt_elsewhere(self, namespace: str, id: str, key: AttemptKey, attempt_id: str) -> None:
        client = self._clients.get((namespace, id))
        attempt = None if client is None else client.attempts.get(key)
        if client is not None and attempt is not None and attempt[0] == attempt_id:
            del client.attempts[key]
            client.give_back(key, attempt)

    def _on_goodbye_elsewhere(self, namespace: str, id: str) -> None:
        client = self._clients.get((namespace, id))
        if client is not None:
            self._remove(client)

    def producer_stream(self, topic: str) -> Stream | None:
        """Return the stream of a random producer of a topic; None if there is none that reads."""
        streams = [
            client.streams[-1]
            for client in self._clients.values()
            if client.streams and not client.streams[-1].full() and topic in client.published_topics()
        ]
        return random.choice(streams) if streams else None

    def close(self) -> None:
        """End all streams, since the front stops."""
        self._timer.cancel()
        for client in self._clients.values():
            for stream in client.streams:
                end_stream(stream)

    def _sweep(self) -> None:
        now_s = self._loop.time()
        renew = now_s - self._renewed_s > RENEW_S
        self._renewed_s = now_s if renew else self._renewed_s
        for client in list(self._clients.values()):
            if not client.is_present(now_s) and not self._is_elsewhere(client, now_s):
                self._remove(client)
            elif renew:
                client.renew_leases()
        self._timer = self._loop.call_later(SWEEP_S, self._sweep)

    def _is_elsewhere(self, client: ConnectedClient, now_s: float) -> bool:
        """Return whether another process, which then answers for it, has a client that has gone from here."""
        self._withdraw(client)
        if not self._colleagues.has_client(client.namespace, client.id):
            return False
        client.last_call_s = now_s  # it may come back here if it leaves the other process without a goodbye
        return True


def _said_timeout_s(client: ConnectedClient) -> float:
    return 0.0 if client.settings is None else float(client.settings.request_timeout.ToMilliseconds()) / 1000
