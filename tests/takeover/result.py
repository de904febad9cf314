"""Result of a campaign: what it counted, how long clients waited, and owners that answered when they were none."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.takeover.clients import Recorder
from tests.takeover.events import Claim, Delivery, Event, Send
from tests.takeover.history import ACCEPTED, Report
from tests.takeover.owners import Life


def former_owners(events: Sequence[Event], lives: Sequence[Life]) -> Iterator[str]:
    """Answers of brokers that had lost the log when they were asked."""
    for event in events:
        if isinstance(event, Delivery | Claim) or event.answer == "?" or event.life + 1 >= len(lives):
            continue
        if event.begin_ms > lives[event.life + 1].claimed_ms[1]:
            yield f"life {event.life} answered when life {event.life + 1} served: {event}"


def times(events: Sequence[Event], lives: Sequence[Life]) -> dict[tuple[str, str], list[float]]:
    """Seconds from each fault to the first accepted send and the first hand-out, by kind of fault."""
    found = defaultdict(list)
    for life in lives[1:]:
        own = [event for event in events if event.life == life.number]
        sends = [each.end_ms for each in own if isinstance(each, Send) and each.answer in ACCEPTED]
        deliveries = [each.at_ms for each in own if isinstance(each, Delivery)]
        for what, ends in (("send", sends), ("hand-out", deliveries)):
            if ends:
                found[what, life.why].append((min(ends) - life.fault_ms) / 1000)
    return found


def tell(recorder: Recorder, takeovers: Counter[str], report: Report, took_s: float) -> None:
    """Print the result. ``takeovers``: how many, by kind; ``took_s``: for how long all of it took."""
    owners, counts = recorder.owners, report.counts
    print(f"takeovers: {takeovers.total()}, {dict(takeovers)}; starts that failed: {len(owners.failed)}")
    for text in owners.failed:
        print(f"  {text}")
    print(
        f"accepted {counts['accepted']}, in doubt {counts['in_doubt']}, delivered {counts['delivered']}, "
        f"repeated {counts['repeated']}, by former owners after an acknowledgement {counts['stale']}"
    )
    if counts["undecided"]:
        print(f"keys with too many calls in doubt to be checked: {counts['undecided']}")
    kinds = report.kinds
    print(", ".join(f"{kind} {kinds[kind]}" for kind in ("lost", "early", "after_done", *sorted(kinds))))
    print(f"calls without an answer: {dict(recorder.errors)}")
    for (what, why), seconds in sorted(times(recorder.events, owners.lives).items()):
        median, most = statistics.median(seconds), max(seconds)
        print(f"fault to first {what}, {why}: p50 {median:.2f} s, max {most:.2f} s, of {len(seconds)}")
    for kind, number in sorted(owners.requests.items()):
        print(f"requests, {kind}: {number}, {number / took_s:.1f}/s")
    injected = sum((each.proxy.injected for each in owners.machines if each.proxy), Counter[str]())
    print(f"faults on the way to the store: {dict(injected)}")
