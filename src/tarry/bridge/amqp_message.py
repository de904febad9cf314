"""A message of RabbitMQ as one of Tarry, and back.

When it is due stands in its headers: ``x-delay``, in milliseconds, as of the plugin rabbitmq-delayed-message-exchange
(its README, "Publishing messages"), or ``x-tarry-due``, a time. Its properties travel as they came, to the byte.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from tarry.base.errors import InvalidArgumentError
from tarry.bridge.amqp_fields import AmqpProperties, MalformedError
from tarry.client.delivery import Delivery

DELAY, DUE, KEY, CANCEL = "x-delay", "x-tarry-due", "x-tarry-key", "x-tarry-cancel"
EXCHANGE, ROUTING_KEY = "x-tarry-exchange", "x-tarry-routing-key"
USER = "x-tarry-user-id"
"""The header that has the ``user_id`` of who sent it: RabbitMQ takes that field of its own user alone."""
OWN_HEADERS = (DUE, KEY, CANCEL, EXCHANGE, ROUTING_KEY)
"""Headers that are for the bridge alone."""
DELIVERY_COUNT = b"x-delivery-count"
"""Header by which a quorum queue counts how often it has given a message; not the message's own."""
AMQP = "rabbitmq"
"""The property that has where a message goes, and its properties, as JSON."""
TOPIC = "rabbitmq.delayed"


@dataclass(frozen=True, slots=True)
class AmqpTarget:
    """Place of a message when it is due. ``exchange`` "": the queue that ``routing_key`` names."""

    exchange: str
    routing_key: str


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message as the queue gave it.

    ``raw``: its properties, encoded; ``tag``: by which it is acknowledged.
    """

    raw: bytes
    body: bytes
    exchange: str
    routing_key: str
    tag: int = 0

    def properties(self) -> AmqpProperties:
        """Return its properties, as they were published.

        Raises:
            InvalidArgumentError: they are none of AMQP 0-9-1, or its exchange or routing key is no text.
        """
        for name, text in (("exchange", self.exchange), ("routing key", self.routing_key)):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InvalidArgumentError(f"its {name} is {text!a:.80}; allowed: a text in UTF-8") from error
        try:
            properties = AmqpProperties.decode(self.raw)
        except MalformedError as error:
            raise InvalidArgumentError(f"its properties cannot be read: {error}") from error
        properties.headers.pop(DELIVERY_COUNT, None)
        return properties

    def fingerprint(self, properties: AmqpProperties) -> str:
        """Return a name of what it says: the same for a message that is published, or given, twice.

        ``properties``: those of :meth:`properties`, unchanged.
        """
        parts = (self.exchange.encode(), self.routing_key.encode(), properties.encode(), self.body)
        sizes = b"".join(len(part).to_bytes(8, "big") for part in parts)
        return hashlib.blake2b(b"".join((sizes, *parts)), digest_size=16).hexdigest()


def row_of(incoming: Incoming, properties: AmqpProperties, targets: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of :meth:`tarry.Client.schedule` for a message, all but its ``id``.

    ``properties`` are changed to those that go back.

    ``targets``: by exchange that it was published to, the one that it goes to when it is due.

    Raises:
        InvalidArgumentError: a header of the bridge's has a value that it cannot have.
    """
    due_ms, delay = _due_ms(properties.header(DUE)), _delay(properties.header(DELAY))
    target = _target_of(incoming, properties, targets)
    key, message_id = _text(KEY, properties.header(KEY)), properties.text("message_id")
    if delay:
        properties.negate(DELAY)  # as the plugin leaves it, so that nobody delays it once more
    if (user := properties.text("user_id")) is not None:
        properties.set_header(USER, user)
        del properties.fields["user_id"]
    for name in OWN_HEADERS:
        properties.headers.pop(name.encode(), None)
    rest = {
        "target": [target.exchange, target.routing_key],
        "properties": base64.b64encode(properties.encode()).decode(),
    }
    row: dict[str, Any] = {
        "topic": TOPIC,
        "body": incoming.body,
        "key": key or message_id or None,
        "order_key": target.routing_key or None,
        "properties": {AMQP: json.dumps(rest)},
    }
    if row["key"] is not None:
        row["on_key"] = "replace" if key else "keep"
    if due_ms is not None:
        return {**row, "due": due_ms}
    return {**row, "delay": delay}


def message_of(delivery: Delivery) -> tuple[bytes, AmqpTarget]:
    """Return the properties of the message that goes back, encoded, and where.

    Raises:
        ValueError: it is none that the bridge has scheduled.
    """
    try:
        rest = json.loads(delivery.properties[AMQP])
        exchange, routing_key = rest["target"]
        return base64.b64decode(rest["properties"], validate=True), AmqpTarget(exchange, routing_key)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"message {delivery.id} has no property {AMQP!r} as it should be: the bridge has not scheduled it"
        ) from error


def amqp_id_of(delivery: Delivery) -> str:
    """Return the message id by which programs of RabbitMQ know a message; without one, Tarry's."""
    try:
        raw, _ = message_of(delivery)
        return AmqpProperties.decode(raw).text("message_id") or delivery.id
    except ValueError:
        return delivery.id


def cancelled_key(properties: AmqpProperties) -> str | None:
    """Return the key of the message that this one cancels; None: it is a message itself.

    Raises:
        InvalidArgumentError: it says neither a message id nor a key, or neither true nor false.
    """
    value = properties.header(CANCEL)
    if value in (None, False, "false"):
        return None
    if value not in (True, "true"):  # a text that is not empty is no yes
        raise InvalidArgumentError(f"header {CANCEL} is {value!r:.80}; allowed: true or false")
    key = _text(KEY, properties.header(KEY)) or properties.text("message_id")
    if not key:
        raise InvalidArgumentError(f"a message with {CANCEL} has no message id; allowed: that of what it cancels")
    return key


def _target_of(incoming: Incoming, properties: AmqpProperties, targets: Mapping[str, str]) -> AmqpTarget:
    exchange = _text(EXCHANGE, properties.header(EXCHANGE))
    routing_key = _text(ROUTING_KEY, properties.header(ROUTING_KEY))
    if exchange is None:
        exchange = targets.get(incoming.exchange, "")
    found = AmqpTarget(exchange, incoming.routing_key if routing_key is None else routing_key)
    for name, text in ((EXCHANGE, found.exchange), (ROUTING_KEY, found.routing_key)):
        if len(text.encode()) > 255:
            raise InvalidArgumentError(f"header {name} is {text!r:.80}…; allowed: up to 255 bytes")
    return found


def _text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise InvalidArgumentError(f"header {name} is {value!r:.80}; allowed: a text")


def _delay(value: Any) -> timedelta:
    """Return what ``x-delay`` says: a number, or a text that is one."""
    try:
        if not isinstance(value, bool | None):
            return timedelta(milliseconds=max(0, int(value)))
        if value is None:
            return timedelta(0)
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        pass
    raise InvalidArgumentError(f"header {DELAY} is {value!r:.80}; allowed: milliseconds, up to 40 years of them")


def _due_ms(value: Any) -> int | None:
    if value is None:
        return None
    try:
        if isinstance(value, datetime):  # AMQP's own timestamps
            return round(value.timestamp() * 1000)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float | Decimal | bool):
            raise TypeError
        given = datetime.fromisoformat(value)
        if given.tzinfo is None:  # it names no instant
            raise ValueError
        return round(given.timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError(
            f"header {DUE} is {value!r:.80}; allowed: milliseconds since 1970, a timestamp, a time in ISO 8601 with "
            "its zone, as in 2026-12-01T06:00:00Z"
        ) from None
