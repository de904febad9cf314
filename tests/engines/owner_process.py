"""An owner in a process of its own: ``python -m tests.engines.owner_process ENDPOINT PREFIX DIRECTORY``.

It writes numbers, each in a round, and prints those that were answered.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tarry.base.clock import SystemClock
from tarry.base.errors import OwnershipLostError
from tarry.log.files import OsFiles
from tarry.log.frame import LogKind
from tarry.log.objects.engine import ObjectEngine
from tests.engines.test_conformance import numbers, one, opened
from tests.engines.versitygw import store_at

LOST = 10
"""Exit code of an owner that is one no longer."""


def main(endpoint: str, prefix: str, directory: str) -> int:
    engine = ObjectEngine(store_at(endpoint, prefix), OsFiles(), Path(directory), SystemClock())
    try:
        engine.claim()
        writer = opened(engine, LogKind.INTAKE)
        number = max(numbers(engine, LogKind.INTAKE), default=-1) + 1
        print("began", number, flush=True)
        while True:
            writer.append(one(number))
            writer.sync()
            print("answered", number, flush=True)
            number += 1
    except OwnershipLostError:
        return LOST
    finally:
        engine.release()


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
