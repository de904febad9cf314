"""The handlers of a worker on a test's broker, whose clock moves."""

from __future__ import annotations

from typing import Any

import pytest

import tarry
from tarry.testing import TestBroker
from tarry.worker.outcomes import Ending


def a_shop() -> tuple[tarry.Worker, list[Any]]:
    """Reminds of an order a day after its bill, and its mail server is away at first."""
    worker, sent = tarry.Worker(), []

    @worker.lifespan
    def mail_server() -> Any:
        worker.state.mail = sent.append
        yield
        worker.state.mail = None

    @worker.middleware
    async def count(message: tarry.Delivery, call_next: Any) -> Any:
        sent.append(message.topic)
        return await call_next(message)

    @worker.on("bills", group="mail", retry={ConnectionError: "exponential 10s max 1h"})
    async def bill(order: dict[str, int], message: tarry.Delivery) -> None:
        if message.attempt < 3:
            raise ConnectionError("away")
        await worker.client.schedule("reminders", str(order["number"]), delay="1d", key=f"order-{order['number']}")

    @worker.on("reminders", group="mail")
    def remind(number: str, message: tarry.Delivery) -> None:
        worker.state.mail((number, message.attempt, message.lateness_ms, worker.sync_client.has_topic("bills")))

    return worker, sent


def test_a_month_of_a_plain_function(tarry_broker: TestBroker) -> None:
    worker, sent = a_shop()
    with tarry_broker.run(worker) as running:
        tarry_broker.schedule("bills", b'{"number": 7}', delay="30d")
        tarry_broker.schedule("bills", b"{}", delay="30d")
        tarry_broker.advance("30d")
        assert [(each.handler, each.ending) for each in running.handled] == [("bill", "retried"), ("bill", "retried")]
        tarry_broker.advance("10s")
        tarry_broker.advance("19999ms")
        assert len(running.handled) == 4
        tarry_broker.advance("1ms")  # by the back-off of this exception, not the group's
        assert [(each.ending, type(each.error)) for each in running.handled[4:]] == [
            (Ending.HANDLED, type(None)),
            (Ending.RETRIED, KeyError),
        ]
        tarry_broker.advance("1d")
    assert sent[-2:] == ["reminders", ("7", 1, 0.0, True)]
    assert sent.count("bills") == 2 * 3 + 13  # tries are used up
    assert tarry_broker.dead_letters("bills", "mail").num_rows == 1
    assert worker.state.mail is None
    tarry_broker.schedule("bills", b"nobody is there")
    tarry_broker.advance("1d")
    assert tarry_broker.group_info("bills", "mail").lag == 1


@pytest.mark.asyncio
async def test_the_same_in_an_event_loop(tarry_broker: TestBroker) -> None:
    worker, sent = a_shop()
    async with tarry_broker.run(worker) as running:
        tarry_broker.schedule("bills", b'{"number": 7}', delay="30d")
        with pytest.raises(tarry.TarryError, match=r"await running.advance"):
            tarry_broker.advance("1d")
        await running.advance("31d")
        assert sent == ["bills", "bills", "bills"]
        await running.advance("30s")
    assert sent[-1] == ("7", 1, 0.0, True)


def test_what_was_explicitly_settled_stays_so(tarry_broker: TestBroker) -> None:
    worker, seen = tarry.Worker(), []

    @worker.on("orders", group="billing")
    def bill(message: tarry.Delivery) -> None:
        seen.append((message.body, message.attempt))
        if message.attempt == 1:
            {b"nack": lambda: message.nack("1h"), b"reject": message.reject, b"release": message.ack}[message.body]()
        assert message.lost == (message.attempt == 1 and message.body != b"release")

    for body in ("nack", "reject", "release"):
        tarry_broker.schedule("orders", body)
    with tarry_broker.run(worker):
        tarry_broker.advance("1h")
    assert sorted(seen) == [(b"nack", 1), (b"nack", 2), (b"reject", 1), (b"release", 1)]
    assert tarry_broker.dead_letters("orders", "billing").num_rows == 1


def test_a_worker_runs_once_at_a_time(tarry_broker: TestBroker) -> None:
    worker, _ = a_shop()
    with tarry_broker.run(worker), pytest.raises(tarry.TarryError, match="runs already"), tarry_broker.run(worker):
        pass
    with tarry_broker.run(worker) as running:
        assert running.handled == []


def test_a_worker_without_handlers_is_refused(tarry_broker: TestBroker) -> None:
    with pytest.raises(tarry.TarryError, match="no handlers"):
        tarry_broker.run(tarry.Worker())
