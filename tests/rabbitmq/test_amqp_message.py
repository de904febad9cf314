"""A message of RabbitMQ as one of Tarry, and back: what it is comes back, to the byte."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic

from tarry.base.errors import InvalidArgumentError
from tarry.bridge.amqp_fields import AmqpProperties, MalformedError
from tarry.bridge.amqp_message import AMQP, AmqpTarget, Incoming, cancelled_key, message_of, row_of


def sized(kind: bytes) -> Any:
    return st.binary(max_size=9).map(lambda data: kind + struct.pack(">I", len(data)) + data)


SCALARS = st.one_of(
    *(st.binary(min_size=size, max_size=size).map(kind.__add__) for kind, size in (
        (b"t", 1), (b"b", 1), (b"B", 1), (b"s", 2), (b"u", 2), (b"I", 4), (b"i", 4), (b"l", 8), (b"L", 8), (b"f", 4),
        (b"d", 8), (b"D", 5), (b"T", 8), (b"V", 0),
    )),
    *(sized(kind) for kind in (b"S", b"x", b"A", b"F")),
)  # fmt: skip
"""Values of headers, encoded: of each kind, and any bytes in it."""
NAMES = st.binary(min_size=1, max_size=9).filter(lambda name: not name.startswith(b"x-"))
SHORTS = st.binary(max_size=9).map(lambda data: bytes([len(data)]) + data)
PROPERTIES = st.builds(
    AmqpProperties,
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("content_type", "correlation_id", "expiration", "type", "app_id", "cluster_id"), SHORTS),
            **dict.fromkeys(("delivery_mode", "priority"), st.binary(min_size=1, max_size=1)),
            "timestamp": st.binary(min_size=8, max_size=8),
        },
    ),
    st.dictionaries(NAMES, SCALARS, max_size=5),
)


def encoded(headers: dict[str, Any] | None = None, **fields: Any) -> bytes:
    """Properties as a library encodes them."""
    return Basic.Properties(headers=headers, delivery_mode=2, **fields).marshal()


def row(
    headers: dict[str, Any] | None = None,
    *,
    exchange: str = "orders.delayed",
    targets: dict[str, str] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    incoming = Incoming(encoded(headers, **fields), b"x", exchange, "new")
    return row_of(incoming, incoming.properties(), targets or {})


def given_back(row: dict[str, Any]) -> tuple[AmqpProperties, AmqpTarget]:
    delivery: Any = SimpleNamespace(body=row["body"], properties=row["properties"], id="1")
    raw, target = message_of(delivery)
    return AmqpProperties.decode(raw), target


@given(PROPERTIES)
def test_all_properties_come_back_to_the_byte(properties: AmqpProperties) -> None:
    incoming = Incoming(properties.encode(), b"x", "orders.delayed", "new")
    found = row_of(incoming, incoming.properties(), {"orders.delayed": "orders"})
    delivery: Any = SimpleNamespace(body=b"x", properties=found["properties"], id="1")
    assert message_of(delivery) == (incoming.raw, AmqpTarget("orders", "new"))


@given(st.binary(max_size=60), PROPERTIES, st.integers(0, 100))
def test_any_bytes_are_properties_or_are_refused(garbage: bytes, properties: AmqpProperties, cut: int) -> None:
    for raw in (garbage, properties.encode()[:cut] + garbage):
        try:
            AmqpProperties.decode(raw).encode()
        except MalformedError:
            with pytest.raises(InvalidArgumentError, match="properties cannot be read"):
                Incoming(raw, b"", "", "").properties()


def test_what_a_library_encodes_is_read() -> None:
    headers = {"n": -5, "d": Decimal("1.50"), "t": datetime(2100, 1, 1, tzinfo=UTC), "b": True, "of": {"a": [1, "x"]}}
    found = AmqpProperties.decode(encoded(headers, message_id="m", priority=3))
    assert (found.text("message_id"), found.fields["priority"]) == ("m", b"\3")
    assert [found.header(name) for name in ("n", "d", "t", "b")] == [headers[name] for name in ("n", "d", "t", "b")]
    assert found.encode() == encoded(headers, message_id="m", priority=3)


@pytest.mark.parametrize(
    ("headers", "due"),
    [
        ({}, {"delay": timedelta(0)}),
        ({"x-delay": 1500}, {"delay": timedelta(seconds=1.5)}),
        ({"x-delay": "1500"}, {"delay": timedelta(seconds=1.5)}),
        ({"x-delay": 1500.0}, {"delay": timedelta(seconds=1.5)}),
        ({"x-delay": -1500}, {"delay": timedelta(0)}),
        ({"x-delay": None}, {"delay": timedelta(0)}),
        ({"x-tarry-due": 4_102_444_800_000, "x-delay": 5}, {"due": 4_102_444_800_000}),
        ({"x-tarry-due": datetime(2100, 1, 1, tzinfo=UTC)}, {"due": 4_102_444_800_000}),
        ({"x-tarry-due": "2100-01-01T01:00:00+01:00"}, {"due": 4_102_444_800_000}),
    ],
)
def test_when_it_is_due(headers: dict[str, Any], due: dict[str, Any]) -> None:
    found = row(headers)
    assert {name: found[name] for name in ("due", "delay") if name in found} == due


@pytest.mark.parametrize(
    ("sent", "delivered"),
    [
        (b"b\x07", b"b\xf9"),
        (b"I\0\0\0\x07", b"I\xff\xff\xff\xf9"),
        (b"l" + struct.pack(">q", 7), b"l" + struct.pack(">q", -7)),
        (b"d" + struct.pack(">d", 7), b"d" + struct.pack(">d", -7)),
        (b"i\xff\xff\xff\xff", b"l" + struct.pack(">q", -(2**32) + 1)),
        (b"S\0\0\0\x017", b"I\xff\xff\xff\xf9"),
    ],
)
def test_what_was_delayed_says_so_as_the_plugin_does(sent: bytes, delivered: bytes) -> None:
    properties = AmqpProperties(headers={b"x-delay": sent, b"a": b"V"})
    incoming = Incoming(properties.encode(), b"", "", "")
    found, _ = given_back(row_of(incoming, incoming.properties(), {}))
    assert found.headers == {b"x-delay": delivered, b"a": b"V"}


@pytest.mark.parametrize(
    "headers",
    [
        *({"x-delay": value} for value in ("soon", [1], True, float("inf"), float("nan"), 2**62, {"a": 1})),
        *(
            {"x-tarry-due": value}
            for value in ("soon", "2100-01-01", "2100-01-01T01:00:00", Decimal(1), True, 1.5, [1])
        ),
        *({name: 7} for name in ("x-tarry-key", "x-tarry-exchange", "x-tarry-routing-key")),
        {"x-tarry-routing-key": "k" * 256},
    ],
)
def test_what_cannot_be_is_refused(headers: dict[str, Any]) -> None:
    [name] = headers
    with pytest.raises(InvalidArgumentError, match=f"header {name} is .*allowed: "):
        row(headers)


def test_a_key_replaces_and_a_message_id_does_not() -> None:
    assert [row(message_id="m")[name] for name in ("key", "on_key")] == ["m", "keep"]
    found = row({"x-tarry-key": "cart"}, message_id="m")
    assert (found["key"], found["on_key"]) == ("cart", "replace")
    assert row()["key"] is None


def test_where_it_goes() -> None:
    at = {"x-tarry-exchange": "other", "x-tarry-routing-key": "k"}
    properties, target = given_back(row(at))
    assert (properties.headers, target) == ({}, AmqpTarget("other", "k"))
    assert given_back(row(exchange="tarry.delay", targets={"orders.delayed": "orders"}))[1] == AmqpTarget("", "new")
    assert given_back(row(targets={"orders.delayed": "orders"}))[1] == AmqpTarget("orders", "new")


def test_another_users_id_is_a_header() -> None:
    """RabbitMQ closes the channel of who publishes with another user's id."""
    properties, _ = given_back(row(user_id="shop"))
    assert (properties.text("user_id"), properties.header("x-tarry-user-id")) == (None, "shop")


