"""Django's tasks: how many a second are enqueued in transactions, and executed by workers; none is lost or doubled.

The project's database is a PostgreSQL of its own, which syncs what it commits. All tasks are enqueued first. They do
next to nothing, so that what is measured is the way there and back.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.outbox.server import Postgres

from benchmarks.harness import Result, benchmark, start_server, workspace

TASKS = int(os.environ.get("TARRY_BENCH_DJANGO_TASKS", "100000"))
TOGETHER = 1_000
"""Tasks in a transaction."""
PROCESSES = 2
"""Of the worker; each has four threads."""
CLIENT_S_MAX = 3_000


@benchmark(opt_in=True)
def django() -> list[Result]:
    with workspace() as directory:
        directory.chmod(0o755)  # PostgreSQL has a user of its own
        postgres = Postgres(directory / "postgres", fsync=True)
        broker = start_server(directory / "data")
        try:
            return _measure(directory, postgres, broker.address)
        finally:
            broker.kill()
            postgres.stop()


def _measure(directory: Path, postgres: Postgres, endpoint: str) -> list[Result]:
    said = directory / "said"
    said.mkdir()
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "benchmarks.django_project.settings",
        "ENDPOINT": endpoint,
        "POSTGRES_PORT": str(postgres.port),
        "SAID": str(said),
    }
    manage = [sys.executable, "-m", "django"]
    subprocess.run([*manage, "migrate", "--verbosity", "0"], env=env, check=True)
    enqueued = _client(env, "enqueue", str(TASKS), str(TOGETHER))
    with (directory / "worker.log").open("w") as log:
        worker = subprocess.Popen(
            [*manage, "tarry_worker", "--processes", str(PROCESSES)], env=env, stdout=log, stderr=log
        )
    try:
        executed = _client(env, "wait")
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
    ran = Counter(int(line) for path in said.iterdir() for line in path.read_text().split())
    finished = executed["statuses"].get("SUCCESSFUL", 0)
    return [
        Result(f"Django: tasks enqueued, {TOGETHER:,} in a transaction", TASKS / enqueued["s"], "tasks/s"),
        Result("Django: CPU of who enqueues", enqueued["cpu_s"] / TASKS * 1e6, "µs a task"),
        Result(f"Django: tasks executed, {PROCESSES} processes", finished / executed["s"], "tasks/s"),
        Result(f"Django: of {TASKS:,} tasks, lost", len(set(range(TASKS)) - set(ran)) + TASKS - finished, "", "≤ 0"),
        Result("Django: run twice", sum(ran.values()) - len(ran) + executed["again"], "", "≤ 0"),
    ]


def _client(env: dict[str, str], *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.django_clients", *words],
        env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=CLIENT_S_MAX,
    )  # fmt: skip
    return json.loads(done.stdout)
