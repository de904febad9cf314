"""``make takeover``: brokers that take a log over from one another, by seed, with clients that check every answer.

Machines take turns. The owner is killed (kill), stopped for three leases (stop), cut off from the store (cut), given a
slow way to it (slow), or told to stop (clean), and the next machine takes over; or two at once, as it was killed
(duel). Between these, owners stand still for up to two leases, and go on. A former owner that lives must end by
itself as soon as it goes on, and answer nothing. Clients schedule, cancel, move, replace and consume all the while.

Mostly the next machine stands by, and waits until the owner is silent, or is told (told, and slow); a takeover without
a fault is an alarm, and allowed. Each --chapter takeovers everything is consumed, and the history is checked, written
down and forgotten, so that memory does not grow with the number of takeovers. With --plain, the machines share a
directory, and there is no store: then owners are only killed or told to stop.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tarry.base.errors import TarryError
from tarry.cli.exits import ExitCode
from tarry.client import AsyncClient
from tarry.log.objects.lease import LEASE_S
from tarry.log.objects.role import tell_to_take_over
from tests.engines.versitygw import served
from tests.takeover.clients import (
    GROUP,
    MESSAGE_LEASE_S,
    ORDERED,
    PLAIN,
    TOPICS,
    Consumers,
    Recorder,
    now_ms,
)
from tests.takeover.events import Claim, save
from tests.takeover.history import check
from tests.takeover.owners import Life, Machine, Owners, area
from tests.takeover.producers import Producers
from tests.takeover.proxy import Faults, Proxy, Side
from tests.takeover.result import Result

KINDS = ("kill", "stop", "cut", "slow", "clean", "duel")
PLAIN_KINDS = ("kill", "clean")
STANDBY_KINDS = ("kill", "stop", "cut", "slow", "clean", "told")
STANDBYS = 0.8
"""Share of the takeovers for which the next machine stands by."""
CHAPTER = 40
BETWEEN_S = (1.0, 5.0)
"""Time from a takeover to the next fault."""
INFLIGHT_MAX = 10_000
"""First value of the setting that is changed at each takeover."""
HAND_OUT_S, HAND_OUT_WITHIN_S = 3.0, 0.03
"""A fault comes this soon after a hand-out, if there is one in time."""
FOLLOWED = 0.8
"""Share of the faults that a standby meets when it has read all that was there."""
PAUSES = 0.3
"""Share of the times between in which the owner stands still."""
SLOW_MS = (500.0, 1_500.0, 3_000.0)
AHEAD_MS = 1000 * LEASE_S + 500.0
"""So far beyond a claim it may count as taken what was due: the log's clock, and a lease."""
PLAIN_AHEAD_MS = 6_000.0
DRAIN_S = 180.0
FAR = "1d"
LATE_S = 3.0
"""So late a request arrives, or an answer comes, at most: longer than a lease."""


