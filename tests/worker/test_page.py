"""``docs/worker.md``: its programs do what stands beside them."""

from __future__ import annotations

from typing import Any

import pytest

from tarry.client import Client
from tarry.testing import TestBroker
from tarry.worker.outcomes import Ending
from tests.contract.conftest import Served
from tests.snippets import snippets
from tests.waiting import wait_until_async
from tests.worker.conftest import running


def program(word: str) -> dict[str, Any]:
    [code] = [each.code for each in snippets("python") if each.page == "docs/worker.md" and word in each.code]
    names: dict[str, Any] = {}
    exec(compile(code, "docs/worker.md", "exec"), names)
    return names


def test_its_test_passes(tarry_broker: TestBroker) -> None:
    program("def test_")["test_an_order_is_mailed_when_the_server_is_back"](tarry_broker)


@pytest.mark.asyncio
async def test_its_first_program_handles_a_message(
    served: Served, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = program("# shop.py")["worker"]
    worker.address = served.address
    client.schedule("orders", '{"number": 7}')
    async with running(worker):
        await wait_until_async(lambda: worker.figures() and worker.figures()[0].ended[Ending.HANDLED])
    assert capsys.readouterr().out.startswith("7 20")


def test_its_rules_and_its_lifespan_hold(tarry_broker: TestBroker) -> None:
    with tarry_broker.run(program("not paid")["worker"]) as running:
        tarry_broker.schedule("orders", "{}")
        tarry_broker.advance("59m59s")
        assert len(running.handled) == 1
        tarry_broker.advance("1s")
        assert [each.ending for each in running.handled] == ["retried", "retried"]
    names = program("async def database")
    with tarry_broker.run(names["worker"]) as running:
        tarry_broker.schedule("orders", '{"number": 8}', id="m8")
        tarry_broker.advance(0)
        assert names["worker"].state.orders["m8"] == 1
        assert tarry_broker.find_key("mails", "order-8") is not None
    with tarry_broker.run(program("class Payment")["worker"]) as running:
        for topic, body in (("payments", '{"order": 1}'), ("notes", "x"), ("ticks", "x")):
            tarry_broker.schedule(topic, body)
        tarry_broker.advance(0)
        handled = {(each.handler, each.ending) for each in running.handled}
    done = {(name, Ending.HANDLED) for name in ("book", "note", "tick", "reserve")}
    assert handled == done | {("reserve", Ending.REJECTED)}  # the first order has no number
