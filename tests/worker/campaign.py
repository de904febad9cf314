"""Workers that are stopped and killed under load: nothing is lost, nothing doubled but by the next try after a kill.

``python -m tests.worker.campaign --terms 200 --kills 50 --seed N`` (``make workers``): three processes work all the
time. One is told to stop, or killed, once it is at work; another takes its place. What handlers began and ended is in a
journal, by message, try and process, and is looked through at the end.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from tarry.client import Client
from tests.contract.conftest import Served
from tests.waiting import wait_until
from tests.worker import program

WORKERS = 3
TOPICS = ("async", "sync")
GROUP = "workers"
WAITING, AT_ONCE = 300, 100
"""So many messages of a topic wait at least, else so many more are sent: workers are under load on any machine."""
REST_S = 60.0
"""So long nothing is settled at the end before something counts as lost."""


@dataclass
class Journal:
    """What the processes have written so far, by process and by message."""

    path: Path
    begun: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """How many messages a process has begun."""
    events: dict[str, list[tuple[str, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Of each message: what, attempt, process; in order."""
    _at: int = 0

    def read(self) -> None:
        with self.path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._at += end
        for line in data[:end].decode().splitlines():
            what, name, attempt, process = line.split()
            self.events[name].append((what, int(attempt), int(process)))
            self.begun[int(process)] += what == "B"


@dataclass
class Found:
    """The result."""

    messages: int
    terms: int
    kills: int
    again_after_kill: int
    """Messages that were begun a second time, since the process that had them was killed."""
    twice_done: int
    """Of these, those that had been handled to the end: the kill was before the acknowledgement was durable."""
    released: int
    """Tries that a stop cancelled, and that came again as the same try."""
    faults: list[str]


