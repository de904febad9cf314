"""One session with ``format("tarry")`` and Delta's own connector: ``python both.py ENDPOINT TABLE JARS``. It writes a
hundred messages by the one, and prints as JSON how many are pending by it, and how many the table has by the other.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tarry.spark import session_builder, write_once


def main(endpoint: str, table: str, jars: str) -> None:
    spark = (
        session_builder()
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar"))))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    rows = spark.range(0, 100, 1, 2).selectExpr("'t' AS topic", "3600000L + id AS delay_ms", "cast(id AS string) body")
    written = write_once(rows, "both", endpoint=endpoint)
    pending = spark.read.format("tarry").option("endpoint", endpoint).option("columns", "topic").load().count()
    stored = spark.read.format("delta").load(table).where("topic = 't'").count()
    print(json.dumps({"written": written.rows, "pending": pending, "stored": stored}))
    spark.stop()


main(*sys.argv[1:])
