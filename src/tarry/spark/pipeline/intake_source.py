"""The streaming source ``tarry-intake``: its offset is a seq, and its rows are ranges of seqs.

Spark keeps calling ``latestOffset``; as long as that returns the start offset there is no batch, which makes waiting
cheap. The methods of the reader run in a Python process of their own, ``read`` in the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from tarry.base.errors import UnavailableError
from tarry.spark.broker_client import BrokerClient
from tarry.spark.pipeline.plan import Trigger, batch_end, ranges, row_bytes

SCHEMA = pa.schema([("start_seq", pa.int64()), ("end_seq", pa.int64())])


@dataclass
class SeqRange(InputPartition):  # type: ignore[misc]
    """One task's ``[start_seq, end_seq)``."""

    start_seq: int
    end_seq: int


class IntakeSource(DataSource):  # type: ignore[misc]
    """The source, with its options.

    They are ``flight`` (HOST:PORT), ``token`` (shown to the broker; Spark shows no option of that name), ``start_seq``
    (the start of a query without a checkpoint), ``cores``, a Trigger's fields, and maybe ``epoch`` (that of the owner
    for which the query's driver works).
    """

    @classmethod
    def name(cls) -> str:
        return "tarry-intake"

    def schema(self) -> str:
        return "start_seq long, end_seq long"

    def streamReader(self, schema: Any) -> IntakeReader:  # noqa: N802 - Spark's name
        return IntakeReader(self.options)


class IntakeReader(DataSourceStreamReader):  # type: ignore[misc]
    """Reader whose offsets are ``{"seq": n}``: everything below n is in earlier batches."""

    def __init__(self, options: dict[str, str]) -> None:
        self._address, self._token = options["flight"], options.get("token")
        self._epoch = int(options["epoch"]) if "epoch" in options else None
        self._start_seq = int(options["start_seq"])
        self._cores = int(options["cores"])
        self._trigger = Trigger(int(options["bytes_min"]), int(options["interval_ms"]), int(options["rows_max"]))
        self._client: BrokerClient | None = None
        # Of the batch that is planned next. Not known of one that was planned by a driver that has been killed.
        self._row_bytes: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        # The store's number, not 0: so a lost checkpoint directory does no harm.
        return {"seq": self._start_seq}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._trigger.rows_max)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        try:
            if self._client is None:
                self._client = BrokerClient(self._address, self._token, epoch=self._epoch)
            state = self._client.state()
        except UnavailableError:
            # A broker that restarts, if an operator runs the pipeline. Nothing to schedule until it is back.
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = batch_end(state, start["seq"], self._trigger, rows_max)
        if end > start["seq"]:
            self._row_bytes = row_bytes(state, start["seq"])
        return {"seq": end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [SeqRange(a, b) for a, b in ranges(start["seq"], end["seq"], self._cores, self._row_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SeqRange)
        yield pa.RecordBatch.from_pydict(
            {"start_seq": [partition.start_seq], "end_seq": [partition.end_seq]}, schema=SCHEMA
        )

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
