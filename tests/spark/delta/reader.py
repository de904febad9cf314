"""Delta's own streaming reader, with the Spark that it is made for: ``python reader.py TABLE CHECKPOINT JARS``. For
each line on standard input it reads all that has come, and prints the seqs of the rows as a JSON list.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main(table: str, checkpoint: str, jars: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar"))))
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    spark = builder.getOrCreate()
    seen: list[int] = []

    def add(batch: Any, _: int) -> None:
        seen.extend(row.seq for row in batch.collect())

    stream = spark.readStream.format("delta").option("ignoreDeletes", "true").load(table).select("seq")
    query = stream.writeStream.option("checkpointLocation", checkpoint).foreachBatch(add).start()
    for _ in sys.stdin:
        query.processAllAvailable()
        print(json.dumps(seen), flush=True)
        seen.clear()


main(*sys.argv[1:])
