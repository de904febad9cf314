"""``format("tarry")`` with 2, 4 and 8 executors of one core each: CPU time a message, by who used it.

Of a standalone cluster of this machine's own, so wall time says nothing where there are fewer cores than executors.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from tests.sources import PYTHON_PATH
from tests.spark.cluster import cluster

from benchmarks.harness import Result, Server, benchmark, now_ms, server, workspace

EXECUTORS = (2, 4, 8)
ROWS = 100_000
"""For each executor, as it compiles what it runs: of one number for all, each of eight would compile for few."""
TASKS = 2
"""For each executor, in each run."""
WARM, RUNS = 2, 2


@contextmanager
def driver(master: str, endpoint: str, executors: int, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A Spark program, which writes once for each line that it is given."""
    command = [sys.executable, "-m", "benchmarks.spark_write_curve", master, endpoint, str(executors), str(directory)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(60)


def write(process: subprocess.Popen[str], name: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    print(name, file=process.stdin, flush=True)
    if process.stdout.readline().strip() != name:
        raise RuntimeError("the driver has failed; what it said is above")


def cpu_s(broker: Server) -> Counter[str]:
    """CPU time until now of the driver with its JVM, of the executors' JVMs, of Python's workers and of the broker."""
    used: Counter[str] = Counter()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            line, times = " ".join(process.cmdline()), process.cpu_times()
            total = times.user + times.system
            if process.pid == broker.process.pid:
                used["broker"] += total
            elif ".daemon" in line:
                used["Python workers"] += total + times.children_user + times.children_system
            elif "CoarseGrainedExecutorBackend" in line:
                used["executors' JVMs"] += total
            elif "SparkSubmit" in line or "spark_write_curve" in line:
                used["driver"] += total
    return used


@benchmark(opt_in=True)
def spark_write_curve() -> list[Result]:
    """As many rows for each of more and more executors; by themselves the first runs: JVMs start and compile."""
    results = []
    most = max(EXECUTORS)
    with server(pipeline="off") as broker, workspace() as directory, cluster(directory, cores=most // 2) as master:
        for executors in EXECUTORS:
            with driver(master, broker.address, executors, directory / f"driver-{executors}") as process:
                begin = cpu_s(broker)
                for run in range(WARM):
                    write(process, f"{executors}-warm-{run}")
                warm = cpu_s(broker)
                for run in range(RUNS):
                    write(process, f"{executors}-{run}")
                used = cpu_s(broker)
            what = f"Spark write, {executors} executors"
            first = sum((warm - begin).values())
            results.append(Result(f"{what}: CPU of their start and the first runs", first, "s"))
            each = {who: 1e6 * (used[who] - warm[who]) / (RUNS * ROWS * executors) for who in sorted(used)}
            results.append(Result(f"{what}: CPU a message", sum(each.values()), "µs"))
            results += [Result(f"{what}: of it {who}", value, "µs") for who, value in each.items()]
    return results


def main(master: str, endpoint: str, executors: str, directory: str) -> None:
    from benchmarks.bulk import scattered
    from tarry.spark.runtime.session import build_session, end_jvm

    conf = {
        "spark.cores.max": executors,
        "spark.executor.cores": "1",
        "spark.executor.memory": "600m",
        "spark.executorEnv.PYTHONPATH": PYTHON_PATH,
        "spark.driver.host": "127.0.0.1",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    spark = build_session(name="curve", master=master, memory="1g", work=Path(directory), conf=conf)
    rows = scattered(spark, ROWS * int(executors), TASKS * int(executors), now_ms() + 3_600_000).drop("id")
    for name in map(str.strip, sys.stdin):
        rows.write.format("tarry").mode("append").option("endpoint", endpoint).option("job", name).save()
        print(name, flush=True)
    spark.stop()
    end_jvm()


if __name__ == "__main__":
    main(*sys.argv[1:])
