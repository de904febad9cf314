"""``format("tarry")``: DataFrames into the store and out of it, queues as streams (``docs/spark.md``).

``options`` and ``columns`` check, on the driver, what a user wrote; ``bodies`` and ``rows`` turn a task's Arrow batches
into messages; ``loading`` stages them; ``writer`` makes a job of it, ``sink`` a job of each micro-batch. ``pending``,
``delivered`` and ``dead`` read, ``stream`` reads on.
"""

from tarry.spark.datasource.ordering import sorted_by_due
from tarry.spark.datasource.source import TarryDataSource

__all__ = ["TarryDataSource", "sorted_by_due"]
