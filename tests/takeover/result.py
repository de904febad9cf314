"""Result of a campaign: what it counted, how long clients waited, and owners that answered when they were none."""

from __future__ import annotations

import math
import resource
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.takeover.clients import Recorder
from tests.takeover.events import Claim, Delivery, Event, Send
from tests.takeover.history import ACCEPTED, Report
from tests.takeover.owners import Life

KINDS = ("lost", "early", "after_done")
"""Violations that are told of, also where there is none."""


def former_owners(events: Sequence[Event], lives: Sequence[Life]) -> Iterator[str]:
    """Answers of brokers that had lost the log when they were asked."""
    for event in events:
        if isinstance(event, Delivery | Claim) or event.answer == "?" or event.life + 1 >= len(lives):
            continue
        if event.begin_ms > lives[event.life + 1].claimed_ms[1]:
            yield f"life {event.life} answered when life {event.life + 1} served: {event}"


def times(events: Sequence[Event], lives: Sequence[Life]) -> dict[tuple[str, str], list[float]]:
    """Seconds from each fault to the first accepted send and the first hand-out, by how the next owner came to serve.

    Of the owners whose claim is among the events.
    """
    claimed = {event.life for event in events if isinstance(event, Claim)}
    first: dict[tuple[str, int], float] = {}
    for event in events:
        if isinstance(event, Send) and event.answer in ACCEPTED:
            place, at_ms = ("send", event.life), event.end_ms
        elif isinstance(event, Delivery):
            place, at_ms = ("hand-out", event.life), event.at_ms
        else:
            continue
        first[place] = min(at_ms, first.get(place, math.inf))
    found = defaultdict(list)
    for (what, number), at_ms in first.items():
        if number and number in claimed:
            found[what, lives[number].label].append((at_ms - lives[number].fault_ms) / 1000)
    return found


def percentile(seconds: Sequence[float], part: float) -> float:
    """Return the smallest of them that ``part`` of them do not exceed."""
    return sorted(seconds)[max(0, math.ceil(part * len(seconds)) - 1)]


@dataclass
class Result:
    """What came of the chapters so far."""

    takeovers: Counter[str] = field(default_factory=Counter)
    """By how the next owner came to serve."""
    wrong: list[str] = field(default_factory=list)
    """Violations."""
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    """See :func:`times`."""

    def add(self, events: Sequence[Event], lives: Sequence[Life], report: Report) -> None:
        """Add a chapter."""
        self.wrong += [*former_owners(events, lives), *map(str, report.violations)]
        self.counts += report.counts
        self.kinds += report.kinds
        for place, seconds in times(events, lives).items():
            self.seconds[place] += seconds

    def tell_chapter(self, report: Report) -> None:
        """Print what came of the last chapter, and how much memory the campaign has needed."""
        counts, mib = report.counts, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"checked: accepted {counts['accepted']}, delivered {counts['delivered']}, violations "
            f"{len(report.violations)}; at most {mib:.0f} MiB of memory so far",
            flush=True,
        )

    def tell(self, recorder: Recorder, took_s: float) -> None:
        """Print the result. ``took_s``: for how long all of it took."""
        owners, counts = recorder.owners, self.counts
        print(
            f"takeovers: {self.takeovers.total()} in {took_s / 60:.0f} minutes; "
            f"starts that failed: {len(owners.failed)}"
        )
        for label, number in sorted(self.takeovers.items()):
            print(f"  {number:4} {label}")
        for text in owners.failed:
            print(f"  {text}")
        print(
            f"accepted {counts['accepted']}, in doubt {counts['in_doubt']}, delivered {counts['delivered']}, "
            f"repeated {counts['repeated']}, by former owners after an acknowledgement {counts['stale']}"
        )
        if counts["undecided"]:
            print(f"keys with too many calls in doubt to be checked: {counts['undecided']}")
        others = sorted(self.kinds.keys() - set(KINDS))
        print(", ".join(f"{kind} {self.kinds[kind]}" for kind in (*KINDS, *others)))
        print(f"calls without an answer: {dict(recorder.errors)}")
        for (what, label), seconds in sorted(self.seconds.items()):
            p50, p99 = percentile(seconds, 0.5), percentile(seconds, 0.99)
            print(f"fault to first {what}, {label}: p50 {p50:.2f} s, p99 {p99:.2f} s, of {len(seconds)}")
        for kind, number in sorted(owners.requests.items()):
            print(f"requests, {kind}: {number}, {number / took_s:.1f}/s")
        injected = sum((each.proxy.injected for each in owners.machines if each.proxy), Counter[str]())
        print(f"faults on the way to the store: {dict(injected)}")
