"""The worker of the campaign: it writes down what its handlers begin and end, so that a kill leaves all of it."""

from __future__ import annotations

import asyncio
import os
import random
import time

import tarry
from tarry.worker import Worker  # here, for the forks; `tarry.Worker` imports it where it is first named

SLOW = 100
"""One in so many takes long: it is in work at nearly every stop."""


class Journal:
    """A file that several processes append to: ``B id attempt pid`` as work begins, E as it ends, C if cancelled."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, what: str, message: tarry.Delivery) -> None:
        os.write(self._file, f"{what} {message.id} {message.attempt} {os.getpid()}\n".encode())


def make(address: str, path: str, kind: str) -> Worker:
    """Make it. ``kind``: "drain", or "cut" for one that gives its handlers no time at a stop."""
    journal = Journal(path)
    worker = Worker(address, drain_s=0.01 if kind == "cut" else 25.0)

    def seconds() -> float:
        return 0.5 if random.randrange(SLOW) == 0 else random.uniform(0, 0.02)

    @worker.on("async", group="workers", concurrency=8, lease="10s")
    async def handle(message: tarry.Delivery) -> None:
        journal.note("B", message)
        try:
            await asyncio.sleep(seconds())
        except asyncio.CancelledError:
            journal.note("C", message)
            raise
        journal.note("E", message)

    if kind == "drain":  # a thread goes on when its time is over

        @worker.on("sync", group="workers", concurrency=4, lease="10s")
        def handle_sync(message: tarry.Delivery) -> None:
            journal.note("B", message)
            time.sleep(seconds())
            journal.note("E", message)

    return worker


def main(address: str, path: str, kind: str) -> None:
    """Run it until a signal."""
    make(address, path, kind).run()
