"""A DataFrame into the committed store, beside Spark's own sort and Parquet write of the same rows."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import BODY_BYTES, Result, benchmark, now_ms, server, workspace
from tarry.spark.runtime.session import build_session, end_jvm

ROWS = int(os.environ.get("BENCH_BULK_ROWS", 3_000_000))
PARTITIONS = 4


@contextmanager
def session(directory: Path) -> Iterator[Any]:
    """Spark for as long as it is needed."""
    # The tasks import tarry and this: from where this process has it.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    spark = build_session(name="bulk", master="local[2]", memory="2g", work=directory / "spark")
    try:
        yield spark
    finally:
        spark.stop()
        end_jvm()


def scattered(spark: Any, rows: int, partitions: int, base_ms: int) -> Any:
    """Messages with bodies of random digits and scattered due times, made in the JVM."""
    body = "||".join(f"lpad(hex(xxhash64(id, {i})), 16, '0')" for i in range(BODY_BYTES // 16))
    return spark.range(0, rows, 1, partitions).selectExpr(
        "id", "'bench' AS topic", f"{base_ms} + pmod(hash(id), 86400000) AS due_ms", f"cast({body} AS binary) AS body"
    )


def _rate(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return ROWS / (time.perf_counter() - start)


@benchmark
def bulk_load() -> list[Result]:
    """As it comes and in due order, by both ways; Spark alone sorts within its partitions, as a load does."""
    from tarry.spark import sorted_by_due

    with server(pipeline="off") as broker, workspace() as directory, session(directory) as spark:
        rows = scattered(spark, ROWS, PARTITIONS, now_ms() + 3_600_000).drop("id")

        def load(df: Any, mode: str) -> Callable[[], Any]:
            writer = df.write.format("tarry").mode("append").option("endpoint", broker.address).option("mode", mode)
            return writer.save

        def reference(df: Any, name: str) -> Callable[[], Any]:
            writer = df.write.option("compression", "zstd")
            return lambda: writer.parquet(str(directory / name))

        _rate(reference(rows.limit(100_000), "warm"))
        _rate(load(rows.limit(100_000), "bulk"))
        _rate(reference(rows, "source"))
        kept = spark.read.parquet(str(directory / "source"))
        kept_alone = _rate(reference(kept.sortWithinPartitions("due_ms"), "kept"))
        loaded = _rate(load(kept, "bulk"))
        alone = _rate(reference(rows.sortWithinPartitions("due_ms"), "alone"))
        computed = _rate(load(rows, "bulk"))
        ordered_alone = _rate(reference(sorted_by_due(rows, PARTITIONS), "ordered"))
        ordered = _rate(load(sorted_by_due(rows, PARTITIONS), "bulk"))
        flight = _rate(load(rows, "flight"))
    return [
        Result("bulk load, DataFrame of Parquet files to committed store", loaded, "msg/s", "≥ 200000"),
        Result("Spark reads, sorts and writes the same Parquet", kept_alone, "msg/s"),
        Result("bulk load, of Spark's own sort and write", 100 * loaded / kept_alone, "%", "≥ 80"),
        Result("bulk load of a DataFrame that is computed", computed, "msg/s", "≥ 200000"),
        Result("bulk load of it, of Spark's own sort and write", 100 * computed / alone, "%", "≥ 80"),
        Result("bulk load in due order (shuffled)", ordered, "msg/s"),
        Result("bulk load in due order, of Spark's own", 100 * ordered / ordered_alone, "%"),
        Result("bulk load through the broker", flight, "msg/s"),
    ]
