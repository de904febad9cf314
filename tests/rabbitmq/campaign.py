"""The bridge, Tarry and RabbitMQ killed under load: nothing is lost, and nothing doubled but after a lost answer.

``python -m tests.rabbitmq.campaign --kills 50 --per-second 2000 --seed N`` (``make bridge``). A program publishes with
confirms, each message under one id until it is confirmed; another takes from the target queue. What has come twice is
judged by :mod:`tests.rabbitmq.doubles`, by what Tarry's intake says of it.

Kills that follow closely are one outage, in which any kill explains a double. ``--apart-s 21`` keeps each to itself:
then a double after a kill of Tarry alone is a fault. ``--sync-s 0.3`` makes Tarry's disk slow, so that a kill finds
acknowledgements on their way. (``--kills 24 --per-second 500 --apart-s 21 --sync-s 0.3``: a quarter of an hour.)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvloop

from tarry.bridge.amqp_message import TOPIC
from tests.rabbitmq.doubles import Kill, Traces, judge, outages
from tests.rabbitmq.place import Bridged, Program, bridged
from tests.rabbitmq.server import RabbitServer
from tests.rabbitmq.traffic import Producer, Seen, Taker

KINDS = ("bridge", "tarry", "rabbitmq")
DELAY_MS_MAX = 3000
DRAIN_S = 180.0
MEMORY = "/dev/shm"
"""What is fsynced is there after the kill of a process, in memory as on a disk; power is never cut here."""
QUIET_S = 8.0
"""The end is when nothing has come for so long."""
CONNECTED, SERVING = "connected to RabbitMQ", "serving flight"


@dataclass
class Found:
    """The result."""

    kills: Counter[str]
    messages: int
    per_second: float
    asked_again: int
    doubles: Counter[str]
    """Messages that came twice, by where and why."""
    from_target_again: int
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Load:
    """What is asked for; ``apart_s``: least time from a return to the next kill; ``sync_s``: of each sync of Tarry."""

    kills: int
    per_second: int
    seed: int
    apart_s: float = 0.0
    sync_s: float = 0.0


class Campaign:
    def __init__(self, directory: Path, load: Load) -> None:
        self._directory, self._load, self._per_second = directory, load, load.per_second
        self._random = random.Random(load.seed)
        self._turns = [KINDS[turn % len(KINDS)] for turn in range(load.kills)]
        self._random.shuffle(self._turns)
        self._killed: list[asyncio.Task[Kill]] = []
        self._seen = Seen()

    async def run(self) -> Found:
        rabbit = await asyncio.to_thread(RabbitServer, self._directory / "rabbit")
        try:
            # Its intake stays one file, which says at the end what was scheduled.
            settings = ("segment_bytes_max=1GiB",)
            with bridged(self._directory, rabbit, settings=settings, sync_s=self._load.sync_s) as place:
                published, per_second = await self._run_load(rabbit, place)
            return self._look(published, per_second, await asyncio.gather(*self._killed))
        finally:
            rabbit.kill()

    async def _run_load(self, rabbit: RabbitServer, place: Bridged) -> tuple[int, float]:
        taker = Taker(rabbit.url, self._seen)
        producer = Producer(rabbit.url, self._seen, self._per_second, DELAY_MS_MAX, self._load.seed)
        tasks = [asyncio.create_task(each.run()) for each in (taker, producer)]
        await self._until_taken(1)
        began = time.monotonic()
        for turn, kind in enumerate(self._turns):
            await self._until_taken(len(self._seen.came) + self._random.randrange(1, self._per_second))
            await asyncio.sleep(self._random.uniform(0, 0.5))
            await self._until_apart()
            await self._kill(kind, rabbit, place)
            print(f"{turn + 1} of {len(self._turns)}: {kind}; {producer.published} published", flush=True)
        await self._until_taken(len(self._seen.came) + self._per_second)
        producer.stopping.set()
        per_second = producer.published / (time.monotonic() - began)
        await tasks[1]
        await self._until_quiet(producer.published)
        taker.stopping.set()
        await tasks[0]
        return producer.published, per_second

    async def _until_apart(self) -> None:
        """Wait until the last kill's return is long enough ago."""
        if self._killed and self._load.apart_s:
            last = await self._killed[-1]
            await asyncio.sleep(max(0.0, last.back + self._load.apart_s - time.time()))

    async def _kill(self, kind: str, rabbit: RabbitServer, place: Bridged) -> None:
        victims: dict[str, RabbitServer | Program]
        victims = {"bridge": place.bridge, "tarry": place.broker, "rabbitmq": rabbit}
        victim = victims[kind]
        speaker, text = (place.broker, SERVING) if kind == "tarry" else (place.bridge, CONNECTED)
        said, at = speaker.said.count(text), time.time()
        victim.kill()
        await asyncio.to_thread(victim.start)
        self._killed.append(asyncio.create_task(_until_back(Kill(at, at, kind), speaker, text, said)))

    async def _until_quiet(self, enough: int) -> None:
        last = time.monotonic() + DRAIN_S
        while time.monotonic() < last:
            missing, quiet_s = enough - len(self._seen.came), time.time() - self._seen.last
            if not missing and quiet_s > QUIET_S:
                return
            await asyncio.sleep(0.2)

    async def _until_taken(self, enough: int) -> None:
        last = time.monotonic() + DRAIN_S
        while len(self._seen.came) < enough:
            if time.monotonic() > last:
                raise TimeoutError(f"{len(self._seen.came)} of {enough} messages have come")
            await asyncio.sleep(0.02)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _look(self, published: int, per_second: float, kills: list[Kill]) -> Found:
        seen, doubles, found = self._seen, Counter[str](), outages(kills)
        scheduled = scheduled_of(self._directory / "data")
        for number in range(published):
            came = seen.came.get(number, [])
            if came and came[0] < seen.due[number] - 0.001:
                seen.faults.append(f"m{number} has come {seen.due[number] - came[0]:.3f} s early")
            traces = Traces(came, scheduled[number], seen.published_again[number], seen.given_again[number])
            causes, faults = judge(traces, found)
            doubles += causes
            seen.faults += [f"m{number} {fault}" for fault in faults]
        return Found(
            Counter(kill.kind for kill in kills), published, per_second, len(seen.published_again), doubles,
            seen.given_again.total(), seen.faults,
        )  # fmt: skip


