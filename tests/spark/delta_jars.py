"""The jars of Delta's own connector, for tests that need it; Maven fetches them once."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyspark
import pytest

from tarry.base.errors import NotFoundError
from tests.jars import fetched

SPARK, DELTA = "4.2", "4.4.0"
POM = Path(__file__).with_name("delta") / "pom.xml"


def delta_jars() -> Path:
    """The directory with them; the test is skipped where they are not to be had."""
    if not pyspark.__version__.startswith(f"{SPARK}."):
        pytest.skip(f"Delta {DELTA} is made for Spark {SPARK}; here is {pyspark.__version__}")
    try:
        return fetched(POM, f"delta-{DELTA}", "delta-spark_*.jar")
    except NotFoundError as error:
        warnings.warn(f"DELTA'S OWN CONNECTOR IS NOT TESTED: {error}", stacklevel=2)
        pytest.skip(str(error))
