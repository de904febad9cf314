"""The setting takeover_grace_ms: what was ready before a takeover is not handed out at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.testing import TestBroker
from tests.engines.test_broker import Machines
from tests.groups import ack, drained, ids, nack, put, take

GRACE_MS = 30_000


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path, "objects")
    machines.settings = {"takeover_grace_ms": GRACE_MS, "lease_ms": 600_000}
    yield machines
    machines.close()


def taken_over(machines: Machines) -> TestBroker:
    """Return a new owner, which may hand out by its lease."""
    broker = machines.broker()
    machines.wait_for_leases()
    broker.step()
    return broker


def one(broker: TestBroker, **how: Any) -> list[str]:
    return ids(take(broker, limit=1, **how))


def test_what_was_ready_before_is_handed_out_after_the_grace(machines: Machines) -> None:
    first = machines.broker()
    put(first, "a", "acked", "held", "tried", "ready")
    got = take(first, limit=3)
    ack(first, got, 0)
    nack(first, got, 2, delay_ms=1000)
    second = taken_over(machines)
    assert take(second).num_rows == 0
    put(second, "a", "new")
    got = take(second)
    assert ids(got) == ["new"], "what comes behind need not wait"
    ack(second, got)
    second.advance(f"{GRACE_MS - 1}ms")
    assert take(second).num_rows == 0
    assert second.group_info("a", "g").lag == 3
    put(second, "a", "newer")
    assert one(second) == ["newer"]
    second.advance("1ms")
    assert sorted(ids(take(second))) == ["held", "ready", "tried"], "newer is with a consumer"
    assert second.group_info("a", "g").leased == 4
    second.close()
    third = taken_over(machines)
    assert third.status()["log"]["epoch"] == 3
    assert take(third).num_rows == 0, "a clean stop leaves consumers at work, too"
    third.advance(f"{GRACE_MS}ms")
    assert sorted(drained(third)) == ["held", "newer", "ready", "tried"]
    third.close()


def test_a_key_keeps_its_order(machines: Machines) -> None:
    first = machines.broker()
    first.set_group("a", "g", ordered=True)
    put(first, "a", "1", "2", order_key="k")
    assert one(first) == ["1"]
    second = taken_over(machines)
    put(second, "a", "3", order_key="k")
    assert take(second).num_rows == 0, "it would overtake those that wait"
    second.advance(f"{GRACE_MS}ms")
    assert drained(second, limit=1) == ["1", "2", "3"]
    second.close()


def test_who_is_made_ordered_meanwhile_waits_as_well(machines: Machines) -> None:
    first = machines.broker()
    put(first, "a", "1", order_key="k")
    assert one(first) == ["1"]
    second = taken_over(machines)
    put(second, "a", "2", order_key="other")
    assert one(second) == ["2"]
    second.set_group("a", "g", ordered=True)
    assert take(second).num_rows == 0
    second.set_group("a", "g", ordered=False)
    assert take(second).num_rows == 0
    second.advance(f"{GRACE_MS}ms")
    assert ids(take(second)) == ["1"]
    second.close()


def test_a_seek_ends_it_and_a_new_group_has_none(machines: Machines) -> None:
    first = machines.broker()
    put(first, "a", "1", "2")
    assert one(first) == ["1"]
    second = taken_over(machines)
    assert ids(take(second, group="other")) == ["1", "2"], "no former consumer works on anything of it"
    second.seek("a", "g", "earliest")
    assert ids(take(second)) == ["1", "2"]
    second.close()


def test_a_consumer_that_waits_is_served_when_it_ends(machines: Machines) -> None:
    first = machines.broker()
    put(first, "a", "1")
    assert one(first) == ["1"]
    second = taken_over(machines)
    subscription = second.subscribe("a", "g")
    assert subscription.poll(10) == (None, GRACE_MS / 1000)
    second.close()


def test_by_default_there_is_none(machines: Machines) -> None:
    machines.settings = {}
    first = machines.broker()
    put(first, "a", "1")
    assert one(first) == ["1"]
    second = taken_over(machines)
    assert one(second) == ["1"]
    second.close()
