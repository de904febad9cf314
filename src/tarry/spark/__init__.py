"""Tarry's Spark side: the pipeline into the store, ``format("tarry")``, and the reports.

``pipeline`` moves accepted messages into the store, sorted; ``datasource`` is ``format("tarry")``; ``reports`` audits
and forecasts. Names that Spark programs import are here; they are loaded on first use, since the broker starts the
pipeline without PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarry.spark.builder import session_builder
    from tarry.spark.datasource import TarryDataSource, WrittenJob, sorted_by_due, write_once

__all__ = ["TarryDataSource", "WrittenJob", "session_builder", "sorted_by_due", "write_once"]


def __getattr__(name: str) -> Any:
    if name == "session_builder":
        from tarry.spark.builder import session_builder

        return session_builder
    if name in __all__:
        from tarry.spark import datasource

        return getattr(datasource, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
