"""``make kills``: brokers that are really killed while they hand out, and asked at once to cancel what they handed out.

Each round schedules messages that fall due within a second, one every few milliseconds. A consumer writes down each
message when it gets it; up to 100 ms after the first one the broker is killed. It is opened again, half of the time
with a clock that is an hour behind, and all messages are cancelled, moved or replaced. None that was handed out may get
the answer "done", and each other answer must be kept: what is done never comes, what is not done does.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

import tarry
from tarry.base.clock import SystemClock
from tarry.base.errors import UnavailableError
from tarry.client import Client
from tarry_demo.broker_process import BrokerProcess

MESSAGES = 120
EVERY_MS = 8
AHEAD_MS = 300
KILL_WITHIN_S = 0.1
PATIENCE_S = 60.0
TOPIC, GROUP = "t", "g"


class BehindClock(SystemClock):
    """The machine's clock, an hour behind."""

    BY_MS = 3_600_000

    def now_ms(self) -> int:
        return super().now_ms() - self.BY_MS

    def start_ms(self) -> int:
        return super().start_ms() - self.BY_MS

    def seconds_until(self, due_ms: int) -> float:
        return super().seconds_until(due_ms + self.BY_MS)


def schedule(broker: Any, name: str) -> list[str]:
    """Messages that fall due soon; their handles. The id of each is ``NAME-NUMBER``, and so is its key."""
    begin_ms = time.time_ns() // 1_000_000 + AHEAD_MS
    names = [f"{name}-{number}" for number in range(MESSAGES)]
    due_ms = [begin_ms + number * EVERY_MS for number in range(MESSAGES)]
    rows = {"topic": [TOPIC] * MESSAGES, "due_ms": due_ms, "id": names, "key": names, "body": [b"x"] * MESSAGES}
    accepted = broker.schedule_batch(pa.table(rows))
    parts = accepted if isinstance(accepted, list) else [accepted]
    return [handle for part in parts for handle in part.handles()]


def received(broker: Any) -> Iterator[list[str]]:
    """The ids of what is handed out, as long as there is any within half a second at a time."""
    if isinstance(broker, Client):
        for message in broker.consume(TOPIC, group=GROUP, timeout=0.5):
            yield [message.id]
        return
    while (batch := broker.receive(TOPIC, GROUP, max_messages=100, wait_ms=500)).num_rows:
        yield batch["id"].to_pylist()


def consume(broker: Any, ledger: Path, stopping: threading.Event) -> None:
    """Write down what is handed out, until the end."""
    with ledger.open("ab", buffering=0) as file:
        while not stopping.is_set():
            with suppress(UnavailableError):  # it was killed
                for ids in received(broker):
                    file.write("".join(f"{id}\n" for id in ids).encode())


def embedded_child(data: Path, name: str, ledger: Path) -> None:
    """The process that is killed: a broker in it, a producer and a consumer."""
    broker = tarry.open(data)
    broker.receive(TOPIC, GROUP)  # makes the group
    print("\n".join(schedule(broker, name)), flush=True)
    consume(broker, ledger, threading.Event())  # until it is killed


