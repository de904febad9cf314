"""Makes ``format("tarry")`` known to PySpark, which looks for ``DefaultSource`` in modules named ``pyspark_*``."""

from tarry.spark.datasource.source import TarryDataSource as DefaultSource

__all__ = ["DefaultSource"]
