"""Celery with kombu's SQS transport, both unchanged: two queues, countdowns, retries, and a worker that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAIT_S = 90.0
SLOW, FAST = 20, 20
COUNTDOWN_S = 3


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tarry-compat-celery-") as name:
        os.environ["COMPAT_CELERY_PLACE"] = name
        _try(Path(name))
    print("celery: ok")


def _try(place: Path) -> None:
    from tests.compat.sqs.celery_app import app as project  # which reads the place

    worker = _worker()
    try:
        for number in range(SLOW):
            project.slow.delay(number)
        for number in range(FAST):
            project.fast.delay(number)
        begun = time.time()
        project.slow.apply_async((100,), countdown=COUNTDOWN_S)
        project.retried.delay()
        wanted = {f"slow-{n}" for n in (*range(SLOW), 100)} | {f"fast-{n}" for n in range(FAST)}
        done = _wait(place, wanted | {f"retried-{n}" for n in range(3)})
        assert done["slow-100"][0] - begun >= COUNTDOWN_S, "a countdown that came early"
        again = {each for each in wanted if len(done[each]) != 1}
        assert not again, f"more than once: {again}"
        project.killed.delay()
        _wait(place, {"killed-first"})
        worker.wait()
        worker = _worker()
        done = _wait(place, {"killed-again"})
        assert len(done["killed-again"]) == 1
    finally:
        worker.terminate()
        worker.wait()


def _worker() -> subprocess.Popen[bytes]:
    """A worker in a process group of its own, which a task kills."""
    command = [sys.executable, "-m", "celery", "-A", "tests.compat.sqs.celery_app.app", "worker", "-c", "2"]
    return subprocess.Popen([*command, "-Q", "celery-slow,celery-fast", "-l", "warning"], start_new_session=True)


def _wait(place: Path, wanted: set[str]) -> dict[str, list[float]]:
    """When each task was carried out, as soon as all of these were.

    Raises:
        AssertionError: some were not.
    """
    end = time.time() + WAIT_S
    while True:
        done: dict[str, list[float]] = {}
        path = place / "done"
        for line in path.read_text().splitlines() if path.exists() else ():
            name, at = line.split()
            done.setdefault(name, []).append(float(at))
        if wanted <= done.keys():
            return done
        assert time.time() < end, f"not carried out: {sorted(wanted - done.keys())}"
        time.sleep(0.1)


if __name__ == "__main__":
    main()
