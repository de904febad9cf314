"""``make fuzz-door``: callers without a right at every port of a broker with identities, for as long as asked.

No answer may need a right, nothing may change, others' calls go on, the log shows neither a bug nor a secret, memory
stays, and connections are given back. A run prints its seed; the same seed sends the same calls again.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.faults import fast_directory
from tests.fuzz.door_target import WEAK, DoorTarget
from tests.fuzz.strangers import Strangers

CHECK_EVERY = 50
"""Calls between two looks at the broker."""
WARM_CALLS = 1_000
"""Calls after which its memory is taken as what it needs."""


def fuzz_door(
    seed: int,
    directory: Path,
    *,
    calls: int | None = None,
    seconds: float | None = None,
    weak: Sequence[str] = WEAK,
) -> Counter[str]:
    """Knock so often, or for so long; how often each kind knocked, and how it was answered.

    Args:
        weak: other grants of the identity "weak", to see that this finds what it looks for.

    Raises:
        AssertionError: something does not hold.
    """
    rng, outcomes = random.Random(seed), Counter[str]()
    last: deque[str] = deque(maxlen=CHECK_EVERY)
    end = None if seconds is None else time.monotonic() + seconds
    with DoorTarget(directory, weak) as target:
        strangers = Strangers(target)
        kinds: list[Callable[[random.Random], str]] = [
            *(strangers.http, strangers.http, strangers.http_half, strangers.tls_half, strangers.link, strangers.link),
            *(strangers.flight, strangers.rocketmq, strangers.rocketmq, strangers.remoting, strangers.mqtt),
        ]
        sent = 0
        try:
            while (calls is None or sent < calls) and (end is None or time.monotonic() < end):
                kind = rng.choice(kinds)
                last.append(f"{kind.__qualname__} was called")
                last[-1] = kind(random.Random(rng.random()))
                outcomes[f"{kind.__qualname__}: {last[-1].rpartition(': ')[2]}"] += 1
                sent += 1
                if sent % CHECK_EVERY == 0:
                    target.check()
                    if sent >= WARM_CALLS:
                        target.check_memory()
            strangers.close()
            target.check()
            target.check_given_back()
        except BaseException as error:
            error.add_note(f"seed {seed}, call {sent}; the last calls:\n" + "\n".join(each[:3000] for each in last))
            raise
        finally:
            strangers.close()
        print(f"{sent:,} calls, memory {target.memory_text()}", flush=True)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.door", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, metavar="N", help="how long (default: %(default)g)")
    parser.add_argument("--calls", type=int, metavar="N", help="how many at most")
    parser.add_argument("--seed", type=int, metavar="N", help="of a former run, to send the same calls again")
    given = parser.parse_args()
    seed = random.randrange(1 << 30) if given.seed is None else given.seed
    print(f'seed {seed}: make fuzz-door ARGS="--seed {seed}" sends the same', flush=True)
    directory = fast_directory()
    try:
        outcomes = fuzz_door(seed, directory, calls=given.calls, seconds=given.seconds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:>9,}  {outcome}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
