"""Pushed messages that are CloudEvents: read by the official package, in both content modes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from cloudevents.core.bindings import http as binding
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks.webhooks import Webhook

from tarry.api.push import PushSubscription, new_secret
from tarry.base.delay import format_ms
from tarry.base.errors import InvalidArgumentError
from tarry.broker import Broker
from tarry.fronts.push.message import PushMessage
from tarry.fronts.push.request import RequestMaker
from tests.push.receiver import Receiver
from tests.waiting import wait_until

NOW_MS = 1_767_225_600_000
MODES = ("binary", "structured")


def message(**fields: Any) -> PushMessage:
    given = {
        "seq": 7,
        "topic": "orders/eu",
        "due_ms": NOW_MS,
        "id": "a",
        "key": None,
        "tag": None,
        "properties": [],
        "body": b'{"n": 1}',
        "born_ms": 1,
        "offset": 0,
        "lease": 1,
        "attempt": 1,
    }
    return PushMessage(**{**given, **fields})


def subscription(mode: str, **fields: Any) -> PushSubscription:
    given = {"name": "s", "topic": "t", "group": "g", "url": "https://example.com", "cloudevents": mode}
    return PushSubscription(**{**given, "secrets": (new_secret(),), **fields})


def read(headers: Mapping[str, str], body: bytes, mode: str) -> CloudEvent:
    whole = binding.HTTPMessage(dict(headers), body)
    read = binding.from_binary if mode == "binary" else binding.from_structured
    found = read(whole, JSONFormat(), CloudEvent)
    assert isinstance(found, CloudEvent)
    return found


def pushed(mode: str, given: PushMessage, **fields: Any) -> CloudEvent:
    made = subscription(mode, **fields)
    headers, body = RequestMaker(made).request(given, NOW_MS)
    assert ("ce-id" in headers) == (mode == "binary")
    return read(headers, body, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_message_is_an_event(mode: str) -> None:
    found = pushed(mode, message(key='k "1"', tag="paid", properties=[("content-type", "application/json")]))
    assert found.get_id() == message().webhook_id
    assert (found.get_source(), found.get_type()) == ("/topics/orders%2Feu", "paid")
    assert found.get_subject() == 'k "1"'
    assert found.get_time() is not None and format_ms(NOW_MS) == "2026-01-01T00:00:00.000Z"
    assert found.get_time().timestamp() * 1000 == NOW_MS  # type: ignore[union-attr]
    assert found.get_data() == {"n": 1}
    assert pushed(mode, message()).get_type() == "tarry.message"
    assert pushed(mode, message(attempt=0)).get_type() == "tarry.test"


@pytest.mark.parametrize("mode", MODES)
def test_the_subscription_says_what_its_events_are(mode: str) -> None:
    headers = {"CE-Source": "https://shop.example", "ce-type": "order.due", "ce-region": "eu", "X-Shop": "7"}
    found = pushed(mode, message(tag="paid"), headers=headers)
    assert (found.get_source(), found.get_type()) == ("https://shop.example", "order.due")
    assert found.get_extension("region") == "eu"
    made, _ = RequestMaker(subscription(mode, headers=headers)).request(message(), NOW_MS)
    assert made["x-shop"] == "7"


@pytest.mark.parametrize("mode", MODES)
def test_an_event_that_was_sent_stays_that_event(mode: str) -> None:
    own = {"id": "A-1", "source": "/shop", "type": "paid", "time": "2020-01-01T00:00:00Z", "color": "rot"}
    properties = [*((f"ce_{name}", value) for name, value in own.items()), ("plain", "1")]
    given = message(properties=properties)
    found = pushed(mode, given, headers={"ce-type": "another"})
    assert (found.get_id(), found.get_source(), found.get_type()) == ("A-1", "/shop", "paid")
    assert found.get_time().year == 2020 and found.get_extension("color") == "rot"  # type: ignore[union-attr]
    headers, _ = RequestMaker(subscription(mode)).request(given, NOW_MS)
    assert json.loads(headers["x-tarry-properties"]) == {"plain": "1"}


@pytest.mark.parametrize(
    ("mode", "headers"),
    [
        ("xml", {}),
        ("binary", {"ce-id": "1"}),
        ("structured", {"CE-Time": "x"}),
        ("binary", {"ce-a_b": "x"}),
    ],
)
def test_what_no_subscription_can_say(mode: str, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed"):
        subscription(mode, headers=headers)
    if mode != "xml":
        assert subscription("off", headers=headers).headers == headers


def test_a_mode_is_changed(broker: Broker) -> None:
    with Receiver() as receiver:
        secret = broker.set_push("s", topic="t", url=receiver.url, cloudevents="structured").secret
        assert secret is not None and broker.push_info("s").cloudevents == "structured"
        broker.schedule("t", b"{}", properties={"content-type": "application/json"})
        wait_until(lambda: len(receiver.got) == 1)
        [got] = receiver.got
        Webhook(secret).verify(got.body, got.headers)
        assert got.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
        assert read(got.headers, got.body, "structured").get_id() == got.headers["webhook-id"]
        broker.set_push("s", cloudevents="binary")
        broker.schedule("t", b"x")
        wait_until(lambda: len(receiver.got) == 2)
        assert receiver.got[1].headers["ce-id"] == receiver.got[1].headers["webhook-id"]
        broker.set_push("s", cloudevents="off")
        broker.schedule("t", b"x")
        wait_until(lambda: len(receiver.got) == 3)
        assert "ce-id" not in receiver.got[2].headers
