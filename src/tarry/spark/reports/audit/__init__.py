"""``tarry audit``: accepted against delivered messages, from two tables of any format.

See ``docs/reports.md``. ``ledgers`` reads the tables into one shape · ``compare`` makes one row of each message and
judges it · ``count`` aggregates · ``result`` holds the outcome as plain values, without Spark · ``page`` renders it ·
``history`` lists the rows of one message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarry.spark.reports.audit.compare import audit

__all__ = ["audit"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: the command line imports ``result`` and ``page`` even if PySpark is missing.
    if name == "audit":
        from tarry.spark.reports.audit.compare import audit

        return audit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
