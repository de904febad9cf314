"""Checks of a history: what the broker promises, over all its lives, against what clients have seen.

What was accepted is delivered, unless it was cancelled; never before its due time; and of what was cancelled, moved or
replaced ("done", "replaced") nothing is ever delivered. The answers about each message, or each key, fit one order
(``registers.py``). What was acknowledged does not come again; an id is one message; messages of an order key come in
the order of their due times; and a series has one occurrence after the other. That a message comes again which was not
acknowledged is no fault, and is counted.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations

from tests.takeover.events import (
    UNKNOWN,
    Ack,
    Cancel,
    Claim,
    Delivery,
    Event,
    Move,
    Placing,
    Send,
    story,
)
from tests.takeover.registers import Bounds, UndecidedError, is_linearizable, steps_of, take_step

AHEAD_MS = 6_000.0
"""So far beyond a claim the new owner may count as taken what was due."""
ACCEPTED = ("scheduled", "replaced")


@dataclass(frozen=True, slots=True)
class Violation:
    """One promise that was not kept, with the events of the message."""

    kind: str
    """lost, early, after_done, contradiction, twice, after_ack, order, series."""
    what: str
    story: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}\n{self.story}"


@dataclass
class Report:
    """Result of a check."""

    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """accepted, in_doubt (sends without an answer), delivered, repeated, stale (after an acknowledgement, by an owner
    of before), undecided (keys with too many calls in doubt)."""

    @property
    def kinds(self) -> Counter[str]:
        return Counter(each.kind for each in self.violations)


@dataclass
class Unit:
    """Events of one key, of one message without a key, or of one series."""

    name: str
    calls: list[Send | Cancel] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        return [*self.calls, *self.deliveries, *self.acks]

    @property
    def sends(self) -> list[Send]:
        return [each for each in self.calls if isinstance(each, Send)]

    @property
    def placings(self) -> set[Placing]:
        """All placings that there may be."""
        names = {send.name for send in self.sends}
        moved = {(name, call.due_ms) for call in self.calls if isinstance(call, Move) for name in names}
        return {send.placing for send in self.sends} | moved

    @cached_property
    def by_placing(self) -> dict[Placing, list[Delivery]]:
        found = defaultdict(list)
        for delivery in sorted(self.deliveries, key=lambda each: each.at_ms):
            found[delivery.placing].append(delivery)
        return found


def check(events: Iterable[Event], *, drained: bool = True, ahead_ms: float = AHEAD_MS, skew_ms: float = 0.0) -> Report:
    """Check a history.

    ``drained``: at its end, everything that was due had been consumed. ``ahead_ms``: see :data:`AHEAD_MS`. ``skew_ms``:
    by so much brokers' clocks may differ from that of the history.
    """
    return _Checker(list(events), drained, ahead_ms, skew_ms).run()


class _Checker:
    def __init__(self, events: Sequence[Event], drained: bool, ahead_ms: float, skew_ms: float) -> None:
        self.claims = [each for each in events if isinstance(each, Claim)]
        self.drained, self.ahead_ms, self.skew_ms = drained, ahead_ms, skew_ms
        self.units = list(_units(events))
        self.report = Report()

    def run(self) -> Report:
        for unit in self.units:
            self._count(unit)
            self._early(unit)
            self._twice(unit)
            self._after_ack(unit)
            if any(send.every_ms for send in unit.sends):
                self._series(unit)
            else:
                self._registers(unit)
        self._order()
        return self.report

    def _count(self, unit: Unit) -> None:
        counts = self.report.counts
        counts["accepted"] += sum(send.answer in ACCEPTED for send in unit.sends)
        counts["in_doubt"] += sum(send.answer == UNKNOWN for send in unit.sends)
        counts["delivered"] += len(unit.by_placing)
        counts["repeated"] += len(unit.deliveries) - len(unit.by_placing)

    def _fail(self, kind: str, what: str, events: Sequence[Event]) -> None:
        self.report.violations.append(Violation(kind, what, story(events, self.claims)))

    def _early(self, unit: Unit) -> None:
        for delivery in unit.deliveries:
            if delivery.at_ms < delivery.due_ms - self.skew_ms:
                before_ms = delivery.due_ms - delivery.at_ms
                self._fail("early", f"{delivery.name} came {before_ms:.1f} ms before its due time", unit.events)

    def _twice(self, unit: Unit) -> None:
        seqs = defaultdict(set)
        for call in unit.calls:
            if isinstance(call, Send) and call.answer in ACCEPTED:
                seqs[call.placing].add(call.seq)
            elif isinstance(call, Move) and call.answer == "done" and call.target is not None:
                seqs[call.target[0], call.due_ms].add(call.seq)
        for delivery in unit.deliveries:
            seqs[delivery.placing].add(delivery.seq)
        for (name, _), numbers in seqs.items():
            if len(numbers) > 1:
                self._fail("twice", f"{name} is messages {sorted(map(str, numbers))}", unit.events)

    def _after_ack(self, unit: Unit) -> None:
        answered = {ack.seq: ack for ack in reversed(unit.acks) if ack.answer == "done"}
        for delivery in unit.deliveries:
            ack = answered.get(delivery.seq)
            if ack is not None and delivery.at_ms > ack.end_ms:
                if delivery.life < ack.life:
                    self.report.counts["stale"] += 1  # it was on its way when its owner had lost the log
                else:
                    self._fail("after_ack", f"{delivery.name} came after its acknowledgement", unit.events)

    def _registers(self, unit: Unit) -> None:
        try:
            if self._fits(unit, unit.deliveries):
                return
            kind, what = self._reason(unit)
        except UndecidedError:
            self.report.counts["undecided"] += 1
            return
        self._fail(kind, what, unit.events)

    def _fits(self, unit: Unit, deliveries: Sequence[Delivery], *, lost: bool = False) -> bool:
        """Return whether one order fits a unit's calls; ``lost``: also if what was never delivered had been."""
        bounds = Bounds(self.claims, self.ahead_ms, self.skew_ms)
        steps = steps_of(unit.calls, deliveries, bounds)
        if lost or not self.drained:
            for placing in unit.placings - {each.placing for each in deliveries}:
                steps.append(take_step(placing, math.inf, bounds, optional=True))
        return is_linearizable(steps, ends=self.drained and not lost)

    def _reason(self, unit: Unit) -> tuple[str, str]:
        """Return the kind of a violation, of what makes the answers fit, and a text."""
        names = {each.name for each in unit.deliveries} - {each.name for each in unit.sends}
        if names:
            return "contradiction", f"{names.pop()} was delivered, and never sent"
        for placing in unit.by_placing:
            if self._fits(unit, [each for each in unit.deliveries if each.placing != placing]):
                return "after_done", f"{placing[0]} was delivered, and had been cancelled, moved or replaced"
        if self._fits(unit, unit.deliveries, lost=True):
            return "lost", f"{unit.name} was accepted, and was never delivered"
        return "contradiction", f"no order fits the answers about {unit.name}"

    def _series(self, unit: Unit) -> None:
        for what in self._series_faults(unit):
            self._fail("series", what, unit.events)

    def _series_faults(self, unit: Unit) -> Iterator[str]:
        first = unit.sends[0]
        cancels = [each for each in unit.calls if isinstance(each, Cancel)]
        done = [each for each in cancels if each.answer == "done"]
        occurrences = [first.due_ms + number * first.every_ms for number in range(first.times)]
        came = [due_ms for _, due_ms in sorted(unit.by_placing)]
        if came != occurrences[: len(came)]:
            yield f"{first.name}: an occurrence was left out, or is none of the series'"
        is_accepted = any(send.answer in (*ACCEPTED, "duplicate") for send in unit.sends)
        is_ended = done or any(each.answer == UNKNOWN for each in cancels)
        if self.drained and len(came) < first.times and is_accepted and not is_ended:
            yield f"{first.name}: {len(came)} of {first.times} occurrences came"
        if len(done) > 1:
            yield f"{first.name} was cancelled twice"
        if done and len(came) >= first.times:
            yield f"{first.name}: all occurrences came, and one was cancelled"
        if done and came and came[-1] > done[0].end_ms + self.skew_ms:
            yield f"{first.name}: an occurrence came that was to come when the series was cancelled"
        for each in cancels:
            if each.answer == "cancelled" and not any(
                other.begin_ms < each.end_ms for other in cancels if other.answer in ("done", UNKNOWN)
            ):
                yield f"{first.name} is said to be cancelled, and nobody had done that"

    def _order(self) -> None:
        """Check the messages of each order key that were never changed, and were there when they fell due."""
        groups = defaultdict(list)
        for unit in self.units:
            match unit.calls:
                case [Send(order_key=str(key)) as send] if send.placing in unit.by_placing:
                    groups[key].append((send, unit.by_placing[send.placing][0]))
        for key, pairs in groups.items():
            for (one, came), (other, other_came) in permutations(pairs, 2):
                was_there = one.answer in ACCEPTED and one.end_ms < one.due_ms - self.skew_ms
                if was_there and one.due_ms < other.due_ms and other_came.at_ms < came.at_ms:
                    what = f"of {key}, {other.name} came before {one.name}"
                    self._fail("order", what, [one, other, came, other_came])


def _units(events: Sequence[Event]) -> Iterator[Unit]:
    keys: dict[str, tuple[str, str]] = {}
    for event in events:
        if isinstance(event, Send):
            keys[event.name] = ("key", event.key) if event.key is not None else ("name", event.name)
    units: dict[tuple[str, str], Unit] = {}
    for event in events:
        match event:
            case Send() | Delivery() | Ack():
                place = keys.get(event.name, ("name", event.name))
            case Cancel(target=None):
                place = ("key", str(event.key))
            case Cancel(target=(name, _)):
                place = keys.get(name, ("name", name))
            case _:
                continue
        unit = units.setdefault(place, Unit(place[1]))
        match event:
            case Delivery():
                unit.deliveries.append(event)
            case Ack():
                unit.acks.append(event)
            case _:
                unit.calls.append(event)
    return iter(units.values())
