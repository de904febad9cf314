"""Rows that a client stages for a bulk job: a STAGE, its PARTs, and one answer to all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from tarry.api.local import LocalBroker
from tarry.api.operations.jobs import StageJob, check_staged_columns, staged_json
from tarry.api.parsing import from_json
from tarry.api.wire import decode_request, encode_json
from tarry.base.errors import InvalidArgumentError, OverloadedError, TarryError
from tarry.base.event_loop import post
from tarry.fronts.kit.known_errors import known
from tarry.fronts.link.flow import Flow
from tarry.fronts.link.outgoing import Outgoing
from tarry.link.frames import FrameKind, decode_foreign_rows, error_frame, frame

_Taken = Callable[[], None]
_Part = tuple[memoryview, _Taken]


class _Stream:
    """The parts of one STAGE: added on the loop's thread, taken by the one that stages."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._parts: SimpleQueue[_Part | TarryError | None] = SimpleQueue()

    def add(self, part: _Part | TarryError | None) -> None:
        """Add a part, the end (None), or why there will be none."""
        self._parts.put(part)

    def drop(self) -> None:
        """Take the parts that nobody reads any more."""
        while not self._parts.empty():
            if isinstance(part := self._parts.get(), tuple):
                part[1]()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches that have rows, and wait for more until the end."""
        while (part := self._parts.get()) is not None:
            if isinstance(part, TarryError):
                raise part
            payload, taken = part
            try:
                rows = decode_foreign_rows(payload)
            finally:
                taken()
            check_staged_columns(rows.column_names)
            yield from (batch for batch in rows.to_batches() if batch.num_rows)


class Staging:
    """The staging of one connection, one stream at a time. On the loop's thread.

    With two, the first could wait for parts that are not read because those of the second are.
    """

    def __init__(
        self, broker: LocalBroker, loop: asyncio.AbstractEventLoop, threads: Executor, out: Outgoing, flow: Flow
    ) -> None:
        self._broker, self._loop, self._threads = broker, loop, threads
        self._out, self._flow = out, flow
        self._stream: _Stream | None = None

    def begin(self, number: int, payload: memoryview) -> None:
        """Carry out a STAGE: its answer is RESULT, when all of its parts are in files."""
        job = from_json(StageJob, decode_request(payload))
        if self._stream is not None:
            raise OverloadedError(f"STAGE {number} while {self._stream.number} is under way; allowed: one at a time")
        stream = self._stream = _Stream(number)
        end = self._flow.begin(len(payload))
        staged = self._loop.run_in_executor(self._threads, self._staged, job.number, stream)
        staged.add_done_callback(partial(self._on_staged, stream, end))

    def add(self, number: int, payload: memoryview) -> None:
        """Take a PART; one without bytes is the end. Those of a stream that was answered are left out."""
        stream = self._stream
        if stream is None or stream.number != number:
            return
        if not payload:
            stream.add(None)
            return
        # A copy: the frames that arrived with it need not stay in memory for as long.
        stream.add((memoryview(bytes(payload)), partial(post, self._loop, self._flow.begin(len(payload)))))

    def end(self) -> None:
        """Give the stream up: the connection is lost."""
        if self._stream is not None:
            self._stream.add(InvalidArgumentError("the rows could not be read: their client has left"))

    def _staged(self, number: int, stream: _Stream) -> dict[str, Any]:
        """Stage the rows of a stream. In a thread."""
        files, topics = self._broker.stage_job(number, stream.batches())
        return staged_json(files, topics)

    def _on_staged(self, stream: _Stream, end: Callable[[], None], staged: asyncio.Future[dict[str, Any]]) -> None:
        self._stream = None
        stream.drop()
        if staged.cancelled():
            return
        error = staged.exception()
        if error is None:
            self._out.write(frame(FrameKind.RESULT, stream.number, encode_json(staged.result())))
        else:
            self._out.write(error_frame(stream.number, known(error)))
        end()
