"""What must hold: of a new owner at once, and of the whole history in the end."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.crash.takeovers.cluster import Cluster
from tests.crash.takeovers.history import GROUP, SEEKING
from tests.crash.takeovers.machines import Machine
from tests.takeover.events import UNKNOWN, Ack, Cancel, Delivery, Move, Placing, Send
from tests.takeover.history import ACCEPTED, check

AHEAD_MS = 2_500.0
"""At a claim, what is due within a lease counts as taken; and calls take a millisecond."""
QUIET_S = 20.0
"""So long an owner that writes is not taken over."""
BEHIND = 3
"""What a standby says is a second old, and an idle owner writes a round a second."""
SUCCESSION_S = 4.0
STANDBY_S = 300.0
"""An owner that has claimed and written nothing is waited for: 160 s at most, and a part more."""
LISTED = 1000
FAR_MS = 3_600_000


@dataclass
class Checks:
    """Each raises AssertionError if something does not hold."""

    _cluster: Cluster

    def __post_init__(self) -> None:
        self._history = self._cluster.history

    # -- of a new owner ------------------------------------------------------------------------------------------------

    def check_owner(self, machine: Machine) -> None:
        """It has the settings that were answered, and lists what is pending, and nothing that was cancelled."""
        if self._cluster.opened == 1:
            return
        for topic, allowed in self._history.tries.items():
            info, error = self._cluster.ask_former(machine, partial(machine.broker.group_info, topic, GROUP))
            assert error or info.tries in allowed, f"tries of {topic}: {info.tries}; allowed: {allowed}"
        listed, error = self._cluster.ask_former(machine, partial(listed_by, machine))
        if error or self._cluster.is_superseded(machine):
            return
        pending, ended = self._pending_and_ended()
        far_ms = self._cluster.now_ms() + AHEAD_MS + 2 * self._cluster.skew_ms
        pending = {each for each in pending if each[1] > far_ms}
        assert pending <= listed, f"not listed: {sorted(pending - listed)[:5]}"
        assert not ended & listed, f"listed, and ended: {sorted(ended & listed)[:5]}"
        self._cluster.done["pending messages that were listed"] += len(pending)
        self._check_counted(machine)

    def _check_counted(self, machine: Machine) -> None:
        """It counts, of each topic, as many pending messages as it lists."""
        if machine.broker.components.loader.is_bringing:
            return  # messages of a bulk job are listed as soon as they are in the wheel
        numbers, error = self._cluster.ask_former(machine, partial(counts_of, machine))
        if error:
            return
        counted, listed = numbers
        assert counted == listed, f"counted: {counted}; listed: {listed}"

    def check_list(self, machine: Machine) -> None:
        """A former owner lists what was, while its lease lasts, and then nothing."""
        begin_ms, was_superseded = self._cluster.now_ms(), self._cluster.is_superseded(machine)
        if not self._cluster.ask_former(machine, partial(listed_by, machine)).error and was_superseded:
            self._cluster.note("listed by a former owner", machine)
            self._cluster.check_lease(machine, begin_ms)

    def _pending_and_ended(self) -> tuple[set[Placing], set[Placing]]:
        """Return messages without a key that are pending, if they are not due; and those that have ended for good."""
        pending: set[Placing] = set()
        ended: set[Placing] = set()
        sends = {call.name: call for call in self._history.calls if isinstance(call, Send)}
        for call in self._history.calls:
            match call:
                case Cancel(target=(name, _)) if sends[name].every_ms:
                    pass  # its end is not that of the occurrence that it began with
                case Send(key=None, every_ms=0) if call.answer in ACCEPTED:
                    pending.add(call.placing)
                case Cancel(target=(name, due_ms)) if call.answer in ("done", UNKNOWN):
                    pending.discard((name, due_ms))
                    if call.answer == "done":
                        ended.add((name, due_ms))
                        if isinstance(call, Move) and sends[name].key is None:
                            pending.add((name, call.due_ms))
        return pending - ended, ended

    # -- of standbys ---------------------------------------------------------------------------------------------------

    def check_succession(self) -> Machine:
        """Return an owner whose store answers at once; whoever stands by follows it, and takes over from it alone.

        One that stands by has to take over when nobody owns the logs, or when the owner is killed, and not before.
        """
        cluster, world = self._cluster, self._cluster.world
        cluster.open_claimed()
        standbys = [each for each in cluster.standbys() if each.takeover == "auto"]
        owner = None
        if standbys and not cluster.owners():
            world.wait(lambda: any(each.has_ended for each in standbys), STANDBY_S, None)
            cluster.open_claimed()
            assert cluster.owners(), f"{len(standbys)} stand by, and none has taken over for {STANDBY_S:g} s"
        owner = cluster.owner()
        owner.way.be_well()
        if cluster.standbys_max and not cluster.standbys():
            cluster.stand_by().way.be_well()
        world.sleep(QUIET_S)
        assert not cluster.is_superseded(owner), "an owner that writes was taken over"
        for standby in cluster.standbys():
            cluster.check_standby(standby)
            assert owner.engine is not None
            position, rounds = standby.role["position"], owner.engine.state["rounds"]
            assert position["epoch"] == owner.epoch, f"a standby is in epoch {position['epoch']}, not {owner.epoch}"
            assert position["round"] >= rounds - BEHIND, f"a standby is at {position['round']} of {rounds} rounds"
            cluster.done["standbys that have followed"] += 1
        if standbys := [each for each in cluster.standbys() if each.takeover == "auto"]:
            cluster.drop(owner)
            taken = world.wait(lambda: any(each.has_ended for each in standbys), SUCCESSION_S, None)
            assert taken, f"no standby has taken over from a killed owner for {SUCCESSION_S:g} s"
            cluster.open_claimed()
            cluster.done["standbys that have taken over in time"] += 1
            owner = cluster.owner()
            owner.way.be_well()
        for standby in cluster.standbys():
            cluster.drop(standby)
        return owner

    # -- in the end ----------------------------------------------------------------------------------------------------

    def check_all(self, machine: Machine) -> None:
        """All that was seen fits; at ``machine``, everything has been consumed."""
        self._check_messages()
        self._check_seeks()
        self._check_jobs()
        for entry in machine.broker.pending():
            listed = sorted(listed_by(machine))
            assert entry.pending == 0, f"{entry.pending} of {entry.topic} are pending for ever; listed: {listed}"
        self._check_counts(machine)

    def _check_counts(self, machine: Machine) -> None:
        """Nothing is pending: one more message is one that is counted."""
        far_ms = machine.clock.now_ms() + FAR_MS
        for topic in self._history.tries:
            machine.call(partial(machine.broker.schedule, topic, b"counted", due=far_ms))
        for entry in machine.broker.pending():
            assert entry.pending == 1, f"{entry.topic} has one pending message, and counts {entry.pending}"

    def _check_messages(self) -> None:
        for group, seen in self._history.seen.items():
            is_moved = group == SEEKING
            events = [*self._history.calls, *(each for each in seen if not is_moved or isinstance(each, Delivery))]
            report = check(events, drained=not is_moved, ahead_ms=AHEAD_MS, skew_ms=self._cluster.skew_ms)
            assert not report.violations, "\n".join(map(str, report.violations[:3]))
            assert not report.counts["stale"], "a former owner hands out what a later one has had acknowledged"
            if not is_moved:
                self._cluster.done.update({f"history: {name}": count for name, count in report.counts.items()})

    def _check_seeks(self) -> None:
        """What was in the queue when its group was moved to the end does not come any more, until it is moved again."""
        for seek in self._history.seeks:
            if seek.answer != "done":
                continue
            # Of these it is certain that they had their place in the queue, whoever owned it.
            skipped = {
                each.seq
                for seen in self._history.seen.values()
                for each in seen
                if isinstance(each, Ack) and each.answer == "done" and each.end_ms < seek.begin_ms
            }
            later = [each.begin_ms for each in self._history.seeks if each.begin_ms > seek.begin_ms]
            for each in self._history.seen[SEEKING]:
                if isinstance(each, Delivery) and seek.end_ms < each.at_ms < min(later, default=math.inf):
                    assert each.seq not in skipped, f"{each.name} came after {seek}, which had skipped it"
            self._cluster.done["messages that a seek skipped"] += len(skipped)

    def _check_jobs(self) -> None:
        """Of a job, as many messages were delivered as were not cancelled."""
        came = {each.name for each in self._history.seen[GROUP] if isinstance(each, Delivery)}
        for job, rows in self._history.jobs.items():
            cancels = [each for each in self._history.job_cancels if each.job == job]
            cancelled = sum(each.cancelled for each in cancels)
            delivered = sum(name in came for name, _ in rows)
            is_certain = all(each.answer != UNKNOWN for each in cancels)
            fits = delivered + cancelled == len(rows) if is_certain else delivered + cancelled <= len(rows)
            assert fits, f"{delivered} of {len(rows)} messages of job {job} were delivered, and {cancelled} cancelled"


def listed_by(machine: Machine) -> set[Placing]:
    """Return what a broker lists as pending."""
    return {(row["body"].decode(), row["due_ms"]) for row in _rows_of(machine)}


def counts_of(machine: Machine) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many messages a broker counts as pending in each topic, and how many it lists."""
    counted = {entry.topic: entry.pending for entry in machine.broker.pending() if entry.pending}
    return counted, dict(Counter(row["topic"] for row in _rows_of(machine)))


def _rows_of(machine: Machine) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = machine.broker.list_pending(limit=LISTED, cursor=cursor)
        rows += page.rows.select(["topic", "body", "due_ms"]).to_pylist()
        cursor = page.cursor
        if cursor is None:
            return rows
