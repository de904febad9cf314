"""A message of RabbitMQ as one of Tarry, and back: all that it is comes back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import InvalidArgumentError
from tarry.bridge.amqp_message import AMQP, AmqpTarget, cancelled_key, message_of, row_of

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=9)
    | st.binary(max_size=9).map(bytearray)
    | st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)).map(lambda t: t.replace(microsecond=0, tzinfo=UTC))
    | st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=0, max_value=9999)
)
HEADERS = st.dictionaries(
    st.text(min_size=1, max_size=9).filter(lambda name: not name.startswith("x-")),
    st.recursive(SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=5), each)),
    max_size=5,
)


def incoming(headers: dict[str, Any] | None = None, **more: Any) -> Any:
    names = (
        *("content_type", "content_encoding", "priority", "correlation_id", "reply_to", "expiration", "message_id"),
        *("timestamp", "type", "user_id", "app_id"),
    )
    fields = dict.fromkeys(names) | {"delivery_mode": 2, "exchange": "orders.delayed", "routing_key": "new"}
    return SimpleNamespace(body=b"x", headers=headers or {}, **(fields | more))


def given_back(row: dict[str, Any]) -> Any:
    delivery: Any = SimpleNamespace(body=row["body"], properties=row["properties"], id="1")
    return message_of(delivery)


@given(HEADERS)
def test_headers_come_back(headers: dict[str, Any]) -> None:
    message, target = given_back(row_of(incoming(headers, type="t", priority=3), {"orders.delayed": "orders"}))
    assert message.headers == headers
    assert (message.type, message.priority, message.delivery_mode) == ("t", 3, 2)
    assert target == AmqpTarget("orders", "new")


@pytest.mark.parametrize(
    ("headers", "due"),
    [
        ({}, {"delay": timedelta(0)}),
        ({"x-delay": 1500}, {"delay": timedelta(seconds=1.5)}),
        ({"x-delay": "1500"}, {"delay": timedelta(seconds=1.5)}),
        ({"x-delay": -1500}, {"delay": timedelta(0)}),
        ({"x-tarry-due": 4_102_444_800_000, "x-delay": 5}, {"due": 4_102_444_800_000}),
        ({"x-tarry-due": datetime(2100, 1, 1, tzinfo=UTC)}, {"due": 4_102_444_800_000}),
        ({"x-tarry-due": "2100-01-01T01:00:00+01:00"}, {"due": 4_102_444_800_000}),
    ],
)
def test_when_it_is_due(headers: dict[str, Any], due: dict[str, Any]) -> None:
    row = row_of(incoming(headers), {})
    assert {name: row[name] for name in ("due", "delay") if name in row} == due


def test_what_was_delayed_says_so_as_the_plugin_does() -> None:
    assert given_back(row_of(incoming({"x-delay": 7}), {}))[0].headers == {"x-delay": -7}


@pytest.mark.parametrize(
    "headers",
    [{"x-delay": "soon"}, {"x-delay": [1]}, {"x-tarry-due": "soon"}, {"x-tarry-due": Decimal(1)}, {"x-tarry-key": 7}],
)
def test_what_cannot_be_is_refused(headers: dict[str, Any]) -> None:
    [name] = headers
    with pytest.raises(InvalidArgumentError, match=f"header {name} is .*allowed: "):
        row_of(incoming(headers), {})


def test_a_key_replaces_and_a_message_id_does_not() -> None:
    assert [row_of(incoming(message_id="m"), {})[name] for name in ("id", "key", "on_key")] == ["m", "m", "keep"]
    row = row_of(incoming({"x-tarry-key": "cart"}, message_id="m"), {})
    assert (row["key"], row["on_key"]) == ("cart", "replace")
    assert row_of(incoming(), {})["key"] is None


def test_where_it_goes() -> None:
    at = {"x-tarry-exchange": "other", "x-tarry-routing-key": "k"}
    assert given_back(row_of(incoming(at), {}))[1] == AmqpTarget("other", "k")
    assert given_back(row_of(incoming(exchange="tarry.delay"), {"orders.delayed": "orders"}))[1] == AmqpTarget(
        "", "new"
    )
    assert "x-tarry-exchange" not in given_back(row_of(incoming(at), {}))[0].headers


def test_another_users_id_is_a_header() -> None:
    """RabbitMQ closes the channel of who publishes with another user's id."""
    message, _ = given_back(row_of(incoming(user_id="shop"), {}))
    assert (message.user_id, message.headers) == (None, {"x-tarry-user-id": "shop"})


def test_cancelling() -> None:
    assert cancelled_key(incoming(message_id="m")) is None
    assert cancelled_key(incoming({"x-tarry-cancel": True}, message_id="m")) == "m"
    assert cancelled_key(incoming({"x-tarry-cancel": True, "x-tarry-key": "cart"}, message_id="m")) == "cart"
    with pytest.raises(InvalidArgumentError, match="no message id"):
        cancelled_key(incoming({"x-tarry-cancel": True}))


@pytest.mark.parametrize("properties", [{}, {AMQP: "7"}, {AMQP: json.dumps(None)}])
def test_what_the_bridge_has_not_scheduled_is_no_message(properties: dict[str, str]) -> None:
    delivery: Any = SimpleNamespace(body=b"", properties=properties, id="1")
    with pytest.raises(ValueError, match="has not scheduled it"):
        message_of(delivery)
