"""``make simulate``: as many simulated crashes as asked for, in lives of :mod:`tests.crash.simulation` (one broker on
files) and of :mod:`tests.crash.takeovers` (machines that take a log in an object store over from one another).

Each life has a seed; one that fails is printed, and ``--of`` and ``--seed`` live it again, with the broker's log.
``--defects`` has brokers with a defect each take over, and says in which life it was found.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time
import traceback
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.crash import simulation
from tests.crash.takeovers import life
from tests.crash.takeovers.defects import DEFECTS, find
from tests.faults import fast_directory

KINDS = {"files": simulation, "takeovers": life}
DEFECT_LIVES = 100
"""In so many, each defect has to be found."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.simulate", description=__doc__)
    parser.add_argument("--crashes", type=int, default=1_000, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument(
        "--of", choices=[*KINDS, "both"], default="both", help="lives of this kind (default: %(default)s)"
    )
    parser.add_argument("--first-seed", type=int, metavar="N", help="of the first life (default: any)")
    parser.add_argument("--seed", type=int, metavar="N", help="live this life alone, with the broker's log")
    parser.add_argument("--defects", action="store_true", help="only show that defects of takeovers are found")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), metavar="N", help="(default: %(default)s)")
    given = parser.parse_args()
    kinds = list(KINDS) if given.of == "both" else [given.of]
    if given.seed is not None:
        logging.basicConfig(level=logging.INFO)
        for kind in kinds:
            print(_shown(KINDS[kind].simulate(given.seed, fast_directory())))
        return 0
    first = random.randrange(1 << 30) if given.first_seed is None else given.first_seed
    if given.defects:
        return _find_defects(first)
    lives = []
    for kind in kinds:
        each = KINDS[kind].CRASHES
        seeds = range(first, first + max(1, -(-given.crashes // (len(kinds) * each))))
        print(f"{kind}: {len(seeds)} lives of {each} crashes each, seeds {seeds[0]} to {seeds[-1]}", flush=True)
        lives += [(kind, seed) for seed in seeds]
    return _live(lives, given.processes)


def _live(lives: list[tuple[str, int]], processes: int) -> int:
    done: Counter[str] = Counter()
    failed: dict[tuple[str, int], str] = {}
    crashes, cpu_s = Counter[str](), defaultdict[str, float](float)
    started = time.monotonic()
    with ProcessPoolExecutor(processes, initializer=logging.disable) as pool:
        begun = {pool.submit(_life, *life): life for life in lives}
        for number, life in enumerate(as_completed(begun), 1):
            kind, seed = begun[life]
            counts, failure, seconds = life.result()
            done.update(counts)
            crashes[kind] += KINDS[kind].CRASHES
            cpu_s[kind] += seconds
            if failure:
                failed[kind, seed] = failure
                print(f"{kind}, seed {seed} FAILED:\n{failure}", flush=True)
            if number % 20 == 0 or number == len(lives):
                passed_s = time.monotonic() - started
                print(f"{number} of {len(lives)} lives, {len(failed)} failed, {passed_s:.0f} s", flush=True)
    print(_shown(done))
    for kind, count in crashes.items():
        print(f"{kind}: {count:,} crashes in {cpu_s[kind]:,.0f} s of CPU time, {count / cpu_s[kind]:.1f} a second")
    for kind, seed in sorted(failed):
        print(f'failed: make simulate ARGS="--of {kind} --seed {seed}"')
    return 1 if failed else 0


def _life(kind: str, seed: int) -> tuple[Counter[str], str, float]:
    started_s = time.process_time()
    try:
        counts, failure = KINDS[kind].simulate(seed, fast_directory()), ""
    except Exception:  # noqa: BLE001 - whatever it is, this life has failed
        counts, failure = Counter[str](), traceback.format_exc(limit=-6)
    return counts, failure, time.process_time() - started_s


def _find_defects(first: int) -> int:
    logging.disable()
    missed = []
    for name, defect in DEFECTS.items():
        found = find(name, range(first, first + DEFECT_LIVES), fast_directory())
        if found is None:
            missed.append(name)
            print(f"{name}: NOT FOUND in {DEFECT_LIVES} lives, without {defect.what}", flush=True)
        else:
            seed, error = found
            text = str(error).partition("\n")[0]
            print(f"{name}: found in life {seed - first + 1}, without {defect.what}: {text:.120}", flush=True)
    return 1 if missed else 0


def _shown(done: Counter[str]) -> str:
    rows = sorted((name, count) for name, count in done.items() if not name.startswith("flipped a byte of"))
    return "\n".join(f"{count:>12,}  {name}" for name, count in rows)


if __name__ == "__main__":
    sys.exit(main())
