"""Push subscriptions are covered by ``manage`` on their topic and group; others' look like none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.identity.conftest import Known

from tarry.api import operations as ops
from tarry.api.operation import Operation
from tarry.api.push import PushInfo
from tarry.base.errors import ForbiddenError, InvalidArgumentError, NotFoundError, TarryError
from tarry.broker import Broker
from tarry.identity.authenticator import Authenticator
from tarry.identity.seen import SeenBroker

URL = "https://example.com/"
ON_ONE: list[Callable[[str], Operation[Any]]] = [
    ops.GetPushSubscription, ops.DeletePushSubscription, ops.PausePushSubscription, ops.ResumePushSubscription,
    ops.ListPushAttempts, ops.TestPushSubscription, lambda name: ops.SetPushSubscription(name, concurrency=3),
    lambda name: ops.SetPushSubscription(name, topic="secret", url=URL, group="g"),
]  # fmt: skip


def billing(broker: Broker, token: str) -> SeenBroker:
    return SeenBroker(broker, Authenticator(broker).by_token(token))


@pytest.fixture
def seen(known: Known) -> SeenBroker:
    known.broker.set_identity("billing", ["manage orders.*", "look orders.*"])
    known.broker.set_push("others", topic="secret", url=URL, group="g")
    return billing(known.broker, known.billing)


def answer(seen: SeenBroker, operation: Operation[Any]) -> tuple[type[TarryError], str]:
    with pytest.raises(TarryError) as caught:
        seen.call(operation)
    return type(caught.value), str(caught.value).replace("others", "NAME").replace("none", "NAME")


@pytest.mark.parametrize("make", ON_ONE)
def test_the_subscription_of_others_looks_like_none(seen: SeenBroker, make: Any) -> None:
    assert answer(seen, make("others")) == answer(seen, make("none"))


def test_without_any_right_nothing_is_looked_for(known: Known, seen: SeenBroker) -> None:
    known.broker.set_identity("billing", ["produce orders.*"])
    mere = billing(known.broker, known.billing)
    for make in ON_ONE[1:]:
        refused = answer(mere, make("others"))
        assert refused == answer(mere, make("none"))
        assert refused[0] is ForbiddenError
    assert answer(mere, ops.GetPushSubscription("others"))[0] is NotFoundError
    failed = known.broker.audit_log(outcome="failed") if known.broker.components.audit.is_on else []
    assert failed == []


def test_a_name_of_others_is_not_taken_over(known: Known, seen: SeenBroker) -> None:
    taken = ops.SetPushSubscription("others", topic="orders.a", url="https://evil.example/")
    assert answer(seen, taken) == (
        InvalidArgumentError,
        "subscription 'NAME' cannot be made; allowed: another name",
    )
    assert known.broker.push_info("others").url == URL
    mine = seen.call(ops.SetPushSubscription("mine", topic="orders.a", url=URL))
    assert seen.call(ops.GetPushSubscription("mine")).topic == mine.topic == "orders.a"


def test_the_right_is_asked_for_on_what_is_changed(known: Known, seen: SeenBroker) -> None:
    """A name that goes to another topic just after it was asked about: what counts is the one that is changed."""
    push = known.broker.components.push
    known.broker.set_push("p", topic="orders.a", url=URL, group="g")
    replaced: list[PushInfo] = []

    def replace() -> None:
        known.broker.delete_push("p")
        replaced.append(known.broker.set_push("p", topic="secret", url=URL, group="h"))

    other = threading.Thread(target=replace)
    asked: list[str | None] = []

    def check(topic: str | None, group: str | None = None, /) -> None:
        asked.append(topic)
        other.start()
        other.join(0.2)  # if it could, it would be done by now

    push.pause("p", "mine", check)
    other.join(20)
    assert asked == ["orders.a"]
    assert not known.broker.push_info("p").paused
    assert known.broker.push_info("p").topic == "secret"
