"""A message of RabbitMQ as one of Tarry, and back.

When it is due stands in its headers: ``x-delay``, in milliseconds, as of the plugin rabbitmq-delayed-message-exchange
(its README, "Publishing messages"), or ``x-tarry-due``, a time. The rest of it travels as a property of the message.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import aio_pika
from aio_pika.abc import AbstractIncomingMessage, DeliveryMode

from tarry.base.errors import InvalidArgumentError
from tarry.client.delivery import Delivery

DELAY, DUE, KEY, CANCEL = "x-delay", "x-tarry-due", "x-tarry-key", "x-tarry-cancel"
EXCHANGE, ROUTING_KEY = "x-tarry-exchange", "x-tarry-routing-key"
USER = "x-tarry-user-id"
"""The header that has the ``user_id`` of who sent it: RabbitMQ takes that field of its own user alone."""
OWN_HEADERS = frozenset({DUE, KEY, CANCEL, EXCHANGE, ROUTING_KEY})
"""Headers that are for the bridge alone."""
AMQP = "rabbitmq"
"""The property that has the rest of a message, as JSON."""
TOPIC = "rabbitmq.delayed"
_FIELDS = (
    *("content_type", "content_encoding", "priority", "correlation_id", "reply_to", "expiration", "message_id"),
    *("timestamp", "type", "app_id"),
)


@dataclass(frozen=True, slots=True)
class AmqpTarget:
    """Place of a message when it is due. ``exchange`` "": the queue that ``routing_key`` names."""

    exchange: str
    routing_key: str


def row_of(incoming: AbstractIncomingMessage, targets: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of :meth:`tarry.Client.schedule` for a message.

    ``targets``: by exchange that it was published to, the one that it goes to when it is due.

    Raises:
        InvalidArgumentError: a header of the bridge's has a value that it cannot have.
    """
    headers = dict(incoming.headers)
    due_ms, delay_ms = _due_ms(headers.get(DUE)), _delay_ms(headers.get(DELAY))
    if delay_ms:
        headers[DELAY] = -delay_ms  # as the plugin leaves it, so that nobody delays it once more
    target = _target_of(incoming, headers, targets)
    rest = {
        "target": [target.exchange, target.routing_key],
        "headers": {name: _plain(value) for name, value in headers.items() if name not in OWN_HEADERS},
        "persistent": incoming.delivery_mode == DeliveryMode.PERSISTENT,
        **{name: _plain(value) for name in _FIELDS if (value := getattr(incoming, name)) is not None},
    }
    if incoming.user_id is not None:
        rest["headers"][USER] = incoming.user_id
    key = _text(KEY, headers.get(KEY))
    row: dict[str, Any] = {
        "topic": TOPIC,
        "body": incoming.body,
        "id": incoming.message_id or None,
        "key": key or incoming.message_id or None,
        "order_key": target.routing_key or None,
        "properties": {AMQP: json.dumps(rest)},
    }
    if row["key"] is not None:
        row["on_key"] = "replace" if key else "keep"
    if due_ms is not None:
        return {**row, "due": due_ms}
    return {**row, "delay": timedelta(milliseconds=delay_ms or 0)}


def message_of(delivery: Delivery) -> tuple[aio_pika.Message, AmqpTarget]:
    """Return the message that goes back, and where.

    Raises:
        ValueError: it is none that the bridge has scheduled.
    """
    rest = json.loads(delivery.properties.get(AMQP, "null"))
    if not isinstance(rest, dict):
        raise ValueError(  # noqa: TRY004  it is about a message, not about an argument
            f"message {delivery.id} has no property {AMQP!r}: the bridge has not scheduled it"
        )
    fields = {name: _unplain(rest[name]) for name in _FIELDS if name in rest}
    mode = DeliveryMode.PERSISTENT if rest["persistent"] else DeliveryMode.NOT_PERSISTENT
    headers = {name: _unplain(value) for name, value in rest["headers"].items()}
    message = aio_pika.Message(delivery.body, headers=headers, delivery_mode=mode, **fields)
    return message, AmqpTarget(*rest["target"])


def cancelled_key(incoming: AbstractIncomingMessage) -> str | None:
    """Return the key of the message that this one cancels; None: it is a message itself.

    Raises:
        InvalidArgumentError: it says neither a message id nor a key.
    """
    if not incoming.headers.get(CANCEL):
        return None
    key = _text(KEY, incoming.headers.get(KEY)) or incoming.message_id
    if not key:
        raise InvalidArgumentError(f"a message with {CANCEL} has no message id; allowed: that of what it cancels")
    return key


def _target_of(incoming: AbstractIncomingMessage, headers: Mapping[str, Any], targets: Mapping[str, str]) -> AmqpTarget:
    published_to = incoming.exchange or ""
    exchange = _text(EXCHANGE, headers.get(EXCHANGE))
    routing_key = _text(ROUTING_KEY, headers.get(ROUTING_KEY))
    if exchange is None:
        exchange = targets.get(published_to, "")
    return AmqpTarget(exchange, incoming.routing_key or "" if routing_key is None else routing_key)


def _text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise InvalidArgumentError(f"header {name} is {value!r}; allowed: a text")


def _delay_ms(value: Any) -> int | None:
    if value is None:
        return None
    try:
        return max(0, int(value))
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"header {DELAY} is {value!r}; allowed: milliseconds") from None


def _due_ms(value: Any) -> int | None:
    if value is None:
        return None
    try:
        if isinstance(value, datetime):  # AMQP's own timestamps
            return round(value.replace(tzinfo=value.tzinfo or UTC).timestamp() * 1000)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        given = datetime.fromisoformat(value)
        return round(given.replace(tzinfo=given.tzinfo or UTC).timestamp() * 1000)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"header {DUE} is {value!r}; allowed: milliseconds since 1970, a timestamp, a time in ISO 8601"
        ) from None


def _plain(value: Any) -> Any:
    """Return a field of AMQP (0-9-1, section 4.2.1) as JSON; :func:`_unplain` is its inverse."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray):
        return {"!bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, datetime):
        return {"!time": value.timestamp()}
    if isinstance(value, Decimal):
        return {"!decimal": str(value)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {"!table": [[name, _plain(each)] for name, each in value.items()]}
    raise InvalidArgumentError(f"a header has a value of type {type(value).__name__}; allowed: what AMQP 0-9-1 has")


def _unplain(value: Any) -> Any:
    if isinstance(value, list):
        return [_unplain(each) for each in value]
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind == "!bytes":
        return bytearray(base64.b64decode(content))  # of bytes, pamqp would make a text
    if kind == "!time":
        return datetime.fromtimestamp(content, UTC)
    if kind == "!decimal":
        return Decimal(content)
    return {name: _unplain(each) for name, each in content}
