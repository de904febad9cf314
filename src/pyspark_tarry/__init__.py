"""Registration of ``format("tarry")``: PySpark looks for ``DefaultSource`` in modules ``pyspark_*``."""

import pyspark

from tarry.spark.runtime.versions import check_pyspark

check_pyspark(pyspark.__version__)  # else it would say that a module of its own is missing

from tarry.spark.datasource.source import TarryDataSource as DefaultSource  # noqa: E402

__all__ = ["DefaultSource"]
