"""The bridge, Tarry and RabbitMQ killed under load: nothing is lost, and nothing doubled but after a lost answer.

``python -m tests.rabbitmq.campaign --kills 50 --per-second 2000 --seed N`` (``make bridge``). A program publishes with
confirms, each message under one id until it is confirmed; another takes from the target queue. A message may come twice
only where one of the three was killed between RabbitMQ's having it and the acknowledgement of that.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.rabbitmq.place import bridged
from tests.rabbitmq.server import RabbitServer
from tests.rabbitmq.traffic import Producer, Seen, Taker

KINDS = ("bridge", "tarry", "rabbitmq")
DELAY_MS_MAX = 3000
DRAIN_S = 180.0
MEMORY = "/dev/shm"
"""What is fsynced is there after the kill of a process, in memory as on a disk; power is never cut here."""
IN_DOUBT_S = 5.0
"""Seconds about a kill in which a message may have come whose acknowledgement the kill undid.

Before it, and after what was killed was back: what was under way then was handed out before.
"""


@dataclass
class Found:
    """The result."""

    kills: Counter[str]
    messages: int
    per_second: float
    asked_again: int
    doubles: Counter[str]
    """Messages that came twice, by what was killed between."""
    from_target_again: int
    faults: list[str] = field(default_factory=list)


class Campaign:
    def __init__(self, directory: Path, kills: int, per_second: int, seed: int) -> None:
        self._directory, self._per_second, self._seed = directory, per_second, seed
        self._random = random.Random(seed)
        self._turns = [KINDS[turn % len(KINDS)] for turn in range(kills)]
        self._random.shuffle(self._turns)
        self._killed: list[tuple[float, float, str]] = []
        """When each kill began, when what was killed was there again, and what it was."""
        self._seen = Seen()

    async def run(self) -> Found:
        rabbit = await asyncio.to_thread(RabbitServer, self._directory / "rabbit")
        try:
            with bridged(self._directory, rabbit) as place:
                ways: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
                    "bridge": (place.bridge.kill, place.bridge.start),
                    "tarry": (place.broker.kill, place.broker.start),
                    "rabbitmq": (rabbit.kill, rabbit.start),
                }
                return await self._load(rabbit.url, ways)
        finally:
            rabbit.kill()

    async def _load(self, url: str, ways: dict[str, tuple[Callable[[], None], Callable[[], None]]]) -> Found:
        taker = Taker(url, self._seen)
        producer = Producer(url, self._seen, self._per_second, DELAY_MS_MAX, self._seed)
        tasks = [asyncio.create_task(each.run()) for each in (taker, producer)]
        await self._until_taken(1)
        began = time.monotonic()
        for turn, kind in enumerate(self._turns):
            await self._until_taken(len(self._seen.taken) + self._random.randrange(1, self._per_second))
            await asyncio.sleep(self._random.uniform(0, 0.5))
            kill, start = ways[kind]
            at = time.time()
            kill()
            await asyncio.to_thread(start)
            self._killed.append((at, time.time(), kind))
            print(f"{turn + 1} of {len(self._turns)}: {kind}; {producer.published} published", flush=True)
        await self._until_taken(len(self._seen.taken) + self._per_second)
        producer.stopping.set()
        per_second = producer.published / (time.monotonic() - began)
        await tasks[1]
        last = time.monotonic() + DRAIN_S
        while len(self._seen.taken) < producer.published and time.monotonic() < last:
            await asyncio.sleep(0.2)
        await asyncio.sleep(DELAY_MS_MAX / 1000)  # what comes twice may come later
        taker.stopping.set()
        await tasks[0]
        return self._look(producer.published, per_second)

    async def _until_taken(self, enough: int) -> None:
        last = time.monotonic() + DRAIN_S
        while len(self._seen.taken) < enough:
            if time.monotonic() > last:
                raise TimeoutError(f"{len(self._seen.taken)} of {enough} messages have come; killed: {self._killed}")
            await asyncio.sleep(0.02)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _look(self, published: int, per_second: float) -> Found:
        seen, doubles = self._seen, Counter[str]()
        for number in range(published):
            times = seen.taken.get(number, [])
            if not times:
                seen.faults.append(f"m{number} is lost")
            elif times[0] < seen.due[number] - 0.001:
                seen.faults.append(f"m{number} has come {seen.due[number] - times[0]:.3f} s early")
            for first, second in pairwise(times):
                if cause := self._cause(first, second):
                    doubles[cause] += 1
                elif number in seen.asked_again:
                    doubles["published again"] += 1
                else:
                    seen.faults.append(f"m{number} has come twice, at {first:.3f} and {second:.3f}, without a kill")
        kills = Counter(kind for _, _, kind in self._killed)
        return Found(
            kills, published, per_second, len(seen.asked_again), doubles, seen.from_target_again, seen.faults
        )  # fmt: skip

    def _cause(self, first: float, second: float) -> str | None:
        """Return what was killed so that a message came twice."""
        causes = {
            kind for at, back, kind in self._killed if at - IN_DOUBT_S <= first <= back + IN_DOUBT_S and at <= second
        }
        return "+".join(sorted(causes)) or None


def run(kills: int, per_second: int, seed: int) -> Found:
    """Do all of it in a directory of its own."""
    memory = MEMORY if Path(MEMORY).is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tarry-bridge-", dir=memory) as directory:
        return asyncio.run(Campaign(Path(directory), kills, per_second, seed).run())


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.rabbitmq.campaign", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of all three kinds together")
    parser.add_argument("--per-second", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    given = parser.parse_args()
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # connections are lost all the time
    print(f"seed {given.seed}", flush=True)
    found = run(given.kills, given.per_second, given.seed)
    print(
        f"{found.messages} messages, {found.per_second:.0f}/s over all of it; killed: {dict(found.kills)}\n"
        f"lost, early, or twice without a lost answer: {len(found.faults)}\n"
        f"published again by the program, since its confirm was lost: {found.asked_again}\n"
        f"twice after a kill, with the same message id: {found.doubles.total()} {dict(found.doubles)}\n"
        f"given again by the target queue, since the program's acknowledgement was lost: {found.from_target_again}"
    )
    for fault in found.faults[:20]:
        print(fault)
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
