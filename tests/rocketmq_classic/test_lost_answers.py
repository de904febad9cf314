"""A producer whose connection ends before it is answered, and sends again: one message, unless it means two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tarry.api.operations import GetPending
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode
from tarry.fronts.rocketmq.classic.frames import RemotingCommand
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, send_fields
from tests.waiting import wait_until

MESSAGE = {"UNIQ_KEY": "ID-1", "DELAY": "18", "price": "3"}


class HeldSends:
    """What the broker is to accept waits for :meth:`release`."""

    def __init__(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        self._submit: Callable[..., None] = place.broker.submit_checked
        self.held: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []
        monkeypatch.setattr(
            type(place.broker),
            "submit_checked",
            lambda _, *given, **more: self._hold(partial(self._submit, *given, **more)),
        )
        self._monkeypatch = monkeypatch

    def release(self) -> None:
        # Else the first might come to be held when nobody releases it any more.
        wait_until(lambda: self.held)
        self._monkeypatch.undo()
        for loop, submit in self.held:
            # Where it was held: a broker behind a gateway is for its front's loop alone.
            loop.call_soon_threadsafe(submit)

    def _hold(self, submit: Callable[[], None]) -> None:
        self.held.append((asyncio.get_running_loop(), submit))


def begin(client: Remoting, body: bytes = b"x", flag: int = 0, **properties: str) -> int:
    return client.begin(RequestCode.SEND_MESSAGE_V2, send_fields("orders", **(properties or MESSAGE)), body, flag)


def leave(client: Remoting, observer: Remoting) -> None:
    """End a connection, and wait until the broker knows it."""
    client.heartbeat("leaving", "leaving", "orders")
    client.close()
    listed = {"consumerGroup": "leaving"}
    wait_until(lambda: observer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, listed).code == ResponseCode.SYSTEM_ERROR)


def pending(place: Place) -> int:
    return sum(topic.pending for topic in place.broker.call(GetPending(next_due=False)) if topic.topic == "orders")


def send(client: Remoting, body: bytes = b"x", **properties: str) -> RemotingCommand:
    answer = client.finish(begin(client, body, **properties))
    assert answer.code == ResponseCode.SUCCESS
    return answer


def lose(place: Place, monkeypatch: pytest.MonkeyPatch, flag: int = 0) -> None:
    """A message is accepted, and nobody has its answer."""
    producer, sends = place.client(), HeldSends(place, monkeypatch)
    begin(producer, flag=flag)
    leave(producer, place.client())
    wait_until(lambda: sends.held)
    sends.release()
    wait_until(lambda: pending(place) == 1)


def test_a_retry_after_a_lost_answer_gets_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(place, monkeypatch)
    client = place.client()
    answer = send(client)
    assert answer.fields["recallHandle"]
    assert pending(place) == 1
    # It was good for one: from now on the same is another message.
    assert send(client).fields["msgId"] != answer.fields["msgId"]
    assert pending(place) == 2


def test_a_retry_while_the_first_is_on_its_way_gets_its_answer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    producer, client, sends = place.client(), place.client(), HeldSends(place, monkeypatch)
    begin(producer)
    leave(producer, client)
    retry, another = begin(client), begin(client)
    client.heartbeat("c", "g", "orders")
    sends.release()
    first, second = client.finish(retry), client.finish(another)
    assert (first.code, second.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
    assert first.fields["msgId"] != second.fields["msgId"]
    assert pending(place) == 2


def test_two_of_one_object_on_their_way_are_two(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    client, sends = place.client(), HeldSends(place, monkeypatch)
    numbers = [begin(client), begin(client)]
    client.heartbeat("c", "g", "orders")
    sends.release()
    assert len({client.finish(number).fields["msgId"] for number in numbers}) == 2
    assert pending(place) == 2


@pytest.mark.parametrize("change", [{"body": b"y"}, {"CONSUME_START_TIME": "7"}])
def test_what_has_the_id_and_is_not_the_same_is_another_message(
    place: Place, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    lose(place, monkeypatch)
    send(place.client(), **(MESSAGE | change))
    assert pending(place) == 2


def test_nobody_sends_what_needs_no_answer_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(place, monkeypatch, flag=2)
    send(place.client())
    assert pending(place) == 2


def test_without_a_window_each_is_another_message(serve: Callable[..., Place], monkeypatch: pytest.MonkeyPatch) -> None:
    place = serve(dedupe_ms=0)
    lose(place, monkeypatch)
    send(place.client())
    assert pending(place) == 2
