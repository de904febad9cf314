"""A PUBLISH as a row to schedule, and a delivery as a PUBLISH.

User properties are the message's properties; those that begin with ``tarry.`` are its options and due time, from the
table :data:`tarry.message.options.OPTIONS`. MQTT's own properties are properties, too (:data:`_STORED`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import pyarrow as pa

from tarry.api.row_schemas import DELIVERY
from tarry.base.errors import InvalidMessageError
from tarry.fronts.mqtt.packets import V5, PublishPacket
from tarry.fronts.mqtt.topics import target_of
from tarry.fronts.mqtt.wire import NO_PROPERTIES, USER, Properties
from tarry.message.options import BY_NAME, OPTIONS, STORED_AS, OptionKind
from tarry.message.receipt import id_of
from tarry.message.rows import PLACES, Row, plain_row, row_of, with_cells
from tarry.message.topics import RESERVED
from tarry.message.values import whole_number

QOS = "mqtt.qos"
"""Property of a message that was published with QoS 0: it is delivered with no more."""
_STORED = {
    "content_type": "content-type",
    "response_topic": "mqtt.response-topic",
    "correlation_data": "mqtt.correlation-data",
    "payload_format": "mqtt.payload-format",
}
_FROM_STORED = {stored: name for name, stored in _STORED.items()}
_TIMES = ("delay", "delay_ms", "due_ms")
_SAID = (*_TIMES, *(name for name, option in BY_NAME.items() if option.kind is not OptionKind.TEXTS))
_WHOLE = {"delay_ms", "due_ms", *(option.name for option in OPTIONS if option.kind is OptionKind.WHOLE)}
_SHOWN = tuple(o for o in OPTIONS if o.column in DELIVERY.names and o.kind is not OptionKind.TEXTS)
_IN_3 = ["body", "properties", "attempt", "lease", "offset"]
"""Columns of a delivery of which clients of 3.1.1 learn."""
_WHOLE_CHARS = 18
"""Characters of a whole number: all of them fit into 64 bits."""


class Delivered(NamedTuple):
    """A message for a client, with its lease."""

    message: PublishPacket
    lease: int
    offset: int


def row_of_publish(message: PublishPacket) -> Row:
    """Return a message as a row.

    Raises:
        MqttError: its topic is not allowed. InvalidArgumentError: something that it says is not.
    """
    target = target_of(message.topic)
    of_qos = {} if message.qos else {QOS: "0"}
    if not message.properties:
        row = plain_row(target.topic, message.body, target.delay_s, None)
        return with_cells(row, {"properties": list(of_qos.items())}) if of_qos else row
    said: dict[str, Any] = {} if target.delay_s is None else {"delay": target.delay_s}
    properties: dict[str, str] = of_qos
    for name, value in message.properties.get(USER, ()):
        if not name.startswith(RESERVED):
            properties[name] = value
            continue
        option = name.removeprefix(RESERVED)
        if option not in _SAID or option in said:
            allowed = ", ".join(RESERVED + each for each in _SAID)
            raise InvalidMessageError(f"user property {name!r:.60} is unknown, or given twice; allowed: {allowed}")
        said[option] = whole_number(f"user property {name}", value, _WHOLE_CHARS) if option in _WHOLE else value
    for name, stored in _STORED.items():
        if (value := message.properties.get(name)) is not None:
            properties[stored] = base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
    if "message_expiry_s" in message.properties:
        said.setdefault("ttl_ms", max(1, message.properties["message_expiry_s"] * 1000))
    return row_of({"topic": target.topic, "body": message.body, **said, "properties": properties or None})


def later(row: Row, delay_ms: int) -> Row:
    """Return a row with a later due time, and with as much time from then on."""
    cells: list[Any] = [*row]
    for name in ("due_ms", "delay_ms", "ttl_ms"):
        if PLACES[name] < len(cells) and cells[PLACES[name]] is not None:
            cells[PLACES[name]] += delay_ms
    return cast(Row, tuple(cells))


def delivered(
    batch: pa.RecordBatch, topic: str, qos: int, version: int, now_ms: int, more: Properties
) -> Iterator[Delivered]:
    """Yield the messages of a delivery, without packet identifiers.

    ``batch`` has the columns of :data:`tarry.api.row_schemas.DELIVERY`.

    Args:
        topic, qos: the subscription's, to a client of ``version``.
        more: properties that each has for this client.
    """
    for row in (batch if version == V5 else batch.select(_IN_3)).to_pylist():
        properties: list[tuple[str, str]] = row["properties"] or []
        level = 0 if (QOS, "0") in properties else qos
        shown = {**more, **_properties(row, properties, now_ms)} if version == V5 else NO_PROPERTIES
        again = bool(level) and row["attempt"] > 1
        yield Delivered(
            PublishPacket(topic, row["body"], level, properties=shown, again=again), row["lease"], row["offset"]
        )


def _properties(row: dict[str, Any], properties: list[tuple[str, str]], now_ms: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    user: list[tuple[str, str]] = [
        (f"{RESERVED}due_ms", str(row["due_ms"])),
        (f"{RESERVED}attempt", str(row["attempt"])),
    ]
    row["id"] = row["id"] or id_of(row["seq"])
    user += [(RESERVED + o.name, str(value)) for o in _SHOWN if (value := row[o.column]) is not None]
    for name, value in properties:
        if (own := _FROM_STORED.get(name)) is not None:
            found |= _own(own, value)
        elif name != QOS:
            option = STORED_AS.get(name)
            user.append((name if option is None else RESERVED + option.name, value))
    if row["expire_ms"] is not None:
        found["message_expiry_s"] = max(0, min(row["expire_ms"] - now_ms, 1000 * ((1 << 32) - 1))) // 1000
    return {**found, USER: user}


def _own(name: str, text: str) -> dict[str, Any]:
    """Return a property of MQTT's own from its text; nothing if the text is no such property."""
    if name == "payload_format":
        return {name: int(text)} if text in ("0", "1") else {}
    if name != "correlation_data":
        return {name: text}
    try:
        return {name: base64.b64decode(text, validate=True)}
    except ValueError:
        return {}