class Campaign:
    def __init__(self, directory: Path, terms: int, kills: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._turns = [signal.SIGTERM] * terms + [signal.SIGKILL] * kills
        self._random.shuffle(self._turns)
        self._terms, self._kills = terms, kills
        self._served = Served(directory / "data")
        self._path = directory / "journal"
        self._path.touch()
        self._journal = Journal(self._path)
        self._stopping = threading.Event()
        self._sent = 0
        # Each process is a fork of one that has imported everything: else they would do little but begin.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.worker.program", "tests.contract.conftest"])
        self._killed: set[int] = set()
        self._faults: list[str] = []

    def run(self) -> Found:
        with Client(self._served.address) as client:
            for topic in TOPICS:
                client.set_group(topic, GROUP)  # it is looked at before a worker asks for it
        producing = threading.Thread(target=self._produce)
        processes = [self._begin(number) for number in range(WORKERS)]
        producing.start()
        try:
            for turn, number in enumerate(self._turns):
                at = turn % WORKERS
                self._end(processes[at], number)
                processes[at] = self._begin(turn + WORKERS)
                if turn % 25 == 24:
                    print(f"{turn + 1} of {len(self._turns)}, {self._sent} messages, {self._behind()}", flush=True)
            self._stopping.set()
            producing.join()
            with Client(self._served.address) as client:
                self._wait_for_rest(client)
            for process in processes:
                self._end(process, signal.SIGTERM)
        finally:
            self._stopping.set()
            producing.join()
            for process in processes:
                process.kill()
                process.join()
            self._served.stop()
        return self._look()

    def _behind(self) -> str:
        with Client(self._served.address) as client:
            return ", ".join(f"{topic} is {client.group_info(topic, GROUP).lag} behind" for topic in TOPICS)

    def _wait_for_rest(self, client: Client) -> None:
        """Wait until all is settled, for as long as that goes on: how much is left is the machine's affair."""
        left = dict.fromkeys(TOPICS, -1)
        while any(left.values()):
            before = dict(left)

            def is_less(before: dict[str, int] = before) -> bool:
                left.update({topic: client.group_info(topic, GROUP).lag for topic in TOPICS})
                return left != before or not any(left.values())

            wait_until(is_less, REST_S, lambda: [str(client.group_info(topic, GROUP)) for topic in TOPICS])
            time.sleep(0.05)

    def _begin(self, turn: int) -> BaseProcess:
        kind = "cut" if turn % 4 == 3 else "drain"
        process = self._context.Process(target=program.main, args=(self._served.address, str(self._path), kind))
        process.start()
        return process

    def _end(self, process: BaseProcess, number: signal.Signals) -> None:
        assert process.pid is not None
        pid, enough = process.pid, self._random.randrange(1, 60)

        def is_at_work() -> bool:
            self._journal.read()
            return self._journal.begun[pid] >= enough or self._stopping.is_set()

        wait_until(is_at_work, 120, lambda: f"process {pid} has begun {self._journal.begun[pid]} of {enough}")
        time.sleep(self._random.uniform(0, 0.02))  # a moment by chance, not one at which something was written
        if number is signal.SIGKILL:
            self._killed.add(pid)
        os.kill(pid, number)
        process.join(60)
        expected = 0 if number is signal.SIGTERM else -signal.SIGKILL
        if process.exitcode != expected:
            self._faults.append(f"process {pid} has ended with {process.exitcode} after {number.name}")

    def _produce(self) -> None:
        with Client(self._served.address) as client:
            while not self._stopping.wait(0.01):
                for topic in TOPICS:
                    if client.group_info(topic, GROUP).lag < WAITING:
                        self._send(client, topic)

    def _send(self, client: Client, topic: str) -> None:
        rows = range(self._sent, self._sent + AT_ONCE)
        client.schedule_many({"topic": topic, "body": b"x", "id": f"m{each}", "delay": 0.001} for each in rows)
        self._sent = rows.stop

    # -- the end -------------------------------------------------------------------------------------------------------

    def _look(self) -> Found:
        self._journal.read()
        again = twice = released = 0
        for number in range(self._sent):
            events = self._journal.events.get(f"m{number}", [])
            begun = [(attempt, pid) for what, attempt, pid in events if what == "B"]
            done = [(attempt, pid) for what, attempt, pid in events if what == "E"]
            cancelled = [(attempt, pid) for what, attempt, pid in events if what == "C"]
            released += len(cancelled)
            if not done:
                self._faults.append(f"m{number} was never handled: {events}")
            former = 0
            for at, (attempt, pid) in enumerate(begun):
                is_same = attempt == former and begun[at - 1] in cancelled  # released: no try is counted
                if not (attempt > former or is_same):
                    self._faults.append(f"m{number}: the same try twice: {events}")
                if at < len(begun) - 1 and pid not in self._killed and (attempt, pid) not in cancelled:
                    self._faults.append(f"m{number}: twice, and process {pid} was not killed: {events}")
                if pid not in self._killed and (attempt, pid) not in (*done, *cancelled):
                    self._faults.append(f"m{number}: left by process {pid}, which was not killed: {events}")
                former = attempt
            again += any(pid in self._killed for _, pid in begun[:-1])
            twice += len(done) > 1
        return Found(self._sent, self._terms, self._kills, again, twice, released, self._faults)


def run(terms: int, kills: int, seed: int) -> Found:
    """Do all of it in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="tarry-workers-") as directory:
        return Campaign(Path(directory), terms, kills, seed).run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.worker.campaign", description=__doc__)
    parser.add_argument("--terms", type=int, default=200, help="workers that are told to stop")
    parser.add_argument("--kills", type=int, default=50, help="workers that are killed")
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    found = run(given.terms, given.kills, given.seed)
    print(
        f"{found.messages} messages; {found.terms} SIGTERMs, {found.kills} SIGKILLs: {len(found.faults)} lost or "
        f"doubled; {found.released} tries were cancelled by a stop and came again as the same try; after kills "
        f"{found.again_after_kill} came again as the next try, {found.twice_done} of them had been handled"
    )
    for fault in found.faults[:20]:
        print(fault)
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
