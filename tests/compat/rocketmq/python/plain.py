"""Messages without a delay, with Producer and SimpleConsumer: content, filters, leases, limits."""

from __future__ import annotations

import gzip
import random
import time
from collections.abc import Callable
from typing import Any

from rocketmq.grpc_protocol import FilterType

from rocketmq import FilterExpression

from .base import INVISIBLE_S, Context, Facts, check, drain, nothing, receive, refused, same

MIB = 1 << 20
TIMEOUT_S = 30.0
STALE_HANDLE = 40013
TOO_MANY_PROPERTIES = 43101


def normal(context: Context) -> Facts:
    """Ten messages come as they were sent, are acknowledged, and nothing is left."""
    with context.producer() as producer, context.simple() as consumer:
        sent = {}
        for index in range(10):
            message = context.message(
                f"normal {index}",
                tag=f"tag-{index % 3}",
                keys=(f"key-{index}", f"second-{index}"),
                properties={"index": str(index), "colour": "blue"},
            )
            sent[producer.send(message).message_id] = index
        same("message ids", len(sent), 10)
        for received in drain(consumer, 10, TIMEOUT_S):
            message = received.message
            check(message.message_id in sent, f"unknown message id {message.message_id}")
            index = sent.pop(message.message_id)
            same("topic", message.topic, context.topic)
            same("body", received.text, f"normal {index}")
            same("tag", message.tag, f"tag-{index % 3}")
            same("keys", set(message.keys), {f"key-{index}", f"second-{index}"})
            same("properties", dict(message.properties), {"index": str(index), "colour": "blue"})
            same("attempt", message.delivery_attempt, 1)
            same("corrupted", message.corrupted, False)
            age_ms = received.at_ms - message.born_timestamp
            check(-1000 <= age_ms <= 60_000, f"born {age_ms:.0f} ms ago")
        nothing(consumer)
    return {"messages": 10}


def tag_filter(context: Context) -> Facts:
    """Of four kinds of tags, two are wanted."""
    with context.producer() as producer, context.simple(FilterExpression("A || B")) as consumer:
        for index in range(5):
            for tag in ("A", "B", "C", None):
                producer.send(context.message(f"{tag} {index}", tag=tag))
        came = drain(consumer, 10, TIMEOUT_S)
        same("bodies", sorted(one.text for one in came), sorted(f"{tag} {i}" for tag in "AB" for i in range(5)))
        nothing(consumer)
    return {"sent": 20, "received": 10}


def sql_filter(context: Context) -> Facts:
    """A condition over properties."""
    cases = [("5", "x"), ("4", "x"), ("3", "x"), ("10", "y"), (None, "x"), ("10", None)]
    expression = FilterExpression("a > 3 AND b = 'x'", FilterType.SQL)
    with context.producer() as producer, context.simple(expression) as consumer:
        for a, b in cases:
            properties = {name: value for name, value in (("a", a), ("b", b)) if value is not None}
            producer.send(context.message(f"{a} {b}", properties=properties))
        came = drain(consumer, 2, TIMEOUT_S)
        same("bodies", sorted(one.text for one in came), ["4 x", "5 x"])
        nothing(consumer)
    return {"sent": len(cases), "received": 2}


def redelivery(context: Context) -> Facts:
    """What is not acknowledged comes again when its ten seconds are over, as attempt 2."""
    with context.producer() as producer, context.simple() as consumer:
        producer.send(context.message("redelivered"))
        first = receive(consumer, 1, TIMEOUT_S, invisible_s=10)[0]
        second = receive(consumer, 1, TIMEOUT_S)[0]
        waited_s = (second.at_ms - first.at_ms) / 1000
        same("message id", second.message.message_id, first.message.message_id)
        same("attempts", [first.message.delivery_attempt, second.message.delivery_attempt], [1, 2])
        # The lease began before the answer was here, so a little less than ten seconds are seen.
        check(9.8 <= waited_s <= 20, f"came again after {waited_s:.2f} s")
        side, code = refused("the acknowledgement of the first delivery", lambda: consumer.ack(first.message))
        same("refusal of the ended lease", (side, code), ("server", STALE_HANDLE))
        consumer.ack(second.message)
        nothing(consumer)
    return {"waited_s": round(waited_s, 3), "stale_code": code}


