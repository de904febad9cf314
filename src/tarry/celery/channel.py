"""A channel of kombu: queues are declared, published to, consumed and settled by it.

Each process knows the bindings that it declared itself, as with kombu's other transports without exchanges of their
own. Only what goes to exchanges with temporary queues (remote control, events) is routed by the broker: each such queue
gets all of its exchange, and leaves out what it is not bound to.
"""

from __future__ import annotations

import base64
import logging
from functools import partial
from typing import Any, Protocol

from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments

from tarry.base.delay import Delay
from tarry.base.errors import NotFoundError
from tarry.celery.envelope import BASE64, control_of, message_of, row_of
from tarry.celery.inbox import Inbox, Received, Wakeup, bury, give_back, refuse, settle
from tarry.celery.places import (
    UNDECLARED,
    DeclaredQueue,
    QueuePlace,
    exchange_topic,
    is_temporary,
    places_of,
    priority_max_of,
    priority_topic,
)
from tarry.celery.revoking import on_command
from tarry.client.delivery import Delivery
from tarry.client.sync import Client

log = logging.getLogger(__name__)

TEMPORARY_TTL = "60s"
"""For how long remote control and events are of use."""
EVENT_EXCHANGE = "celeryev"
"""A topic exchange whose queues are other processes'."""
UTF8 = "utf-8"


class ChannelConnection(Protocol):
    """The connection that a channel belongs to."""

    tarry: Client
    wakeup: Wakeup
    """Noted when there is something to deliver."""
    group: str
    """The group by which task queues are consumed."""
    lease: Delay | None
    queues: dict[str, DeclaredQueue]
    """The queues that were declared by it."""

    def _deliver(self, message: dict[str, Any], queue: str) -> None: ...


class Base64:
    """Bodies in Base64, of bytes that are no text."""

    def encode(self, body: bytes) -> str:
        return base64.b64encode(body).decode()

    def decode(self, body: str) -> bytes:
        return base64.b64decode(body)


