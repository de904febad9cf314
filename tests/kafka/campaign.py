"""``make relay-campaign``: a relay on a cluster whose driver, executors and Kafka are killed again and again while
records come in and go out at a steady rate.

A producer sends as long as it lasts: one record in ten waits for nothing, the others for up to 20 seconds, so that at
each kill some are on their way through memory and some through the store. A consumer of committed records writes down
what it sees. A kill is followed by the next when what was sent after it has come out of each partition, and after a
pause that chance decides. In the end nothing that Kafka acknowledged may be missing, nothing may have come early (by
the clock of the consumer, and by the timestamp that the relay writes), and nothing twice: that is what the relay
promises to consumers of committed records.
"""

from __future__ import annotations

import argparse
import random
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from tarry_relay.headers import DUE_MS
from tests.kafka.conftest import PARTITIONS, World, now_ms
from tests.kafka.relay_process import Process, process, reads
from tests.kafka.server import kafka
from tests.sources import PYTHON_PATH
from tests.spark.cluster import NAMES, cluster, executors

KINDS = ("driver", "executor", "kafka")
DELAY_MS_MAX = 20_000
AT_ONCE = 0.1
WAITS_MS = 1_000
"""What waits so long goes through the store: it is not handed on where it was read."""
PAUSE_S_MAX = 4.0
PATIENCE_S = 300.0
CORES = 8
"""Of each worker, in name: the relay's tasks wait mostly, and one worker must do when the other lost its executor."""
FILL = bytes(240)
HEAD = struct.Struct("<qqq")
"""Number, moment of sending, due time."""


@dataclass
class Account:
    """What was sent, what Kafka acknowledged, and what came out of the relay, by the records' numbers."""

    sent: int = 0
    last_due_ms: int = 0
    acknowledged: set[int] = field(default_factory=set)
    seen: Counter[int] = field(default_factory=Counter)
    late_ms: list[int] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    newest: list[int] = field(default_factory=lambda: [-1] * PARTITIONS)
    """The highest number that came of each partition, of those that had waited."""

    def take(self, value: bytes, written_ms: int, seen_ms: int) -> None:
        """Note a record that came."""
        number, sent_ms, due_ms = HEAD.unpack_from(value)
        self.seen[number] += 1
        self.late_ms.append(seen_ms - due_ms)
        if min(written_ms, seen_ms) < due_ms:
            self.early.append(f"{number}: due {due_ms}, written {written_ms}, seen {seen_ms}")
        if due_ms - sent_ms >= WAITS_MS:
            place = number % PARTITIONS
            self.newest[place] = max(self.newest[place], number)

    def lost(self) -> list[int]:
        return [number for number in sorted(self.acknowledged) if number not in self.seen]

    def twice(self) -> list[int]:
        return sorted(number for number, times in self.seen.items() if times > 1)


class Sender:
    """Sends numbered records, to the partitions in turn. It is idempotent: what comes twice is the relay's doing."""

    def __init__(self, world: World, account: Account, rng: random.Random) -> None:
        self._topic, self._account, self._rng = world.orders, account, rng
        # What is sent while Kafka is away waits here: some minutes of it.
        more = {"enable.idempotence": True, "delivery.timeout.ms": 600_000, "queue.buffering.max.messages": 1_000_000}
        self._producer = Producer({"bootstrap.servers": world.settings.kafka, "linger.ms": 5, **more})

    def send(self, delay_ms: int) -> None:
        """One record; without a delay it has no header, and passes through."""
        account, number, sent_ms = self._account, self._account.sent, now_ms()
        due_ms = sent_ms + delay_ms

        def answered(error: Any, _: Any) -> None:
            if error is None:
                account.acknowledged.add(number)

        value, headers = HEAD.pack(number, sent_ms, due_ms) + FILL, [(DUE_MS, b"%d" % due_ms)] if delay_ms else []
        place, key = number % PARTITIONS, b"k%d" % (number % 1000)
        self._producer.produce(self._topic, value, key, place, answered, headers=headers)
        account.sent += 1
        account.last_due_ms = max(account.last_due_ms, due_ms)

    def run(self, rate: int, stopping: threading.Event) -> None:
        """Send so many a second until the end; Kafka has all of it then."""
        begun = time.monotonic()
        while not stopping.is_set():
            for _ in range(int((time.monotonic() - begun) * rate) - self._account.sent):
                self.send(self._rng.randrange(1, DELAY_MS_MAX) if self._rng.random() > AT_ONCE else 0)
            self._producer.poll(0.01)
        self.flush()

    def flush(self) -> None:
        self._producer.flush(PATIENCE_S)


