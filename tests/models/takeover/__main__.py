"""``make models``: all runs of the takeover models, the long ones too; each line says what a run has found."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.models.takeover.runs import COMPLETE, LONG, WITHOUT_ONE, build, execute, faults

MEMORY_BYTES_MAX = 4 << 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models.takeover", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="runs whose model and switches have this in them")
    parser.add_argument("--traces", action="store_true", help="print the shortest way to each violation")
    given = parser.parse_args()
    compiler = shutil.which("g++")
    if compiler is None:
        print("the models need g++ (Debian: apt-get install g++)", file=sys.stderr)
        return 2
    chosen = [run for run in (*WITHOUT_ONE, *COMPLETE, *LONG) if given.only in run.name]
    wrong = 0
    with tempfile.TemporaryDirectory() as directory:
        build(compiler, Path(directory))
        for run in chosen:
            began_s = time.monotonic()
            found = execute(run, Path(directory), MEMORY_BYTES_MAX)
            print(found.output.rstrip() if given.traces else found.output.partition("\n   ")[0].rstrip())
            print(f"  {time.monotonic() - began_s:.1f} s", flush=True)
            for fault in faults(run, found):
                wrong += 1
                print(f"  WRONG {fault}", flush=True)
    print(f"{len(chosen)} runs, {wrong} faults")
    return 1 if wrong or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
