"""Calls of random kinds with a look at the broker now and then, and the command that runs them."""

from __future__ import annotations

import argparse
import random
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.faults import fast_directory

Kind = Callable[[random.Random], str]
"""Makes a call; what was sent, and how it was answered behind the last colon."""


@dataclass(frozen=True)
class Run:
    """How many calls at most, or for how many seconds; the same seed sends the same calls."""

    seed: int
    calls: int | None = None
    seconds: float | None = None

    def send(self, kinds: Sequence[Kind], check: Callable[[int], None], check_every: int) -> Counter[str]:
        """Send them. ``check`` gets how many were sent, after each ``check_every`` and at the end.

        Raises:
            AssertionError: something does not hold; the notes have the last calls.
        """
        rng, outcomes = random.Random(self.seed), Counter[str]()
        last: deque[str] = deque(maxlen=check_every)
        end = None if self.seconds is None else time.monotonic() + self.seconds
        sent = 0
        try:
            while (self.calls is None or sent < self.calls) and (end is None or time.monotonic() < end):
                kind = rng.choice(kinds)
                last.append(f"{kind.__qualname__} was called")
                last[-1] = kind(random.Random(rng.random()))
                outcomes[f"{kind.__qualname__}: {last[-1].rpartition(': ')[2]}"] += 1
                sent += 1
                if sent % check_every == 0:
                    check(sent)
            check(sent)
        except BaseException as error:
            shown = "\n".join(each[:3000] for each in last)
            error.add_note(f"seed {self.seed}, call {sent}; the last calls:\n{shown}")
            raise
        return outcomes


class Fuzz(Protocol):
    """Sends calls to a broker in a directory."""

    def __call__(self, run: Run, directory: Path) -> Counter[str]: ...


def run_command(fuzz: Fuzz, target: str, description: str | None) -> int:
    """Run what ``make TARGET`` runs, with its arguments; return the exit code."""
    parser = argparse.ArgumentParser(prog=f"make {target}", description=description)
    parser.add_argument("--seconds", type=float, default=300, metavar="N", help="how long (default: %(default)g)")
    parser.add_argument("--calls", type=int, metavar="N", help="how many at most")
    parser.add_argument("--seed", type=int, metavar="N", help="of a former run, to send the same calls again")
    given = parser.parse_args()
    seed = random.randrange(1 << 30) if given.seed is None else given.seed
    print(f'seed {seed}: make {target} ARGS="--seed {seed}" sends the same', flush=True)
    directory = fast_directory()
    try:
        outcomes = fuzz(Run(seed, given.calls, given.seconds), directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:>9,}  {outcome}")
    return 0
