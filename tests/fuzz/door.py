"""``make fuzz-door``: callers without a right at every port of a broker with identities, for as long as asked.

No answer may need a right, nothing may change, others' calls go on, the log shows neither a bug nor a secret, memory
stays, and connections are given back. A run prints its seed; the same seed sends the same calls again.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.fuzz.door_target import ANONYMOUS, WEAK, DoorTarget
from tests.fuzz.running import Kind, Run, run_command
from tests.fuzz.strangers import Strangers

CHECK_EVERY = 50
"""Calls between two looks at the broker."""
WARM_CALLS = 1_000
"""Calls after which its memory is taken as what it needs."""


def fuzz_door(
    run: Run, directory: Path, weak: Sequence[str] = WEAK, anonymous: Sequence[str] | None = None
) -> Counter[str]:
    """Knock; how often each kind knocked, and how it was answered.

    Args:
        weak: other grants of the identity "weak", to see that this finds what it looks for.
        anonymous: grants of who shows nothing; None: with every other seed, some that open nothing here.

    Raises:
        AssertionError: something does not hold.
    """
    if anonymous is None:
        anonymous = ANONYMOUS if run.seed % 2 else ()
    with DoorTarget(directory, weak, anonymous) as target:
        with closing(Strangers(target)) as strangers:
            kinds: list[Kind] = [
                *(strangers.http, strangers.http, strangers.http_half, strangers.tls_half, strangers.link),
                *(strangers.link, strangers.flight, strangers.rocketmq, strangers.rocketmq, strangers.remoting),
                strangers.mqtt,
            ]

            def check(sent: int) -> None:
                target.check()
                if sent >= WARM_CALLS:
                    target.check_memory()

            outcomes = run.send(kinds, check, CHECK_EVERY)
        target.check_given_back()
        print(f"{outcomes.total():,} calls, memory {target.memory_text()}", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(run_command(fuzz_door, "fuzz-door", __doc__))