class QoS(virtual.QoS):  # type: ignore[misc]
    """Messages of a channel that are not settled, and the deliveries behind them."""

    channel: TaskChannel

    def __init__(self, channel: TaskChannel, prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)
        self.deliveries: dict[str, Delivery] = {}
        """By delivery tag."""

    def ack(self, delivery_tag: str) -> None:
        self._settle(delivery_tag, settle)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a message back for another try; without ``requeue`` it is a dead letter."""
        self._settle(delivery_tag, partial(refuse if requeue else bury, reason="rejected"))

    def refuse(self, delivery_tag: str, reason: str) -> None:
        """Give a message back for another try, if it is not settled."""
        self._settle(delivery_tag, partial(refuse, reason=reason))

    def restore_unacked(self) -> list[Any]:
        """Give everything back that is not settled: the channel ends. No try is counted."""
        for delivery_tag in list(self.deliveries):
            self._settle(delivery_tag, give_back)
        self._flush()
        self._delivered.clear()
        return []

    def _settle(self, delivery_tag: str, how: Any) -> None:
        delivery = self.deliveries.pop(delivery_tag, None)
        if delivery is not None:  # of a queue that is acknowledged as it comes, there is none
            how(delivery)
        self._quick_ack(delivery_tag)
        self.channel.on_room()


class TaskChannel(virtual.Channel):  # type: ignore[misc]
    """See the module."""

    QoS = QoS
    supports_fanout = True
    codecs = {BASE64: Base64()}
    body_encoding = None
    do_restore = True
    connection: ChannelConnection

    def __init__(self, connection: ChannelConnection, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._inbox = Inbox(connection.tarry, connection.wakeup, self._room)
        self._queues = connection.queues
        self._no_ack: set[str] = set()

    # -- declaring -----------------------------------------------------------------------------------------------------

    def _new_queue(self, queue: str, **options: Any) -> None:
        if queue in self._queues:
            return
        declared = DeclaredQueue(is_temporary(options), priority_max_of(options))
        if not declared.is_temporary:
            # Else what is due while no worker was ever there would be kept for the retention alone.
            for place in places_of(queue, self.connection.group, declared.priority_max):
                self.connection.tarry.set_group(place.topic, place.group)
        self._queues[queue] = declared

    def prepare_queue_arguments(self, arguments: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Return what a queue is declared with, in RabbitMQ's names, as of ``Queue(max_priority=10)``."""
        prepared: dict[str, Any] = to_rabbitmq_queue_arguments(arguments, **kwargs)
        return prepared

    def _queue_bind(self, exchange: str, routing_key: str, pattern: Any, queue: str) -> None:
        if self._is_temporary(queue):
            self._queues[queue] = self._queues[queue]._replace(exchange=exchange)
            self.connection.tarry.set_group(exchange_topic(exchange), queue, start="latest")

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return queue in self._queues or self.connection.tarry.has_topic(self._places(queue)[-1].topic)

    def _delete(self, queue: str, *_: Any, **__: Any) -> None:
        places = self._places(queue)
        self._queues.pop(queue, None)
        for place in places:
            try:
                self.connection.tarry.delete_group(place.topic, place.group)
            except NotFoundError:
                continue

    def _is_temporary(self, queue: str) -> bool:
        return self._queues.get(queue, UNDECLARED).is_temporary

    def _places(self, queue: str) -> list[QueuePlace]:
        """Return the places of a queue; none of a temporary one that is not bound yet."""
        declared = self._queues.get(queue, UNDECLARED)
        if declared.is_temporary:
            return [] if declared.exchange is None else [QueuePlace(exchange_topic(declared.exchange), queue)]
        return list(places_of(queue, self.connection.group, declared.priority_max))

    # -- publishing ----------------------------------------------------------------------------------------------------

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any) -> Any:
        result = super().basic_publish(message, exchange, routing_key, **kwargs)
        if exchange and self._has_temporary_queues(exchange):
            self._put_fanout(exchange, message, routing_key)
        return result

    def _has_temporary_queues(self, exchange: str) -> bool:
        declared = self.state.exchanges.get(exchange, {})
        if declared.get("type") == "fanout":
            return False  # kombu itself calls _put_fanout
        return exchange == EVENT_EXCHANGE or not declared.get("durable", True)

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        if self._is_temporary(queue):
            return  # it has what is in its exchange's topic
        row = row_of(message)
        if row.keys().isdisjoint(("due", "delay", "repeat")):
            row["delay"] = 0
        priority_max = self._queues.get(queue, UNDECLARED).priority_max
        topic = priority_topic(queue, min(self._get_message_priority(message), priority_max))
        self.connection.tarry.schedule(topic, **row)

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str = "", **_: Any) -> None:
        topic = exchange_topic(exchange)
        self.connection.tarry.schedule(topic, row_of(message)["body"], delay=0, ttl=TEMPORARY_TTL)
        if (command := control_of(message)) is not None:
            on_command(self.connection.tarry, self.connection.group, command)

    # -- consuming -----------------------------------------------------------------------------------------------------

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> None:
        super().basic_consume(queue, no_ack, *args, **kwargs)
        if no_ack:
            self._no_ack.add(queue)
        self._inbox.open(queue, self._places(queue), self.connection.lease)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None:
            self._no_ack.discard(queue)
            self._inbox.close(queue)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        for place in self._places(queue):
            for delivery in self.connection.tarry.receive(place.topic, group=place.group, lease=self.connection.lease):
                message = self.Message(message_of(delivery), channel=self)
                if no_ack:
                    settle(delivery)
                else:
                    self.qos.deliveries[message.delivery_tag] = delivery
                    self.qos.append(message, message.delivery_tag)
                return message
        return None

    def deliver_next(self) -> bool:
        """Deliver a message that waits; return whether there was one, and room for it.

        Raises:
            TarryError: a queue cannot be consumed any more.
        """
        received = self._inbox.take()
        if received is not None:
            self._deliver(received)
        return received is not None

    def _deliver(self, received: Received) -> None:
        queue, delivery = received
        try:
            message = message_of(delivery)
        except ValueError as error:
            log.error("queue %s: message %s cannot be read: %s", queue, delivery.id, error)
            bury(delivery, str(error))
            return
        if self._is_temporary(queue) and not self._is_bound(queue, message):
            settle(delivery)
            return
        if queue in self._no_ack:
            settle(delivery)
        else:
            self.qos.deliveries[message["properties"]["delivery_tag"]] = delivery
        try:
            self.connection._deliver(message, queue)  # noqa: SLF001  kombu's own way
        except Exception as error:
            # It may be what this worker ends at. So the try counts, and it does not end one worker after the other.
            self.qos.refuse(message["properties"]["delivery_tag"], f"the worker failed at it: {error!r}")
            raise

    def _is_bound(self, queue: str, message: dict[str, Any]) -> bool:
        info = message["properties"].get("delivery_info", {})
        exchange = info.get("exchange")
        if self.state.exchanges.get(exchange, {}).get("type") == "fanout":
            return True
        return queue in self._lookup(exchange, info.get("routing_key"))

    def _room(self) -> int | None:
        """Return how many more messages the worker takes; None: any number."""
        room: int | None = self.qos.can_consume_max_estimate()
        return room

    def on_room(self) -> None:
        """Note that the worker may have room for more."""
        self._inbox.on_room()

    def basic_qos(self, *args: Any, **kwargs: Any) -> None:
        super().basic_qos(*args, **kwargs)
        self.on_room()

    # -- looking, and the end ------------------------------------------------------------------------------------------

    def _size(self, queue: str) -> int:
        sizes = 0
        for place in self._places(queue):
            try:
                info = self.connection.tarry.group_info(place.topic, place.group)
            except NotFoundError:
                continue
            sizes += info.ready + info.waiting + info.blocked
        return sizes

    def _purge(self, queue: str) -> int:
        """Drop what is ready; what is not due yet stays."""
        size = self._size(queue)
        for place in self._places(queue):
            self.connection.tarry.seek(place.topic, place.group, "latest")
        return size

    def close(self) -> None:
        """Give back what is not settled, and end."""
        is_open = not self.closed
        super().close()
        if is_open:
            self._inbox.end()
