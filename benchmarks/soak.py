"""Load for minutes or hours on a broker that is killed again and again: ``make soak ARGS="--hours 3"``.

Exits with 1 when a message that was acknowledged to the producer never came, when any came early, or when memory,
descriptors, threads or files grow (``resources``). Messages whose answer was lost in a kill may come or not; messages
handed out and not durably acknowledged may come twice. Both are counted. ``--record`` keeps all figures as JSON.

``--directory`` keeps the broker's data and what was seen, and a run in a directory that is there goes on with both: a
machine that cannot be had for a night gives a run of several parts, recorded as one. Whether anything grows is judged
by the last part, once it has run for longer than the store keeps files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Server, messages, now_ms, start_server, workspace
from benchmarks.resources import Resources, Sample, growing
from tarry import Client
from tarry.base.errors import TarryError

DELAY_MS_MAX = 45_000
SETTLE_S = 4200.0
"""The store keeps files for an hour (below): until then, and some minutes, a run comes to hold more."""
SETTINGS = {
    "horizon_ms": 10_000,
    "schedule_interval_ms": 10_000,
    # What nobody needs any more goes within the run, or its files would grow as they should.
    "retention_ms": 60_000,
    "store_retention_ms": 3_600_000,
}


@dataclass
class Former:
    """What the runs before this one saw, in the same directory. ``minutes`` has the length of each."""

    file: Path | None = None
    minutes: list[float] = field(default_factory=list)
    kills: int = 0
    unknown: int = 0
    samples: list[Sample] = field(default_factory=list)
    messages: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Former:
        """Of a directory in which nothing has run: nothing."""
        file = directory / "seen.npz"
        if not file.exists():
            return cls(file)
        with np.load(file) as arrays:
            messages = dict(arrays)
        counted = json.loads(messages.pop("counted").tobytes())
        samples = [Sample(**each) for each in counted.pop("samples")]
        return cls(file, samples=samples, messages=messages, **counted)

    def write(self, now: Former) -> None:
        """Keep what is known now, for the next run."""
        if self.file is None:
            return
        counted = {name: getattr(now, name) for name in ("minutes", "kills", "unknown")}
        text = json.dumps({**counted, "samples": [asdict(each) for each in now.samples]})
        written = self.file.with_suffix(".tmp.npz")
        arrays: Any = {"counted": np.frombuffer(text.encode(), np.uint8), **now.messages}
        np.savez(written, **arrays)
        written.replace(self.file)

    def rows(self, name: str) -> list[np.ndarray]:
        return [self.messages[name]] if name in self.messages else []


class Producer(threading.Thread):
    """Batches of 500 with delays of up to 45 s, as fast as ``rate`` allows; remembers what was acknowledged."""

    def __init__(self, address: str, rate: int, former: Former) -> None:
        super().__init__(daemon=True)
        self.client = Client(address, timeout=10)
        self.rate = rate
        self.stopping = threading.Event()
        self.accepted = former.rows("accepted")
        self.due = former.rows("due")
        self.unknown = former.unknown

    def run(self) -> None:
        rng = np.random.default_rng(6)
        while not self.stopping.wait(500 / self.rate):
            batch = messages(500, now_ms() + rng.integers(0, DELAY_MS_MAX, 500), "soak", int(rng.integers(1 << 30)))
            try:
                for part in self.client.schedule_batch(batch):
                    self.accepted.append(np.arange(part.first_seq, part.first_seq + part.count))
                    self.due.append(part.due_ms)
            except TarryError:
                self.unknown += 500
                self.stopping.wait(0.2)


class Consumer(threading.Thread):
    """Acknowledges whole batches, and remembers what it saw and how late."""

    def __init__(self, address: str, former: Former) -> None:
        super().__init__(daemon=True)
        self.client = Client(address)
        self.seen = former.rows("seen")
        self.late = former.rows("late")
        self.at_ms = former.rows("at_ms")

    def run(self) -> None:
        for batch in self.client.consume("soak", group="soak", prefetch=20_000).batches():
            now = time.time_ns() / 1e6
            self.seen.append(batch.data.column("seq").to_numpy().copy())
            self.late.append(now - batch.data.column("due_ms").to_numpy())
            self.at_ms.append(np.full(len(batch.data), now))
            batch.ack()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=10)
    length.add_argument("--hours", type=float)
    parser.add_argument("--rate", type=int, default=5000, help="messages a second")
    parser.add_argument("--kill-every", type=float, metavar="SECONDS", help="on average; default: 30, in hours 600")
    parser.add_argument("--pipeline", choices=("on", "off"), default="on")
    parser.add_argument("--ledgers", type=Path, help="a directory for both ledgers, which tarry audit reads")
    parser.add_argument("--record", type=Path, metavar="FILE", help="gets the figures of the whole run as JSON")
    parser.add_argument("--directory", type=Path, help="is kept; if it is there, this run goes on with the former one")
    given = parser.parse_args()
    given.minutes = given.minutes if given.hours is None else 60 * given.hours
    given.kill_every = given.kill_every or (30 if given.hours is None else 600)
    settings = {"pipeline": given.pipeline, **SETTINGS}
    with workspace() if given.directory is None else nullcontext(given.directory) as directory:
        directory.mkdir(parents=True, exist_ok=True)
        former = Former() if given.directory is None else Former.read(directory)
        server = start_server(directory / "data", **settings)
        try:
            again = partial(_start_again, directory / "data", settings)
            return soak(server, given, former, again)
        finally:
            server.process.kill()


def _start_again(data: Path, settings: dict[str, Any], address: str) -> Server:
    return start_server(data, address=address, **settings)


def soak(server: Server, given: argparse.Namespace, former: Former, again: Callable[[str], Server]) -> int:
    producer, consumer = Producer(server.address, given.rate, former), Consumer(server.address, former)
    resources = Resources(lambda: server, former.samples)
    for thread in (consumer, producer, resources):
        thread.start()
    end, kills = time.monotonic() + 60 * given.minutes, former.kills
    rng = random.Random(8)
    while (left_s := end - time.monotonic()) > 0:
        time.sleep(min(left_s, rng.uniform(0.2, 2) * given.kill_every))
        server.kill()
        server = again(server.address)
        kills += 1
        seen = sum(map(len, consumer.seen))
        print(f"kill {kills}: {sum(map(len, producer.accepted)):,} accepted, {seen:,} delivered", flush=True)
    resources.stop()
    producer.stopping.set()
    producer.join()
    _drain(consumer)
    with Client(server.address) as client:
        print(client.status())
    server.process.terminate()
    server.process.wait(30)
    if given.ledgers is not None:
        write_ledgers(given.ledgers, producer, consumer)
    now = seen_by(producer, consumer)
    minutes = [*former.minutes, given.minutes]
    former.write(Former(None, minutes, kills, producer.unknown, resources.samples, now))
    record = figures(now, producer.unknown, kills)
    grown = growing(settled(resources.samples, minutes))
    if given.record is not None:
        machine = {
            "cpus": os.cpu_count(),
            "minutes": sum(minutes),
            "parts": minutes,
            "rate": given.rate,
            "kill_every_s": given.kill_every,
        }
        samples = {"growing": grown, "samples": resources.plain()}
        given.record.write_text(json.dumps({**machine, **record, **samples}, indent=1) + "\n")
    return report(record, grown, resources)


def settled(samples: Sequence[Sample], minutes: Sequence[float]) -> Sequence[Sample]:
    """The samples that tell whether something grows. Of a run in parts of so many minutes: those of the last one from
    :data:`SETTLE_S` on, as between two parts the store lets go all that it kept, and each begins with less.
    """
    if len(minutes) == 1:
        return samples
    begin_s = samples[-1].at_s - 60 * minutes[-1] + SETTLE_S
    return [each for each in samples if each.at_s >= begin_s]


def write_ledgers(directory: Path, producer: Producer, consumer: Consumer) -> None:
    """``accepted.parquet`` and ``delivered.parquet``. What had no answer is foreign there: its seq is not known."""
    directory.mkdir(parents=True, exist_ok=True)
    sent = {"seq": np.concatenate(producer.accepted), "due_ms": np.concatenate(producer.due)}
    got = {"seq": np.concatenate(consumer.seen), "delivered_ms": np.concatenate(consumer.at_ms)}
    pq.write_table(pa.table(sent), directory / "accepted.parquet")
    pq.write_table(pa.table(got), directory / "delivered.parquet")


def _drain(consumer: Consumer) -> None:
    quiet = time.monotonic()
    before = -1
    while time.monotonic() < quiet + DELAY_MS_MAX / 1000 + 15:
        count = sum(map(len, consumer.seen))
        if count != before:
            before, quiet = count, time.monotonic()
        time.sleep(0.5)


def seen_by(producer: Producer, consumer: Consumer) -> dict[str, np.ndarray]:
    """All that was acknowledged and all that came, a row a message."""
    parts = {
        "accepted": producer.accepted,
        "due": producer.due,
        "seen": consumer.seen,
        "late": consumer.late,
        "at_ms": consumer.at_ms,
    }
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def figures(messages: dict[str, np.ndarray], unknown: int, kills: int) -> dict[str, Any]:
    """What became of the messages."""
    accepted, seen, late = messages["accepted"], messages["seen"], messages["late"]
    return {
        "kills": kills,
        "accepted": len(accepted),
        "unknown": unknown,
        "delivered": len(seen),
        "again": len(seen) - len(np.unique(seen)),
        "lost": len(np.setdiff1d(accepted, seen)),
        "early": int((late < 0).sum()),
        "late_ms": {f"p{share}": round(float(np.percentile(late, share)), 1) for share in (50, 99, 99.9)},
    }


def report(record: dict[str, Any], grown: dict[str, tuple[float, float]], resources: Resources) -> int:
    print(
        f"{record['kills']} kills; {record['accepted']:,} accepted, "
        f"{record['unknown']:,} with an answer that was lost; "
        f"{record['delivered']:,} delivered, {record['again']:,} of them again; "
        f"{record['lost']:,} lost, {record['early']} early; "
        f"lateness {', '.join(f'{name} {ms}' for name, ms in record['late_ms'].items())} ms (kills included)"
    )
    for each in resources.samples[:: max(1, len(resources.samples) // 12)]:
        print(
            f"{each.at_s / 60:6.1f} min: {each.rss_mb:5.0f} MB, "
            f"{each.descriptors} descriptors, {each.threads} threads, "
            f"{each.files} files ({each.disk_mb:,.0f} MB) and {each.log_entries} of the store's log; "
            f"pipeline {each.pipeline_mb:,.0f} MB"
        )
    for name, (before, after) in grown.items():
        print(f"GROWING: {name} from {before:,.1f} in the second third to {after:,.1f} in the last")
    return 1 if record["lost"] or record["early"] or grown else 0


if __name__ == "__main__":
    raise SystemExit(main())
