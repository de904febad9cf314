"""A session of one's own in which ``format("tarry")`` is found."""

from __future__ import annotations

from typing import Any

from tarry.spark.runtime.conf import machine_conf, set_python


def session_builder() -> Any:
    """PySpark's ``SparkSession.builder``, with this program's Python for Spark's workers, which else are the
    ``python3`` on the PATH: one without Tarry, unless this virtual environment is activated. ``PYSPARK_PYTHON`` and a
    ``spark.pyspark.python`` of the machine's ``spark-defaults.conf`` count more.

    Raises:
        InvalidArgumentError: the Python that these name is not there.
    """
    from pyspark.sql import SparkSession

    set_python(machine_conf())
    return SparkSession.builder