class Round:
    """What was handed out before a kill, and what the answers are after it."""

    def __init__(self, name: str, ledger: Path, rng: random.Random) -> None:
        self.name, self.ledger, self.rng = name, ledger, rng
        self.handles: list[str] = []
        self.answers: dict[str, str] = {}

    def wait_for_hand_out(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while not self.handed():
            if time.monotonic() > end:
                raise TimeoutError(f"nothing was handed out within {PATIENCE_S:g} s")
            time.sleep(0.001)
        time.sleep(self.rng.uniform(0, KILL_WITHIN_S))  # the kill comes at any moment of a hand-out

    def handed(self) -> set[str]:
        """Those of this round: what the last one left comes first."""
        ids = self.ledger.read_text().split() if self.ledger.exists() else []
        return {id for id in ids if id.startswith(f"{self.name}-")}

    def change_all(self, broker: Any) -> None:
        """Cancel, move or replace each message, those handed out among them, in any order."""
        numbers = list(range(MESSAGES))
        self.rng.shuffle(numbers)
        for number in numbers:
            id, handle = f"{self.name}-{number}", self.handles[number]
            change = self.rng.choice(("cancel", "cancel_key", "reschedule", "replace"))
            if change == "cancel":
                answer = str(broker.cancel(handle))
            elif change == "cancel_key":
                answer = str(broker.cancel_key(TOPIC, id))
            elif change == "reschedule":
                answer = str(broker.reschedule(handle, delay="1d").outcome)
            else:
                outcome = broker.schedule(TOPIC, b"new", key=id, delay="1d").outcome
                answer = "done" if outcome == "replaced" else outcome
            self.answers[id] = answer

    def wrong(self, handed: set[str]) -> set[str]:
        return {id for id in handed if self.answers.get(id) == "done"}


def drain(broker: Any, due: set[str], answers: dict[str, str]) -> str | None:
    """What does not come as the answers say; None: all does."""
    came: set[str] = set()
    end = time.monotonic() + PATIENCE_S
    while (missing := {id for id in due if answers[id] != "done"} - came) and time.monotonic() < end:
        for ids in received(broker):
            came.update(ids)
    if missing:
        return f"not cancelled, and they do not come: {sorted(missing)[:5]}"
    cancelled = {id for id in came if answers.get(id) == "done"}
    return f"cancelled, and they come: {sorted(cancelled)[:5]}" if cancelled else None


def kill_embedded(directory: Path, number: int, rng: random.Random) -> tuple[int, int, str | None]:
    """One kill of a process with ``tarry.open``: handed out, wrongly done, what else is wrong."""
    data, name = directory / f"data-{number}", f"e{number}"
    round = Round(name, directory / f"ledger-{number}", rng)
    command = [sys.executable, "-m", "tests.crash.kills", "--child", str(data), name, str(round.ledger)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            round.handles = [line.strip() for line in itertools.islice(child.stdout, MESSAGES)]
            round.wait_for_hand_out()
        finally:
            child.send_signal(signal.SIGKILL)
    handed, is_behind = round.handed(), rng.random() < 0.5
    with tarry.open(data, clock=BehindClock() if is_behind else None) as broker:
        round.change_all(broker)
        trouble = None if is_behind else drain(broker, handed, round.answers)
    return len(handed), len(round.wrong(handed)), trouble


class Served:
    """``tarry serve`` with much pending, killed again and again on one directory."""

    def __init__(self, directory: Path, pending: int) -> None:
        data = directory / "served"
        with tarry.open(data) as broker:
            for start in range(0, pending, 100_000):
                rows = min(100_000, pending - start)
                delays = [86_400_000 + (start + row) * 100 for row in range(rows)]
                columns = {"topic": ["far"] * rows, "delay_ms": delays, "body": [b"y" * 100] * rows}
                broker.schedule_batch(pa.table(columns))
        self._process = BrokerProcess(data, directory / "served.log", {"pipeline": "off"})
        self._directory = directory
        self._process.start()

    def kill(self, number: int, rng: random.Random) -> tuple[int, int, str | None]:
        round = Round(f"s{number}", self._directory / f"served-ledger-{number}", rng)
        client = Client(self._process.address, timeout=PATIENCE_S)
        stopping = threading.Event()
        consumer = threading.Thread(target=consume, args=(client, round.ledger, stopping), daemon=True)
        consumer.start()
        round.handles = schedule(client, round.name)
        round.wait_for_hand_out()
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)
        stopping.set()
        consumer.join(PATIENCE_S)
        client.close()
        handed = round.handed()
        self._process.start()
        with Client(self._process.address, timeout=PATIENCE_S) as again:
            round.change_all(again)
            trouble = drain(again, handed, round.answers)
        return len(handed), len(round.wrong(handed)), trouble

    def close(self) -> None:
        self._process.stop()


def main() -> int:
    formatter = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.crash.kills", description=__doc__, formatter_class=formatter)
    parser.add_argument("--open", type=int, default=200, metavar="N", help="kills of tarry.open")
    parser.add_argument("--serve", type=int, default=50, metavar="N", help="kills of tarry serve")
    parser.add_argument("--pending", type=int, default=2_000_000, metavar="N", help="pending there")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        embedded_child(Path(given.child[0]), given.child[1], Path(given.child[2]))
    rng = random.Random(given.seed)
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory(prefix="tarry-kills-") as directory:
        bad = _report("tarry.open", (kill_embedded(Path(directory), n, rng) for n in range(given.open)))
        if given.serve:
            served = Served(Path(directory), given.pending)
            try:
                bad += _report("tarry serve", (served.kill(n, rng) for n in range(given.serve)))
            finally:
                served.close()
    return 1 if bad else 0


def _report(what: str, rounds: Iterator[tuple[int, int, str | None]]) -> int:
    total: Counter[str] = Counter()
    for handed, wrong, trouble in rounds:
        total.update(kills=1, handed=handed, wrong=wrong, violations=int(wrong > 0), troubles=int(trouble is not None))
        if not handed:
            trouble = "nothing was handed out"
        if wrong or trouble:
            print(f"{what}, {wrong} of {handed} handed out are done; {trouble or ''}", flush=True)
        if total["kills"] % 25 == 0:
            print(f"{what}: {dict(total)}", flush=True)
    print(f"{what}: {dict(total)}", flush=True)
    return total["violations"] + total["troubles"]


if __name__ == "__main__":
    sys.exit(main())
