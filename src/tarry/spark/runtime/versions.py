"""The versions of PySpark that Tarry works with.

``pyproject.toml`` has them for those who install it with pip.
"""

from __future__ import annotations

from tarry.base.errors import NotFoundError
from tarry.base.extras import how_to_install

PYSPARK_MIN = (4, 2)
"""Older versions lack admission control of Python data sources.

That is ``pyspark.sql.streaming.datasource``.
"""


def check_pyspark(version: str) -> None:
    """Refuse a PySpark that is too old, which a machine or a cluster may have of its own.

    Raises:
        NotFoundError: says which it is, and what to install.
    """
    if tuple(int(part) for part in version.split(".")[:2]) < PYSPARK_MIN:
        least = ".".join(map(str, PYSPARK_MIN))
        raise NotFoundError(f"PySpark {version} is too old; allowed: {least} or newer: {how_to_install('spark')}")
