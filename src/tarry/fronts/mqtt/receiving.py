"""Delivery to one client: its subscriptions' messages, as many as it may have and reads.

A message of QoS 1 is leased until its PUBACK. Leases are renewed while the client acknowledges something now and then:
once it has not for as long as a lease, what it has comes again, with DUP set. Nothing is sent ahead of the receive
maximum, and nothing while what was sent is not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tarry.api.consuming import Subscription
from tarry.base.errors import TarryError
from tarry.fronts.kit.desk import Desk
from tarry.fronts.kit.last_look import holds_back
from tarry.fronts.kit.receiving import Received, ReceiveQueue, Waiter, lease_ms_of
from tarry.fronts.kit.unread import Room
from tarry.fronts.mqtt import packets
from tarry.fronts.mqtt.messages import delivered
from tarry.fronts.mqtt.packets import AckPacket
from tarry.fronts.mqtt.settling import HeldMessage, Settling
from tarry.fronts.mqtt.wire import Properties

HELD_MS_MAX = 3 * 3_600_000
"""Longest time for which leases are renewed: a handler that never returns must not keep them."""
ROWS_MAX = 64
"""Messages that are leased for one write."""
PACKET_IDS = 65_535


class PacketWriter(Protocol):
    """The connection, as far as messages are written to it."""

    @property
    def is_writable(self) -> bool: ...
    @property
    def room(self) -> Room: ...
    def write(self, data: bytes) -> None: ...


@dataclass(slots=True, eq=False)
class MqttConsumer:
    """A subscription of the client."""

    topic: str
    """As the client names it."""
    queue: ReceiveQueue
    subscription: Subscription
    qos: int
    properties: Properties
    waiter: Waiter | None = None

    def stop_waiting(self) -> None:
        """Take nothing until it waits again."""
        if self.waiter is not None:
            self.queue.remove(self.waiter)
            self.waiter = None


class MqttReceiver:
    """On the event loop's thread. ``on_ended`` is called when a group was deleted by others."""

    def __init__(
        self,
        desk: Desk,
        settling: Settling,
        outgoing: PacketWriter,
        on_ended: Callable[[], None],
        *,
        version: int,
        inflight_max: int,
        packet_bytes_max: int,
    ) -> None:
        self._desk = desk
        self._settling = settling
        self._outgoing = outgoing
        self._on_ended = on_ended
        self._version = version
        self._inflight_max = inflight_max
        self._packet_bytes_max = packet_bytes_max
        self._consumers: dict[str, MqttConsumer] = {}
        self._held: dict[int, HeldMessage] = {}
        """Messages without a PUBACK, by packet identifier."""
        self._last_id = 0
        self._progress_s = 0.0
        """Time of the last sign that the client works."""
        self._planned = self._closed = False

    def add(self, filter: str, topic: str, queue: ReceiveQueue, qos: int, properties: Properties) -> None:
        """Begin to deliver, or go on with other options."""
        known = self._consumers.get(filter)
        if known is not None and known.queue is queue:
            known.qos, known.properties = qos, properties
            return
        self.remove(filter)
        if self._closed:
            return
        group = queue.group
        lease_ms = lease_ms_of(group, self._desk.broker)
        prefetch, account = max(self._inflight_max, ROWS_MAX), self._desk.principal.account
        subscription = group.subscribe(prefetch=prefetch, lease_ms=lease_ms, account=account)
        self._consumers[filter] = MqttConsumer(topic, queue, subscription, qos, properties)
        self.plan()

    def remove(self, filter: str) -> None:
        """End a subscription; the messages that the client has of it come to others, or again."""
        consumer = self._consumers.pop(filter, None)
        if consumer is not None:
            consumer.stop_waiting()
            self._settling.flush()
            consumer.subscription.close()

    def close(self) -> None:
        """End all subscriptions."""
        self._closed = True
        for filter in list(self._consumers):
            self.remove(filter)

    def plan(self) -> None:
        """Have consumers wait for messages from the end of this turn on, as far as there is room."""
        if not self._planned:
            self._planned = True
            self._desk.loop.call_soon(self._wait)

    def on_ack(self, ack: AckPacket) -> None:
        """Settle a message; with an error it is given back."""
        held = self._held.pop(ack.packet_id, None)
        if held is None:
            return  # of another connection, or acknowledged before
        self._progress_s = self._desk.loop.time()
        if ack.reason < 0x80:
            self._settling.acknowledge(held)
        else:
            self._settling.fail(held, ack.text or f"MQTT reason code 0x{ack.reason:02X}")
        self.plan()

    def renew(self) -> None:
        """Renew the leases of a client that works. Called each second."""
        now_s = self._desk.loop.time()
        for consumer in self._consumers.values():
            lease_ms = consumer.subscription.lease_ms
            if consumer.subscription.held and (now_s - self._progress_s) * 1000 < lease_ms:
                consumer.subscription.renew(HELD_MS_MAX)
        self.plan()

    def _wait(self) -> None:
        self._planned = False
        for consumer in list(self._consumers.values()):
            if (rows := self._fit(consumer)) and consumer.waiter is None:
                consumer.waiter = Waiter(
                    consumer.subscription,
                    rows,
                    partial(self._on_received, consumer),
                    room=self._outgoing.room,
                    is_patient=True,
                )
                consumer.queue.add(consumer.waiter)

    def _fit(self, consumer: MqttConsumer) -> int:
        """Return how many messages a consumer may have now; one that waits waits for so many."""
        rows = min(ROWS_MAX, self._inflight_max - len(self._held)) if consumer.qos else ROWS_MAX
        rows = rows if self._outgoing.is_writable else 0
        if not rows:
            consumer.stop_waiting()
        elif consumer.waiter is not None:
            consumer.waiter.rows_max = rows
        return rows

    def _on_received(self, consumer: MqttConsumer, received: Received) -> None:
        consumer.waiter = None
        if received is None:
            if consumer.queue.group.deleted and not self._closed:
                self._on_ended()
            return
        if isinstance(received, TarryError):
            return  # it is tried again at the next renewal
        if holds_back(consumer.queue.group, received):
            self._outgoing.room.release()
            self.plan()
            return
        if not self._held:
            self._progress_s = self._desk.loop.time()
        now_ms = self._desk.broker.clock.now_ms()
        for each in delivered(received, consumer.topic, consumer.qos, self._version, now_ms, consumer.properties):
            held = HeldMessage(consumer.subscription, each.lease, each.offset)
            packet_id = self._next_id() if each.message.qos else 0
            data = packets.publish(self._version, each.message._replace(packet_id=packet_id))
            if len(data) > self._packet_bytes_max:
                self._settling.reject(held)
                continue
            self._outgoing.write(data)
            if packet_id:
                self._held[packet_id] = held
            else:
                self._settling.acknowledge(held)
        self._outgoing.room.release()  # the connection counts what it has not sent
        # Others that wait may have less room now, and must know it before their messages come.
        for other in self._consumers.values():
            self._fit(other)
        self.plan()

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % PACKET_IDS + 1
            if self._last_id not in self._held:
                return self._last_id
