"""``make simulate``: as many simulated crashes as asked for, in lives of :mod:`tests.crash.simulation`.

Each life has a seed; one that fails is printed, and ``--seed`` lives it again, with the broker's log.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.crash.simulation import CRASHES, simulate
from tests.faults import fast_directory


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.simulate", description=__doc__)
    parser.add_argument("--crashes", type=int, default=1_000, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, metavar="N", help="of the first life (default: any)")
    parser.add_argument("--seed", type=int, metavar="N", help="live this life alone, with the broker's log")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), metavar="N", help="(default: %(default)s)")
    given = parser.parse_args()
    if given.seed is not None:
        logging.basicConfig(level=logging.INFO)
        print(_shown(simulate(given.seed, fast_directory())))
        return 0
    first = random.randrange(1 << 30) if given.first_seed is None else given.first_seed
    seeds = range(first, first + max(1, -(-given.crashes // CRASHES)))
    print(f"{len(seeds)} lives of {CRASHES} crashes each, seeds {seeds[0]} to {seeds[-1]}", flush=True)
    return _live(seeds, given.processes)


def _live(seeds: range, processes: int) -> int:
    done: Counter[str] = Counter()
    failed: dict[int, str] = {}
    started = time.monotonic()
    with ProcessPoolExecutor(processes, initializer=logging.disable) as pool:
        lives = {pool.submit(_life, seed): seed for seed in seeds}
        for number, life in enumerate(as_completed(lives), 1):
            seed = lives[life]
            counts, failure = life.result()
            done.update(counts)
            if failure:
                failed[seed] = failure
                print(f"seed {seed} FAILED:\n{failure}", flush=True)
            if number % 20 == 0 or number == len(seeds):
                seconds = time.monotonic() - started
                print(f"{number} of {len(seeds)} lives, {len(failed)} failed, {seconds:.0f} s", flush=True)
    print(_shown(done))
    for seed in sorted(failed):
        print(f'failed: make simulate ARGS="--seed {seed}"')
    return 1 if failed else 0


def _life(seed: int) -> tuple[Counter[str], str]:
    directory = fast_directory()
    try:
        return simulate(seed, Path(directory)), ""
    except Exception:  # noqa: BLE001 - whatever it is, this life has failed
        return Counter(), traceback.format_exc(limit=-6)


def _shown(done: Counter[str]) -> str:
    rows = sorted((name, count) for name, count in done.items() if not name.startswith("flipped a byte of"))
    return "\n".join(f"{count:>12,}  {name}" for name, count in rows)


if __name__ == "__main__":
    sys.exit(main())
