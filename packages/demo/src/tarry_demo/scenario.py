"""The run in its order.

Broker, Spark, the year scheduled, replayed, consumed, and the kill in the middle.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tarry.base.errors import TarryError, UnavailableError
from tarry.base.types import Int64s
from tarry.client import AsyncClient, Client
from tarry_demo.account import Downtime
from tarry_demo.broker_process import (
    EXIT_S,
    BrokerProcess,
    ExitWatch,
    last_line,
    living_processes,
    signal_name,
    wait_for_exit,
)
from tarry_demo.consumer_process import ConsumerProcess
from tarry_demo.facts import Facts, KillFacts, StoreFacts
from tarry_demo.flights import TOPICS, Flights
from tarry_demo.monitor import BrokerSnapshot, Monitor
from tarry_demo.replay import WAYS, Book, LateBookings, Plan, schedule_singles, schedule_table
from tarry_demo.screen import Screen, ScreenStep

GROUP = "gates"
SETTINGS: Mapping[str, str | int] = {
    # A replay takes minutes, not months: "soon" is shorter, too, so that the store has its part.
    "horizon_ms": 3_000,
    "schedule_interval_ms": 5_000,
    # Delivered messages stay in the table: its rows are counted at the end.
    "compact_interval_ms": 0,
}
SPARK_S = 180.0
LEAD_S = 12.0
LEAD_S_PER_ROW = 12.0 / 336_776
"""Seconds from scheduling to the first departure, in which Spark reads, sorts and commits."""
KILL_AT = 0.5
BACK_S = 120.0
DRAIN_S = 90.0
TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """Results of a run for the report."""

    facts: Facts
    accepted: pa.Table
    delivered: pa.Table
    looks: list[BrokerSnapshot]


class Scenario:
    """One run; call :meth:`run` once."""

    def __init__(self, flights: Flights, *, seconds: float, kill: bool, data: Path, out: Path, screen: Screen) -> None:
        self._flights = flights
        self._seconds = seconds
        self._kill = kill
        self._out = out
        self._screen = screen
        self._plan = Plan.of(len(flights), seconds)
        self._book = Book()
        self._facts = Facts(len(flights), seconds, 0)
        self._former_pipeline: int | None = None
        self._broker = BrokerProcess(data, out / "broker.log", SETTINGS)

    def run(self) -> ScenarioResult:
        """Run the demo.

        Whatever happens, every process has ended when this returns or raises.

        Raises:
            TarryError: something failed, so that there is no result.
        """
        with ExitStack() as stack:
            stack.enter_context(self._broker)
            self._start(stack)
            due_ms = self._schedule()
            late = stack.enter_context(
                LateBookings(self._broker.address, self._flights, self._plan, due_ms, self._book)
            )
            self._replay(due_ms, late)
            self._drain(late)
            self._check_recovery()
            delivered = self._consumer.finish()
            self._count(delivered)
        return ScenarioResult(self._facts, self._book.accepted(), delivered, self._monitor.looks)

    # -- the parts, in order -------------------------------------------------------------------------------------------

    def _start(self, stack: ExitStack) -> None:
        with self._screen.step("starting a broker") as step:
            self._broker.start()
            step.done = f"a broker serves on {self._broker.address}, process {self._broker.pid}"
        self._monitor = stack.enter_context(Monitor(self._broker))
        self._consumer = stack.enter_context(
            ConsumerProcess(self._broker.address, GROUP, self.delivered_file, TOPICS, self._out / "consumer.log")
        )
        started = time.monotonic()
        with self._screen.step("starting its Spark pipeline (the broker serves meanwhile)") as step:

            def meanwhile() -> None:
                self._check_alive()
                step.update(0, self._monitor.last.pipeline_state if self._monitor.last else "")

            ready = self._monitor.wait(lambda look: look.pipeline_ready, SPARK_S, meanwhile)
            if ready is None:
                raise UnavailableError(
                    f"the Spark pipeline did not start within {SPARK_S:g} s: {self._pipeline_says()}"
                )
            step.done = f"Spark is ready, process {ready.pipeline_pid}"
        self._facts.spark_start_s = round(time.monotonic() - started, 3)

    def _schedule(self) -> Int64s:
        """Schedule all that is scheduled before the replay; return each row's due time."""
        lead_s = LEAD_S + LEAD_S_PER_ROW * len(self._flights)
        start_ms = self._facts.start_ms = _now_ms() + round(lead_s * 1000)
        due_ms = start_ms + self._flights.due_after_ms(self._seconds)
        plan, book = self._plan, self._book
        with self._screen.step("scheduling the year as one Arrow table", len(plan.bulk)) as step:
            started = time.monotonic()
            with Client(self._broker.address) as client:
                schedule_table(client, self._flights, plan.bulk, due_ms, book, step.advance)
            self._facts.scheduled_per_s = round(len(plan.bulk) / (time.monotonic() - started))
            step.done = f"{len(plan.bulk):,} departures scheduled as one Arrow table, in random order"
        with self._screen.step("scheduling some one by one", len(plan.single)) as step:
            asyncio.run(self._singles(due_ms, step))
            step.done = f"{len(plan.single):,} departures scheduled one by one"
        self._wait_for_spark(start_ms)
        return due_ms

    async def _singles(self, due_ms: Int64s, step: ScreenStep) -> None:
        async with AsyncClient(self._broker.address) as client:
            await schedule_singles(client, self._flights, self._plan.single, due_ms, self._book, step.advance)

    def _wait_for_spark(self, start_ms: int) -> None:
        rows = sum(len(part) for part, _, _, _ in self._book.parts)
        with self._screen.step("Spark sorts them into the Delta table, before the first is due", rows) as step:

            def meanwhile() -> None:
                self._check_alive()
                committed = self._monitor.last.committed_seq if self._monitor.last else 0
                step.update(committed, f"{committed:,} rows committed, first departure in {_until_s(start_ms):.0f} s")

            done = self._monitor.wait(lambda look: look.committed_seq >= rows, _until_s(start_ms), meanwhile)
            # A delay here loses nothing: the first due messages are then delivered from the intake.
            committed = rows if done is not None else self._monitor.last.committed_seq if self._monitor.last else 0
            step.done = f"{committed:,} of them are in the Delta table, sorted by due time"

    def _replay(self, due_ms: Int64s, late: LateBookings) -> None:
        start_ms, end_ms = self._facts.start_ms, int(due_ms.max())
        kill_ms = start_ms + round(KILL_AT * self._seconds * 1000) if self._kill else None
        ascending = np.sort(due_ms)
        with self._screen.step(f"the year 2013 in {self._seconds:g} s", len(self._flights)) as step:
            while (now := _now_ms()) < end_ms:
                self._check_alive()
                late.check()
                if kill_ms is not None and now >= kill_ms:
                    kill_ms = None
                    self._kill_broker()
                step.update(self._consumer.count, self._progress(ascending, now))
                time.sleep(TICK_S)
            step.done = f"the year 2013 in {self._seconds:g} s: {self._consumer.count:,} messages handed out"

    def _progress(self, ascending: Int64s, now_ms: int) -> str:
        due = int(np.searchsorted(ascending, now_ms, side="right"))
        day = np.datetime64(int(self._flights.instant_ms[max(0, due - 1)]), "ms").astype("datetime64[D]")
        return f"{day}: {due:,} have fallen due, {self._consumer.count:,} handed out"

    def _kill_broker(self) -> None:
        last = self._monitor.last
        sessions = self._broker.sessions
        processes, pid = len(living_processes(sessions)), self._broker.pid
        killed_ms = _now_ms()
        self._broker.kill()
        self._former_pipeline = last.pipeline_pid if last else None
        self._exit_watch = ExitWatch(self._broker, sessions)
        self._broker.start()
        outage = Downtime(killed_ms, _now_ms())
        self._facts.kill = KillFacts(outage, processes, 0.0, [], None)
        self._screen.say(
            f"✗ broker {pid} killed (SIGKILL) with {processes} processes; broker {self._broker.pid} serves "
            f"on the same directory {outage.seconds:.2f} s later",
            "bold",
        )

    def _drain(self, late: LateBookings) -> None:
        with self._screen.step("waiting for the last acknowledgement") as step:
            late.finish(DRAIN_S)
            end = time.monotonic() + DRAIN_S
            drained = False
            while not drained and time.monotonic() < end:
                self._check_alive()
                time.sleep(TICK_S)
                drained = self._monitor.drained()
            self._facts.undrained = not drained
            step.done = "everything was handed out and acknowledged" if drained else "NOT everything was handed out"

    def _check_recovery(self) -> None:
        """Check after a kill that the former processes ended by themselves, and that Spark works again."""
        kill = self._facts.kill
        if kill is None:
            return
        with self._screen.step("making sure that Spark came back, and that nothing is left of the killed") as step:
            gone_s, left = self._exit_watch.result()
            killed_ms = kill.outage.killed_ms

            def back(look: BrokerSnapshot) -> bool:
                return look.at_ms > killed_ms and look.pipeline_ready and look.pipeline_pid != self._former_pipeline

            seen = next((look for look in self._monitor.looks if back(look)), None)
            seen = seen or self._monitor.wait(back, BACK_S, self._check_alive)
            back_s = None if seen is None else (seen.at_ms - killed_ms) / 1000
            self._facts.kill = replace(kill, gone_s=round(gone_s, 3), left=left, pipeline_back_s=back_s)
            exits = f"all gone after {gone_s:.1f} s" if not left else f"still there: {left}"
            step.done = f"of the killed broker's processes: {exits}; Spark " + (
                f"was back after {back_s:.1f} s"
                if back_s is not None
                else f"did not come back: {self._pipeline_says()}"
            )

    def _count(self, delivered: pa.Table) -> None:
        facts, looks = self._facts, self._monitor.looks
        last = self._monitor.look()
        facts.ways = dict(zip(WAYS, map(len, (self._plan.bulk, self._plan.single, self._plan.late)), strict=True))
        facts.asked_again = self._book.asked_again
        facts.fired, facts.fired_from_store, facts.pipeline = last.fired, last.fired_from_store, last.pipeline
        facts.broker_bytes_max = max(look.broker_bytes for look in looks)
        facts.pipeline_bytes_max = max(look.pipeline_bytes for look in looks)
        if facts.kill is not None:
            facts.kill = replace(facts.kill, outage=_with_next_hand_out(facts.kill.outage, delivered))
        with self._screen.step("stopping the broker") as step:
            sessions, started = self._broker.sessions, time.monotonic()
            facts.stop_code = self._broker.stop()
            facts.stop_s = round(time.monotonic() - started, 3)
            facts.left_at_end = wait_for_exit(sessions, EXIT_S)[1]
            step.done = f"the broker stopped: {signal_name(facts.stop_code)}"
        facts.store = StoreFacts.of(self._broker.data / "store")

    # -- checks -------------------------------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        code = self._broker.died()
        if code is not None:
            raise TarryError(f"the broker ended ({signal_name(code)}): {last_line(self._broker.log)}")
        if self._consumer.died():
            raise TarryError(f"the consumer ended: {last_line(self._out / 'consumer.log')}")

    def _pipeline_says(self) -> str:
        pipeline = self._monitor.last.pipeline if self._monitor.last else {}
        supervisor = pipeline.get("supervisor") or {}
        return str(pipeline.get("error") or supervisor.get("last_error") or last_line(self.pipeline_log))

    @property
    def delivered_file(self) -> Path:
        """The file of hand-outs that the consumer writes at its end."""
        return self._out / ".delivered.arrow"

    @property
    def pipeline_log(self) -> Path:
        """The log of Spark."""
        return self._broker.data / "pipeline" / "pipeline.log"


def _with_next_hand_out(outage: Downtime, delivered: pa.Table) -> Downtime:
    moments_ms = delivered.column("handed_out_ns").to_numpy() // 1_000_000
    # Messages that the consumer had when the broker died are handed out meanwhile: that needs no broker.
    after = moments_ms[moments_ms >= outage.serving_ms]
    return replace(outage, next_hand_out_ms=int(after.min()) if len(after) else None)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _until_s(ms: int) -> float:
    return max(0.0, ms / 1000 - time.time())
