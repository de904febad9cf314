"""``python -m tests.compat.rocketmq.python ENDPOINT SCENARIO TOPIC GROUP [...]``: one scenario, one line of JSON."""

from __future__ import annotations

import os
import sys
import traceback
from importlib.metadata import version

from . import delayed, identities, plain, pushed, standing
from .base import Context, FailedError, SkippedError, finish

SCENARIOS = {**plain.SCENARIOS, **delayed.SCENARIOS, **pushed.SCENARIOS, **standing.SCENARIOS, **identities.SCENARIOS}
USAGE = "ENDPOINT SCENARIO TOPIC GROUP [...]"


def main(arguments: list[str]) -> int:
    if len(arguments) < 4 or arguments[1] not in SCENARIOS:
        print(f"usage: {USAGE}; scenarios: {' '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    endpoint, name, topic, group, *extra = arguments
    head = {"client": f"rocketmq-python-client {version('rocketmq-python-client')}", "scenario": name}
    try:
        facts = SCENARIOS[name](Context(endpoint, topic, group, extra))
    except SkippedError as reason:
        finish({**head, "skipped": str(reason)})
        return 0
    except FailedError as reason:
        print(f"{name}: {reason}", file=sys.stderr)
        return 1
    except Exception:  # noqa: BLE001 - it is said in full, and fails the scenario
        traceback.print_exc()
        return 1
    finish({**head, **facts})
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # The client leaves threads that are not daemons when something fails in between.
    os._exit(code)