def test_cancelling() -> None:
    def key_of(headers: dict[str, Any], **fields: Any) -> str | None:
        return cancelled_key(AmqpProperties.decode(encoded(headers, **fields)))

    assert key_of({}, message_id="m") is None
    assert key_of({"x-tarry-cancel": False}, message_id="m") is None
    assert key_of({"x-tarry-cancel": True}, message_id="m") == "m"
    assert key_of({"x-tarry-cancel": True, "x-tarry-key": "cart"}, message_id="m") == "cart"
    assert key_of({"x-tarry-cancel": "false"}, message_id="m") is None
    assert key_of({"x-tarry-cancel": "true"}, message_id="m") == "m"
    with pytest.raises(InvalidArgumentError, match="no message id"):
        key_of({"x-tarry-cancel": True})
    for value in ("no", "", 2, [1]):
        with pytest.raises(InvalidArgumentError, match=r"header x-tarry-cancel is .*; allowed: true or false"):
            key_of({"x-tarry-cancel": value}, message_id="m")


def test_a_name_of_what_it_says() -> None:
    one, same = (Incoming(encoded(message_id="m"), b"x", "e", "k", tag) for tag in (1, 2))
    assert fingerprint(one) == fingerprint(same)
    others = [Incoming(one.raw, b"y", "e", "k"), Incoming(one.raw, b"x", "ek", ""), Incoming(encoded(), b"x", "e", "k")]
    assert len({fingerprint(one), *map(fingerprint, others)}) == 4


@pytest.mark.parametrize(
    "properties", [{}, {AMQP: "7"}, {AMQP: json.dumps(None)}, {AMQP: '{"target": ["a", "b"], "properties": "?"}'}]
)
def test_what_the_bridge_has_not_scheduled_is_no_message(properties: dict[str, str]) -> None:
    delivery: Any = SimpleNamespace(body=b"", properties=properties, id="1")
    with pytest.raises(ValueError, match="has not scheduled it"):
        message_of(delivery)


def fingerprint(incoming: Incoming) -> str:
    return incoming.fingerprint(incoming.properties())


@pytest.mark.parametrize("headers", [None, {"x-delay": 5}])
def test_a_message_that_a_quorum_queue_gives_again_is_the_same(headers: dict[str, Any] | None) -> None:
    """The queue adds its count to what is given again: with another name, the message would come twice."""
    published = encoded(headers, message_id="m")
    again = encoded({**(headers or {}), "x-delivery-count": 1}, message_id="m")
    first, second = (Incoming(raw, b"body", "orders.delayed", "new") for raw in (published, again))
    assert first.raw != second.raw
    assert fingerprint(first) == fingerprint(second)
    assert second.properties() == first.properties(), "the count is not the message's own"