def consume(world: World, account: Account, stopping: threading.Event) -> None:
    """Note what comes. Places are kept here, so that a Kafka that was away gives nothing again."""
    consumer = Consumer(
        {
            "bootstrap.servers": world.settings.kafka,
            "group.id": "campaign",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([TopicPartition(world.out, place, 0) for place in range(PARTITIONS)])
    ends = [0] * PARTITIONS
    while not stopping.is_set():
        messages = consumer.consume(5000, 0.05)
        seen_ms = now_ms()
        for message in messages:
            if message.error() is None and message.offset() >= ends[message.partition()]:
                ends[message.partition()] = message.offset() + 1
                account.take(message.value(), message.timestamp()[1], seen_ms)
    consumer.close()


@contextmanager
def background(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """``work`` in a thread, told to end at the end, and waited for."""
    stopping = threading.Event()
    thread = threading.Thread(target=work, args=(stopping,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(PATIENCE_S)


class Campaign:
    """The kills of one rate."""

    def __init__(self, rate: int, directory: Path, seed: int) -> None:
        self.account = Account()
        self._rate, self._directory, self._rng = rate, directory, random.Random(seed)
        self._recovery_s: dict[str, list[float]] = {}

    def run(self, kills: int, kinds: tuple[str, ...]) -> None:
        """``kills`` of each kind, in turn.

        Raises:
            AssertionError: the relay ended by itself, or something did not come within :data:`PATIENCE_S`.
        """
        with kafka() as server, cluster(self._directory, cores=CORES) as master:
            world = World(server, self._directory)
            sender = Sender(world, self.account, self._rng)
            with process(world, *_options(master)) as relay, background(partial(consume, world, self.account)):
                try:
                    relay.wait(reads, PATIENCE_S)
                    with background(partial(sender.run, self._rate)):
                        self._goes_on(relay)
                        for number in range(kills):
                            for kind in kinds:
                                self._strike(kind, number, relay, world)
                    self._settle(sender, relay)
                    assert relay.stop() == 0
                except AssertionError:
                    print(relay.errors()[-3000:], flush=True)
                    raise

    def _strike(self, kind: str, number: int, relay: Process, world: World) -> None:
        time.sleep(self._rng.uniform(0, PAUSE_S_MAX))  # where the relay is then is chance: that is what is wanted
        struck = time.monotonic()
        if kind == "driver":
            relay.kill()
            relay.start()
        elif kind == "executor":
            for executor in executors(self._directory / NAMES[number % len(NAMES)]):
                executor.kill()
        else:
            world.kafka.kill()
            world.kafka.start()
        self._goes_on(relay)
        took_s = time.monotonic() - struck
        self._recovery_s.setdefault(kind, []).append(took_s)
        print(
            f"{self._rate}/s, kill {number + 1} of {kind}: goes on after {took_s:.1f} s; "
            f"{self.account.sent} sent, {len(self.account.seen)} seen",
            flush=True,
        )

    def _goes_on(self, relay: Process) -> None:
        """Wait until something of each partition has come that was sent from now on, and had to wait."""
        number = self.account.sent
        relay.wait(lambda _: min(self.account.newest) >= number, PATIENCE_S)

    def _settle(self, sender: Sender, relay: Process) -> None:
        """Wait until all has come, and one more of each partition, which is sent when all of it is due."""
        account = self.account
        relay.wait(lambda _: len(account.seen) >= len(account.acknowledged), PATIENCE_S)
        relay.wait(lambda _: now_ms() > account.last_due_ms)
        after = account.sent
        for _ in range(PARTITIONS):
            sender.send(2 * WAITS_MS)
        sender.flush()
        relay.wait(lambda _: min(account.newest) >= after, PATIENCE_S)

    def report(self) -> bool:
        """Print what came of it; whether all is well."""
        account = self.account
        lost, twice = account.lost(), account.twice()
        p50, p99, most = np.percentile(account.late_ms or [0], [50, 99, 100])
        print(f"\n{self._rate}/s: {account.sent} sent, {len(account.acknowledged)} acknowledged by Kafka")
        for what, found in (("lost", lost), ("twice", twice), ("early", account.early)):
            print(f"  {what}: {len(found)}" + (f", the first: {found[:5]}" if found else ""))
        print(f"  lateness with the faults in it: p50 {p50:.0f} ms, p99 {p99:.0f}, most {most:.0f}")
        for kind, times in self._recovery_s.items():
            middle, longest = np.median(times), max(times)
            print(f"  {len(times)} kills of {kind}: goes on after {middle:.1f} s (median), {longest:.1f} (most)")
        return bool(account.seen) and not (lost or twice or account.early)


def _options(master: str) -> list[str]:
    """The relay as it is by default, but for the timestamp, which is the moment of writing."""
    settings = [
        "spark.executor.memory=600m",
        f"spark.executorEnv.PYTHONPATH={PYTHON_PATH}",
        "spark.driver.host=127.0.0.1",
    ]
    return ["--master", master, "--timestamp", "now", *(f"--spark-conf={setting}" for setting in settings)]


def main() -> int:
    formatter = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.kafka.campaign", description=__doc__, formatter_class=formatter)
    parser.add_argument("--rates", default="500,2000", help="records a second, one campaign each")
    parser.add_argument("--kills", type=int, default=10, metavar="N", help="of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS), help="what is killed")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    kinds = tuple(given.kinds.split(","))
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"--kinds: {', '.join(sorted(unknown))}; allowed: {', '.join(KINDS)}")
    print(f"seed {given.seed}", flush=True)
    begun, well = time.monotonic(), True
    for rate in map(int, given.rates.split(",")):
        with tempfile.TemporaryDirectory(prefix="tarry-campaign-", ignore_cleanup_errors=True) as directory:
            campaign = Campaign(rate, Path(directory), given.seed)
            try:
                campaign.run(given.kills, kinds)
            except AssertionError as error:
                print(f"FAILED: {error}")
                well = False
            well &= campaign.report()
    print(f"{'well' if well else 'NOT WELL'}, after {(time.monotonic() - begun) / 60:.1f} minutes; seed {given.seed}")
    return 0 if well else 1


if __name__ == "__main__":
    raise SystemExit(main())