async def _until_back(kill: Kill, speaker: Program, text: str, said: int) -> Kill:
    """Wait until a program has said more often that it works; return the kill with the time of that."""
    while speaker.said.count(text) <= said:
        await asyncio.sleep(0.05)
    return replace(kill, back=time.time())


def scheduled_of(data: Path) -> dict[int, list[float]]:
    """Return, by number, when Tarry accepted each of its rows: what the intake of a stopped broker says."""
    found: dict[int, list[float]] = defaultdict(list)
    command = [sys.executable, "-m", "tarry", "dump", "--json", *map(str, sorted((data / "intake").glob("*.log")))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as dump:
        assert dump.stdout is not None
        for line in dump.stdout:
            row = json.loads(line)
            if row["what"] == "row" and row["topic"] == TOPIC:
                found[int(row["body"])].append(row["born_ms"] / 1000)
    return found


def run(load: Load, keep: Path | None = None) -> Found:
    """Do all of it in a directory of its own, or in ``keep``, which has the logs afterwards."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if keep is not None:
            keep.mkdir(parents=True)
            return runner.run(Campaign(keep, load).run())
        memory = MEMORY if Path(MEMORY).is_dir() else None
        with tempfile.TemporaryDirectory(prefix="tarry-bridge-", dir=memory) as directory:
            return runner.run(Campaign(Path(directory), load).run())


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.rabbitmq.campaign", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of all three kinds together")
    parser.add_argument("--per-second", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--apart-s", type=float, default=0.0, metavar="SECONDS", help="from a return to the next kill")
    parser.add_argument("--sync-s", type=float, default=0.0, metavar="SECONDS", help="that each sync of Tarry takes")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new directory, which has the logs afterwards")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what it has started ends with it
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # connections are lost all the time
    print(f"seed {given.seed}", flush=True)
    found = run(Load(given.kills, given.per_second, given.seed, given.apart_s, given.sync_s), given.keep)
    print(
        f"{found.messages} messages, {found.per_second:.0f}/s over all of it; killed: {dict(found.kills)}\n"
        f"lost, early, or twice without such a kill: {len(found.faults)}\n"
        f"published again by the program, since its confirm was lost: {found.asked_again}\n"
        f"twice, on the way in or out, since an answer was lost: {found.doubles.total()} {dict(found.doubles)}\n"
        f"given again by the target queue, since the program's acknowledgement was lost: {found.from_target_again}"
    )
    for fault in found.faults[:20]:
        print(fault)
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
