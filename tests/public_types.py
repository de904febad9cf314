"""What a type checker knows of the public API: read by mypy (``make types``), and never run."""

from __future__ import annotations

from typing import Any, assert_type

import tarry
from tarry.base.record_batch import RecordBatch
from tarry.broker import Broker
from tarry.client import AsyncClient, Client
from tarry.message.receipt import Receipt, ReceiptOutcome


def of_a_client(client: Client) -> None:
    """A client: receipts, outcomes, dead letters, messages."""
    receipt = client.schedule("orders", b"unpaid?", key="k", on_key="keep", late="dead")
    assert_type(receipt, Receipt)
    assert_type(receipt.outcome, ReceiptOutcome)
    client.schedule("orders", b"x", on_key="kepe")  # type: ignore[arg-type]  # a name that is spelt wrong is found
    client.schedule("orders", b"x", late="later")  # type: ignore[arg-type]
    client.consume("orders", group="billing", start="beginning")  # type: ignore[arg-type]
    client.receive("orders", group="billing", start="now")  # type: ignore[arg-type]
    assert_type(client.cancel(receipt.handle), tarry.Outcome)
    assert_type(client.dead_letters("orders", "billing"), RecordBatch)
    assert_type(client.dead_letters("orders", "billing").to_pylist(), list[dict[str, Any]])
    assert_type(client.peek("orders").num_rows, int)
    assert_type(client.list_pending(topic="orders").rows, RecordBatch)


async def of_an_async_client(client: AsyncClient) -> None:
    """The same for asyncio."""
    receipt = await client.schedule("orders", b"unpaid?", on_key="refuse", key="k")
    assert_type(receipt.outcome, ReceiptOutcome)
    assert_type(await client.dead_letters("orders", "billing"), RecordBatch)
    await client.schedule("orders", b"x", late="never")  # type: ignore[arg-type]


def of_a_broker_in_this_process() -> None:
    """What ``tarry.open`` gives."""
    with tarry.open("embedded") as broker:
        assert_type(broker, Broker)
        assert_type(broker.schedule("orders", b"x").outcome, ReceiptOutcome)
        batch = broker.receive("orders", "billing", max_messages=10)
        assert_type(batch, RecordBatch)
        assert_type(batch.num_rows, int)
        assert_type(broker.dead_letters("orders", "billing"), RecordBatch)
        broker.receive("orders", "billing", start="middle")  # type: ignore[arg-type]
