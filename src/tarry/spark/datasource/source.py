"""``format("tarry")``: the class that Spark finds by that name, and its readers and writers."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.spark.datasource.dead_letters import DeadReader
from tarry.spark.datasource.delivered import DeliveredReader
from tarry.spark.datasource.options import STREAM_ONLY, ReadOptions, StreamOptions, WriteOptions
from tarry.spark.datasource.pending import PendingReader
from tarry.spark.datasource.shape import SCHEMAS, STREAM, chosen, struct
from tarry.spark.datasource.sink import BulkSink
from tarry.spark.datasource.stream import QueueStream, RefusedStream
from tarry.spark.datasource.writer import BulkWriter


class TarryDataSource(DataSource):  # type: ignore[misc]
    """The data source, which Spark finds wherever Tarry is installed, without registering it.

    Options and columns: ``docs/spark.md``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name in ``format("tarry")``."""
        return "tarry"

    def schema(self) -> StructType:
        """Return the schema of a read.

        A stream has that of ``delivered``, whatever the options of a batch would be.
        """
        # Options are checked here, at load(): the error of a started query would be one among many lines.
        if "what" in self.options or not any(name in self.options for name in STREAM_ONLY):
            options = ReadOptions.of(self.options)
            return struct(chosen(SCHEMAS[options.what], options.columns))
        # Spark does not tell streams from batches here: a stream names its group, and has the offset as well.
        StreamOptions.of(self.options)
        return struct(STREAM)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        options = ReadOptions.of(self.options)
        if options.what == "pending":
            return PendingReader(options, schema)
        return DeliveredReader(options, schema) if options.what == "delivered" else DeadReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream."""
        try:
            return QueueStream(StreamOptions.of(self.options), schema)
        except TarryError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        _refuse_overwrite(overwrite)
        return BulkWriter(WriteOptions.of(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of a stream."""
        _refuse_overwrite(overwrite)
        return BulkSink(WriteOptions.of(self.options, streaming=True), schema)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidArgumentError(
            "mode overwrite (of a stream: complete) would have to take back what is scheduled; allowed: append"
        )
