"""A DataFrame in the order of its due times, which makes few, narrow files of many messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tarry.base.errors import InvalidMessageError
from tarry.spark.datasource.columns import WAYS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sorted_by_due(df: DataFrame, partitions: int | None = None) -> DataFrame:
    """Return ``df`` divided by due time.

    Each task gets a span of its own, in order, and so makes few files that the broker reads one after another. It is
    worth its shuffle from some millions of messages on; a due time that very many share stays in one partition.

    Args:
        partitions: how many; the default is Spark's (``spark.sql.shuffle.partitions``, as adaptive execution changes
            it). About a million messages in each is a good size: a task needs about half a gigabyte for them, where
            they have some hundred bytes.

    Raises:
        InvalidMessageError: there is no column that says when, or several do.
    """
    ways = [name for way in WAYS for name in df.columns if name.lower() == way]
    if len(ways) != 1:
        raise InvalidMessageError(f"to sort by, exactly one of {', '.join(WAYS)} is needed; given: {ways or 'none'}")
    ranged = df.repartitionByRange(ways[0]) if partitions is None else df.repartitionByRange(partitions, ways[0])
    return ranged.sortWithinPartitions(ways[0])