@dataclass
class Campaign:
    """One run on its machines."""

    owners: Owners
    rng: random.Random
    kinds: Sequence[str]
    takeovers: int
    per_second: float
    usual: Faults
    """Faults of all ways to the store, all the time."""
    standbys: float
    """Share of the takeovers for which the next machine stands by."""
    chapter: int
    """So many takeovers until the history is checked."""
    history: Path
    """Where it is written then."""
    result: Result = field(default_factory=Result)
    stands_by: bool = False

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.owners)
        self.producers = Producers(self.recorder, random.Random(self.rng.random()), self.per_second)
        self.consumers = Consumers(self.recorder, random.Random(self.rng.random()))
        self.setting, self.setting_tried = INFLIGHT_MAX, INFLIGHT_MAX
        """Value of a setting of a group that was answered last, and the one that was asked for last."""
        # Each kind once, then any.
        self._decks = {True: [each for each in self.kinds if each in STANDBY_KINDS], False: list(self.kinds)}
        self._decks[False] = [each for each in self.kinds if each != "told"]
        self._kinds = {stands_by: tuple(deck) for stands_by, deck in self._decks.items()}

    async def run(self) -> None:
        """Run it. What came of it is in :attr:`result`."""
        await self._serve("start", now_ms())
        client = self.recorder.client(self.owners.current)
        for topic in TOPICS:
            await client.set_group(topic, GROUP, tries=0, ordered=topic == ORDERED, inflight_max=INFLIGHT_MAX)
        for first in range(0, self.takeovers, self.chapter):
            try:
                await self._chapter(range(first, min(first + self.chapter, self.takeovers)))
            finally:
                save(self.recorder.events, self.history, first=not first)
            self._check()
            await self._forget()
        await self.consumers.close()
        await self.recorder.close()

    async def _chapter(self, numbers: range) -> None:
        producing = asyncio.create_task(self.producers.run())
        try:
            for number in numbers:
                await self._take_over(number)
                if producing.done():
                    producing.result()
            await asyncio.sleep(self.rng.uniform(*BETWEEN_S))
        except BaseException:
            producing.cancel()  # its calls are repeated until they are answered, which may be never
            raise
        self.producers.stopping = True
        await producing
        self.stands_by = False
        await self._kill("end")  # what is only seen by another owner is seen, too
        await self._drain()

    async def _take_over(self, number: int) -> None:
        self.stands_by = self.rng.random() < self.standbys and bool(self._kinds[True])
        await self._between()
        deck = self._decks[self.stands_by]
        kind = deck.pop(0) if deck else self.rng.choice(self._kinds[self.stands_by])
        setting = asyncio.create_task(self._set())
        await self._hand_out()
        await getattr(self, f"_{kind}")()
        await setting
        await self._check_setting()
        self.result.takeovers[self.owners.current.label] += 1
        print(f"{number + 1}: {self.owners.current.label}, served again after {self._served_s():.1f} s", flush=True)

    def _check(self) -> None:
        """Check the history of a chapter."""
        owners = self.owners
        # Two clocks differ by twice as much as one from this one.
        ahead_ms = PLAIN_AHEAD_MS if owners.has_one_directory else AHEAD_MS
        skew_ms = max(abs(machine.skew_ms) for machine in owners.machines)
        report = check(self.recorder.events, ahead_ms=ahead_ms + skew_ms, skew_ms=skew_ms)
        self.result.add(self.recorder.events, owners.lives, report)
        self.result.tell_chapter(report)

    async def _forget(self) -> None:
        """Forget the chapter: what comes of its messages from now on was never sent, as far as is known."""
        self.recorder.events.clear()
        await self.recorder.close_former()
        self.consumers.forget()
        self.producers.begin_again()

    def _served_s(self) -> float:
        life = self.owners.current
        return (life.claimed_ms[1] - life.fault_ms) / 1000

    async def _serve(self, why: str, fault_ms: float) -> Life:
        start = self.owners.duel if why == "duel" else self.owners.take_over
        life = await start(why, fault_ms)
        begin_ms, end_ms = life.claimed_ms
        self.recorder.events.append(Claim(begin_ms=begin_ms, end_ms=end_ms, life=life.number, why=why))
        if not self.producers.stopping:
            self.producers.change_newest()
        self.consumers.follow(life)
        return life

    async def _set(self) -> None:
        """Change a setting of a group, around the time of a fault."""
        client = self.recorder.client(self.owners.current)
        await asyncio.sleep(self.rng.choice([0.0, 0.01, 0.1]))
        self.setting_tried += 1
        with suppress(TarryError):  # it may have happened
            await client.set_group(PLAIN, GROUP, inflight_max=self.setting_tried)
            self.setting = self.setting_tried

    async def _check_setting(self) -> None:
        with suppress(TarryError):  # the broker may stand still for now
            found = (await self.recorder.client(self.owners.current).group_info(PLAIN, GROUP)).inflight_max
            if not self.setting <= found <= self.setting_tried:
                self.result.wrong.append(
                    f"inflight_max is {found}; answered: {self.setting}, tried: {self.setting_tried}"
                )
            self.setting = found

    async def _hand_out(self) -> None:
        """Wait until something is handed out: the log may not have it yet."""
        self.recorder.came.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.recorder.came.wait(), HAND_OUT_S)
        await asyncio.sleep(self.rng.uniform(0, HAND_OUT_WITHIN_S))

    async def _ends(self, former: Life, why: str) -> None:
        if not await former.ends_by_itself():
            self.result.wrong.append(
                f"life {former.number} did not end as one that lost the log ({why}): {former.exit_code}"
            )

    async def _between(self) -> None:
        """Let the owner work; or stand still for a while, where that is no reason to take over."""
        if self.stands_by:
            self.owners.stand_by()
            if self.rng.random() < FOLLOWED:
                await self.owners.until_followed()
        await asyncio.sleep(self.rng.uniform(*BETWEEN_S))
        if self.owners.is_taken_over:
            former = self.owners.current
            await self._serve("alarm", now_ms())
            await self._ends(former, "alarm")
            self.result.takeovers[self.owners.current.label] += 1
            self.owners.stand_by()
            await asyncio.sleep(BETWEEN_S[1])
        elif not self.stands_by and self.rng.random() < PAUSES:
            await self._pause()

    async def _pause(self) -> None:
        self.owners.current.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self.rng.uniform(0, 2 * LEASE_S))
        self.owners.current.send_signal(signal.SIGCONT)
        await asyncio.sleep(self.rng.uniform(0, 1))

    # -- faults --------------------------------------------------------------------------------------------------------

    async def _kill(self, why: str = "kill") -> None:
        fault_ms = now_ms()
        self.owners.current.kill()
        await self._serve(why, fault_ms)

    async def _duel(self) -> None:
        await self._kill("duel")

    async def _clean(self) -> None:
        fault_ms, former = now_ms(), self.owners.current
        await former.stop()
        # What the exit codes say: a stop does not wait for a store that gives no answer, as the faults may have it.
        has_answer = "the store gave no answer" not in former.process.log.read_text(errors="replace")
        if former.exit_code != 0 and (has_answer or former.exit_code != ExitCode.FATAL):
            self.result.wrong.append(f"life {former.number} was told to stop, and ended with {former.exit_code}")
        await self._serve("clean", fault_ms)

    async def _stop(self) -> None:
        fault_ms, former = now_ms(), self.owners.current
        former.send_signal(signal.SIGSTOP)
        await self._serve("stop", fault_ms)
        await asyncio.sleep(max(0.0, 3 * LEASE_S - (now_ms() - fault_ms) / 1000))
        former.send_signal(signal.SIGCONT)
        await self._ends(former, "stop")

    async def _cut(self) -> None:
        fault_ms, former = now_ms(), self.owners.current
        proxy = _proxy(former)
        sides: tuple[Side, ...] = self.rng.choice([(), (Side.REQUESTS,), (Side.ANSWERS,)])
        proxy.cut(*sides)
        await asyncio.sleep(self.rng.choice([0.0, LEASE_S]))
        await self._serve("cut", fault_ms)
        await asyncio.sleep(self.rng.uniform(0, 2 * LEASE_S))
        proxy.heal()
        await self._ends(former, "cut")

    async def _slow(self) -> None:
        fault_ms, former = now_ms(), self.owners.current
        proxy = _proxy(former)
        proxy.faults = replace(self.usual, delays_ms=SLOW_MS, late_put=0.1, late_read=0.1)
        await asyncio.sleep(self.rng.uniform(0, 2 * LEASE_S))
        self._tell()  # it writes, though seldom
        await self._serve("slow", fault_ms)
        await self._ends(former, "slow")
        proxy.faults = self.usual

    async def _told(self) -> None:
        """The standby is told, though nothing is wrong with the owner."""
        fault_ms, former = now_ms(), self.owners.current
        self._tell()
        await self._serve("told", fault_ms)
        await self._ends(former, "told")

    def _tell(self) -> None:
        if self.owners.standby is not None:
            tell_to_take_over(self.owners.standby.machine.directory)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Wait until everything was consumed, and every lease of a message was over once."""
        client, until_ms, empty = self.recorder.client(self.owners.current), now_ms() + 1000 * DRAIN_S, 0
        state: object = None
        while empty < 2 * MESSAGE_LEASE_S:
            if now_ms() > until_ms:
                self.result.wrong.append(f"not everything was consumed within {DRAIN_S:g} s: {state}")
                return
            await asyncio.sleep(0.5)
            with suppress(TarryError):
                listed = (await client.list_pending(limit=1)).rows.num_rows  # counts are checked, and not relied upon
                state = [(each.topic, each.pending, each.ready) for each in await client.pending()]
                empty = 0 if listed or any(pending or ready for _, pending, ready in state) else empty + 1
        await self._check_counts(client)

    async def _check_counts(self, client: AsyncClient) -> None:
        """Nothing is pending: one more message is one that is counted."""
        receipts = [await client.schedule(topic, b"counted", delay=FAR) for topic in TOPICS]
        counts = {each.topic: each.pending for each in await client.pending()}
        if any(counts[topic] != 1 for topic in TOPICS):
            self.result.wrong.append(f"each topic has one pending message, and these are counted: {counts}")
        for receipt in receipts:
            await client.cancel(receipt.handle)


def _proxy(life: Life) -> Proxy:
    assert life.machine.proxy is not None, "a machine without a store"
    return life.machine.proxy


def main() -> int:
    formatter = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m tests.takeover.campaign", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("--takeovers", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--delay-ms", type=float, default=5.0, help="of each request to the store")
    parser.add_argument("--faults", type=float, default=0.001, help="rate of each fault of requests, all the time")
    parser.add_argument("--kinds", nargs="+", choices=(*KINDS, "told"), default=[*KINDS, "told"])
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--skew-ms", type=int, default=0, help="by so much machines' clocks are wrong, at most")
    parser.add_argument("--base-s", type=float, default=5.0, help="time between two bases of the logs")
    parser.add_argument("--rate", type=float, default=40.0, help="calls of producers a second")
    parser.add_argument(
        "--standbys", type=float, default=STANDBYS, help="share of takeovers by a machine that stood by"
    )
    parser.add_argument(
        "--chapter", type=int, default=CHAPTER, metavar="N", help="takeovers until the history is checked"
    )
    parser.add_argument("--plain", action="store_true", help="one shared directory, no store")
    parser.add_argument("--directory", type=Path, help="where logs and the history stay; else they do after violations")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    directory = given.directory or Path(tempfile.mkdtemp(prefix="tarry-takeover-"))
    directory.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=directory / "clients.log", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else brokers and the store would be left
    try:
        is_right = asyncio.run(_run(given, directory))
    except pytest.skip.Exception as error:
        print(error)
        return 2
    if given.directory is None and is_right:
        shutil.rmtree(directory)
    return 0 if is_right else 1


async def _run(given: argparse.Namespace, directory: Path) -> bool:
    rng = random.Random(given.seed)
    rate = given.faults
    usual = Faults((given.delay_ms,), rate, rate, conflict=rate, late_put=rate, late_read=rate, late_s=LATE_S)
    with nullcontext(None) if given.plain else served(directory / "bucket") as endpoint:
        machines = []
        for number in range(given.machines):
            proxy = (
                None
                if endpoint is None
                else Proxy(endpoint.removeprefix("http://"), rng.randrange(1 << 30), usual, area)
            )
            if proxy is not None:
                await proxy.start()
            data = directory / ("data" if given.plain else f"data-{number}")
            machines.append(Machine(f"{number}", data, proxy, given.skew_ms * (number % 3 - 1), given.base_s))
        kinds = PLAIN_KINDS if given.plain else given.kinds
        campaign = Campaign(
            *(Owners(machines, now_ms), rng, kinds, given.takeovers, given.rate, usual),
            standbys=0.0 if given.plain else given.standbys,
            chapter=given.chapter,
            history=directory / "history.jsonl",
        )
        begin_s = time.monotonic()
        try:
            await campaign.run()
        finally:
            await campaign.owners.close()
            campaign.result.tell(campaign.recorder, time.monotonic() - begin_s)
    wrong = [*campaign.result.wrong, *campaign.owners.wrong]
    for each in wrong:
        print(each)
    if wrong:
        print(f"{len(wrong)} violations; the history and the logs are in {directory}")
    return not wrong


if __name__ == "__main__":
    sys.exit(main())
