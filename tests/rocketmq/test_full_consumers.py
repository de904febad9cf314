"""Push consumers that hold all they may. In the broker's process: a worker does not know how much its clients hold."""

from __future__ import annotations

import pytest

from tarry.fronts.rocketmq.v5 import clients
from tests.rocketmq.conftest import WAIT_S, Place
from tests.rocketmq.rpc import receive_request


def test_a_client_that_holds_all_it_may_keeps_nothing_from_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "HELD_MAX", 1)
    one, other = place.client(), place.client()
    one.send("orders", b"x")
    assert len(one.receive("orders", "g", push=True)) == 1
    first = one.stream("ReceiveMessage", receive_request("orders", "g", wait_s=20, push=True))
    place.wait_for_receives(1)
    one.send("orders", b"y")
    [got] = other.receive("orders", "g", push=True, wait_s=WAIT_S)
    assert got.body == b"y"
    first.cancel()
