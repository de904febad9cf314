"""What at-least-once permits beside RabbitMQ: which message may have come twice, and which kill explains it.

There are two places where an answer can be lost, and each leaves a trace of its own.

- **On the way in.** RabbitMQ gives a message to the bridge again if one of the two is killed before RabbitMQ has the
  acknowledgement. If the first was due by then, it is scheduled anew: there are two rows in Tarry's intake. A program
  that publishes again, since its confirm was lost, does the same.
- **On the way out.** A message is published again if RabbitMQ, or the bridge, is killed before the bridge has the
  confirm and Tarry the acknowledgement: it comes more often than there are rows.

A kill of Tarry explains neither. The bridge lives on, and knows what RabbitMQ has confirmed; and a message whose answer
was lost is scheduled under the same id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

BEFORE_S = 5.0
"""Longest time for which an acknowledgement is on its way, on a busy machine."""
AFTER_S = 15.0
"""Time after a return in which what was under way is handed out again: the longest pause between two tries, and 5 s."""
DOUBLING = frozenset({"bridge", "rabbitmq"})


@dataclass(frozen=True)
class Kill:
    """``at`` and ``back``: when it was killed, and when all worked again; seconds of the wall clock."""

    at: float
    back: float
    kind: str


@dataclass(frozen=True)
class Outage:
    """Kills that follow one another so closely that what one leaves in doubt may meet the next."""

    since: float
    until: float
    kills: tuple[Kill, ...]

    def cause(self, first: float, second: float) -> str | None:
        """Return what was killed so that what was done at ``first`` was done again at ``second``."""
        if not self.since <= first <= self.until:
            return None
        kinds = {kill.kind for kill in self.kills if kill.at <= second} & DOUBLING
        return "+".join(sorted(kinds)) or None


def outages(kills: Sequence[Kill]) -> list[Outage]:
    """Join kills to outages."""
    found: list[Outage] = []
    for kill in sorted(kills, key=lambda kill: kill.at):
        since, until = kill.at - BEFORE_S, kill.back + AFTER_S
        if found and since <= found[-1].until:
            last = found.pop()
            found.append(Outage(last.since, max(last.until, until), (*last.kills, kill)))
        else:
            found.append(Outage(since, until, (kill,)))
    return found


@dataclass
class Traces:
    """What is known of one message."""

    came: list[float] = field(default_factory=list)
    """When a program got it from the target queue."""
    scheduled: list[float] = field(default_factory=list)
    """When Tarry accepted each of its rows."""
    published_again: int = 0
    given_again: int = 0
    """By the target queue, to a program that had it: its acknowledgement was lost."""


def judge(traces: Traces, found: Sequence[Outage]) -> tuple[Counter[str], list[str]]:
    """Return the causes of doubles, by place and what was killed, and what nothing explains."""
    causes, faults = Counter[str](), list[str]()
    rows, times = len(traces.scheduled), len(traces.came)
    if not times:
        return causes, ["is lost"]
    if times + traces.given_again < rows:
        faults.append(f"was scheduled {rows} times, and has come {times} times")
    left = traces.published_again
    for first, second in pairwise(sorted(traces.scheduled)):
        if (cause := _cause(first, second, found)) is not None:
            causes[f"in, {cause}"] += 1
        elif left:
            left -= 1
            causes["in, published again"] += 1
        else:
            faults.append(f"was scheduled twice, at {first:.3f} and {second:.3f}, without a kill of RabbitMQ or bridge")
    explained = [cause for pair in pairwise(sorted(traces.came)) if (cause := _cause(*pair, found)) is not None]
    for _ in range(times - rows):
        if explained:
            causes[f"out, {explained.pop()}"] += 1
        else:
            seen = ", ".join(f"{time:.3f}" for time in traces.came)
            faults.append(f"was scheduled {rows} times, and has come at {seen}, without a kill of RabbitMQ or bridge")
    return causes, faults


def _cause(first: float, second: float, found: Sequence[Outage]) -> str | None:
    return next((cause for each in found if (cause := each.cause(first, second)) is not None), None)
