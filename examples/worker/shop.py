"""A shop that reminds of bills, and cancels what is not paid: a worker, and messages for weeks ahead.

    tarry serve --data data --pipeline off
    tarry work shop:worker --reload              # in this directory
    python shop.py                               # orders something

An order is billed at once. A reminder is due after two weeks, a cancellation after four; a payment cancels both.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass

import tarry
from tarry.worker.middleware import LogEach

worker = tarry.Worker()  # of TARRY_ENDPOINT, or of this machine
worker.middleware(LogEach())


@dataclass
class Order:
    number: int
    address: str
    cents: int


class NoSuchAddressError(Exception):
    """Nobody can be reached there, and nobody will."""


@worker.lifespan
def mail_server() -> Iterator[None]:
    """Connect to whatever handlers need; here it is a list."""
    worker.state.sent = []
    yield
    worker.state.sent.clear()


@worker.on("orders", group="bills", retry={NoSuchAddressError: tarry.Reject})
async def bill(order: Order) -> None:
    await send(order.address, f"Please pay {order.cents / 100:.2f} for order {order.number}.")
    text = json.dumps(order.__dict__)
    # The key makes it one reminder for each order, however often this runs, and is how a payment finds it.
    await worker.client.schedule("reminders", text, delay="14d", key=f"order-{order.number}")
    await worker.client.schedule("cancellations", text, delay="28d", key=f"order-{order.number}")


@worker.on("payments", group="bills")
async def pay(number: int) -> None:
    for topic in ("reminders", "cancellations"):
        await worker.client.cancel_key(topic, f"order-{number}")


@worker.on("reminders", group="bills", timeout=30, retry={ConnectionError: "exponential 1m max 6h jitter 0.2"})
async def remind(order: Order, message: tarry.Delivery) -> None:
    await send(order.address, f"Order {order.number} is not paid.")


@worker.on("cancellations", group="bills")
def cancel(order: Order) -> None:
    """Work that blocks is a plain function: it runs in a thread."""
    worker.state.sent.append((order.address, f"Order {order.number} is cancelled."))


async def send(address: str, text: str) -> None:
    if "@" not in address:
        raise NoSuchAddressError(address)
    await asyncio.sleep(0)
    worker.state.sent.append((address, text))


def main() -> None:
    with tarry.Client(worker.address) as client:
        client.schedule("orders", json.dumps({"number": 7, "address": "anna@example.com", "cents": 1999}), id="order-7")


if __name__ == "__main__":
    main()