def invisible(context: Context) -> Facts:
    """A changed lease gives a new handle, holds as long as it says, and ends the old handle."""
    with context.producer() as producer, context.simple() as consumer:
        producer.send(context.message("invisible"))
        first = receive(consumer, 1, TIMEOUT_S)[0].message
        old, began = first.receipt_handle, time.monotonic()
        consumer.change_invisible_duration(first, 5)
        new = first.receipt_handle
        check(bool(new) and new != old, "the handle did not change")
        first.receipt_handle = old
        superseded = _ack_code(consumer, first)
        first.receipt_handle = new
        second = receive(consumer, 1, TIMEOUT_S)[0].message
        waited_s = time.monotonic() - began
        same("attempt", second.delivery_attempt, 2)
        check(5 <= waited_s <= 15, f"came again after {waited_s:.2f} s")
        ended = refused("the handle whose lease ended", lambda: consumer.ack(first))
        same("refusal of the ended lease", ended, ("server", STALE_HANDLE))
        consumer.change_invisible_duration(second, INVISIBLE_S)
        consumer.ack(second)
        nothing(consumer)
    # Last, for the original does not refuse it; it refuses the other one.
    same("refusal of the superseded handle", superseded, STALE_HANDLE)
    return {"waited_s": round(waited_s, 3), "stale_code": STALE_HANDLE}


def _ack_code(consumer: Any, message: Any) -> int | None:
    """The status code of a refused acknowledgement."""
    try:
        consumer.ack(message)
    except Exception as error:  # noqa: BLE001 - whatever the client raises is a refusal
        return getattr(error, "code", None)
    return None


def large(context: Context) -> Facts:
    """Almost 4 MiB come back equal; more than 4 MiB are refused."""
    body = random.Random(4).randbytes(4 * MIB - 4096)
    with context.producer() as producer, context.simple() as consumer:
        producer.send(context.message(body))
        received = drain(consumer, 1, TIMEOUT_S)[0]
        check(bytes(received.message.body) == body, "another body came back")
        side, code = refused("4 MiB + 1 byte", lambda: producer.send(context.message(bytes(4 * MIB + 1))))
        nothing(consumer)
    return {"bytes": len(body), "refused_by": side, "code": code}


def many_properties(context: Context) -> Facts:
    """128 properties are the limit."""
    properties = {f"name-{index}": f"value {index}" for index in range(128)}
    with context.producer() as producer, context.simple() as consumer:
        producer.send(context.message("128", properties=properties))
        same("properties", dict(drain(consumer, 1, TIMEOUT_S)[0].message.properties), properties)
        excess = context.message("129", properties={**properties, "one": "more"})
        side, code = refused("129 properties", lambda: producer.send(excess))
        same("refusal", (side, code), ("server", TOO_MANY_PROPERTIES))
        nothing(consumer)
    return {"refused_by": side, "code": code}


def compressible(context: Context) -> Facts:
    """Bodies that some clients compress by themselves, and one that is gzip already, come back equal."""
    text = ("It was the best of times, it was the worst of times. " * 1300).encode()
    bodies = [text, text[:5000], gzip.compress(text)]
    with context.producer() as producer, context.simple() as consumer:
        for index, body in enumerate(bodies):
            producer.send(context.message(body, properties={"index": str(index)}))
        for received in drain(consumer, len(bodies), TIMEOUT_S):
            index = int(received.message.properties["index"])
            check(bytes(received.message.body) == bodies[index], f"another body {index} came back")
            check(not received.message.corrupted, f"body {index} is said to be corrupted")
        nothing(consumer)
    return {"bytes": [len(body) for body in bodies], "compressed_by_client": False}


def unicode(context: Context) -> Facts:
    """Text beyond ASCII in body, tag, property and keys; and a key with a blank stays one key."""
    body, tag, properties = "Grüße 日本語 🚀", "märz-三月", {"größe": "übergroß 🦒", "leer zeichen": "a b"}
    with context.producer() as producer, context.simple() as consumer:
        producer.send(context.message(body, tag=tag, keys=("Schlüssel-鍵", "key with blanks"), properties=properties))
        received = drain(consumer, 1, TIMEOUT_S)[0]
        same("body", received.text, body)
        same("tag", received.message.tag, tag)
        same("properties", dict(received.message.properties), properties)
        # The original splits a key at its blanks.
        same("keys", set(received.message.keys), {"Schlüssel-鍵", "key with blanks"})
        nothing(consumer)
    return {"messages": 1}


def namespaces(context: Context) -> Facts:
    """One topic and group in two namespaces, and in none: three topics and three groups."""
    names = ["", "compat-a", "compat-b"]
    for name in names:
        with context.producer(namespace=name) as producer:
            for index in range(3):
                producer.send(context.message(f"{name} {index}"))
    for name in names:
        with context.simple(namespace=name) as consumer:
            came = drain(consumer, 3, TIMEOUT_S)
            same(f"bodies in namespace {name!r}", sorted(one.text for one in came), [f"{name} {i}" for i in range(3)])
            same("topics", {one.message.topic for one in came}, {context.topic})
            nothing(consumer, 1.0)
    return {"namespaces": len(names)}


SCENARIOS: dict[str, Callable[[Context], Facts]] = {
    "normal": normal,
    "tag-filter": tag_filter,
    "sql-filter": sql_filter,
    "redelivery": redelivery,
    "invisible": invisible,
    "large": large,
    "many-properties": many_properties,
    "gzip": compressible,
    "unicode": unicode,
    "namespaces": namespaces,
}
