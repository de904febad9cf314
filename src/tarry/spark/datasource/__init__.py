"""``format("tarry")``: DataFrames into the store and out of it, queues as streams (``docs/spark.md``).

Spark finds ``source`` by that name. Writing: ``options`` and ``columns`` check the user's input on the driver; in the
tasks ``rows`` and ``bodies`` turn Arrow batches into messages, and ``staging`` stages them; ``writer`` makes one bulk
job of a DataFrame, ``sink`` one of each micro-batch. Reading: ``pending``, ``delivered`` and ``dead_letters`` read
batches, ``stream`` a stream; ``filters`` limits the rows that are read, ``shape`` brings them into columns.
``ordering`` is :func:`sorted_by_due`, ``once`` is :func:`write_once`.
"""

from tarry.spark.datasource.once import WrittenJob, write_once
from tarry.spark.datasource.ordering import sorted_by_due
from tarry.spark.datasource.source import TarryDataSource

__all__ = ["TarryDataSource", "WrittenJob", "sorted_by_due", "write_once"]
