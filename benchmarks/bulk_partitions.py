"""What a partition costs beside its rows: the same DataFrame in 2 partitions and in 200, as CPU time."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import psutil

from benchmarks.bulk import scattered, session
from benchmarks.harness import Result, benchmark, now_ms, server, workspace

ROWS = tuple(int(rows) for rows in os.environ.get("BENCH_PARTITIONS_ROWS", "200000,2000000").split(","))
FEW, MANY = 2, 200
ROUNDS = 2


def spark_cpu_s() -> float:
    """CPU time of this process, of Spark's JVM and of its Python workers, those that have ended too."""
    total = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):  # it has just ended
            line, times = " ".join(process.cmdline()), process.cpu_times()
            if process == me or "SparkSubmit" in line or ".daemon" in line:
                total += times.user + times.system
            if ".daemon" in line:
                total += times.children_user + times.children_system
    return total


@benchmark(opt_in=True)
def bulk_partitions() -> list[Result]:
    """By ``format("tarry")`` and by ``write_once``, in turn."""
    from tarry.spark import write_once

    results = []
    with server(pipeline="off") as broker, workspace() as directory, session(directory) as spark:

        def frame(rows: int, partitions: int) -> Any:
            return scattered(spark, rows, partitions, now_ms() + 3_600_000).drop("id")

        def plain(df: Any, name: str) -> None:
            df.write.format("tarry").mode("append").option("endpoint", broker.address).option("job", name).save()

        def once(df: Any, name: str) -> None:
            write_once(df, name, endpoint=broker.address)

        for _ in range(3):  # the JVM compiles, workers import
            plain(frame(20_000, 20), f"warm-{_}")
        for rows in ROWS:
            for way, write in (("format", plain), ("write_once", once)):
                used = {FEW: 0.0, MANY: 0.0}
                for turn in range(ROUNDS):
                    for partitions in used:
                        before = spark_cpu_s()
                        write(frame(rows, partitions), f"{way}-{rows}-{partitions}-{turn}")
                        used[partitions] += (spark_cpu_s() - before) / ROUNDS
                what = f"{rows:,} rows by {way}"
                results += [
                    Result(f"{what}, CPU of {partitions} partitions", used[partitions], "s") for partitions in used
                ]
                bar = "≤ 2" if way == "write_once" else ""
                results.append(Result(f"{what}, {MANY} partitions to {FEW}", used[MANY] / used[FEW], "times", bar))
    return results
