"""Many messages in one request: JSON lines, or an Arrow stream, of any length in bounded memory.

Messages are scheduled while the request is being read; the answer comes when all of it was read, and says what became
of each. JSON lines stand for themselves: one that is refused does not keep the others out. Of Arrow, a record batch is
scheduled whole or not at all. When the broker is overloaded, reading waits for it; when it cannot accept anything any
more, reading ends, and what had been accepted until then is in the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tarry.api.paths import TOPIC
from tarry.base.errors import (
    ForbiddenError,
    InvalidArgumentError,
    InvalidMessageError,
    MessageTooLargeError,
    OverloadedError,
    TarryError,
)
from tarry.fronts.http.errors import HttpError, status_of
from tarry.fronts.http.rest import message_fields
from tarry.fronts.http.rest.answer import ARROW, JSON, JSON_LINES, Answer, chosen
from tarry.fronts.http.rest.arrow_stream import ArrowStream, read
from tarry.fronts.http.rest.description import DescribedBody, Description, Parameter
from tarry.fronts.http.rest.message_fields import message_of_json
from tarry.fronts.http.rest.operations import REF
from tarry.fronts.http.rest.receipts import AcceptedRows, RefusedRows, RowResults, as_arrow, as_json_lines
from tarry.fronts.http.rest.request import RestRequest
from tarry.fronts.http.rest.rights import PRODUCE
from tarry.fronts.http.rest.routes import Names, Route
from tarry.fronts.http.rest.sending import OVERHEAD_BYTES, RECEIPT, in_path
from tarry.fronts.http.services import HttpServices
from tarry.message.accepted import Accepted
from tarry.message.options import OPTIONS
from tarry.message.row_columns import to_batch
from tarry.message.rows import ID, Row

CHUNK_ROWS, CHUNK_BYTES = 4096, 4 << 20
"""JSON lines are scheduled in chunks of so much."""
RECEIPTS_MAX = 1_000_000
"""Receipts in one answer; requests that ask for refusals alone may be longer."""
REFUSALS_MAX = 10_000
RECEIPT_BYTES = 64
"""Approximate bytes of a receipt until it is sent."""
PATIENCE_S = 10.0
"""Seconds that a request waits for a broker that is overloaded."""
AGAIN_S = 0.05
TRIES_MAX = 8
"""With more refused lines in a chunk, each of the others goes by itself."""
RECEIPTS = Parameter(
    "receipts", "query", {"type": "string", "enum": ["all", "refused"], "default": "all"},
    "Whether the answer has all receipts (of up to a million messages), or only what was refused.",
)  # fmt: skip

TEXT = """Schedule many messages{}, as JSON lines or as an Arrow stream, of any length.

The answer has a line (or a row) for each message, in their order: `row` and its receipt, or `row`, `error` and
`message`. Of JSON lines, each is accepted or refused by itself; of Arrow, each record batch is. The headers
`X-Tarry-Accepted` and `X-Tarry-Refused` count them. Messages are scheduled while they come: when the connection breaks,
those that had come may have been scheduled (give them ids, and send all of them again).

Columns of Arrow: `topic`, `body`, one of `due_ms`, `due`, `delay_ms` and `delay_level`; and """ + (
    ", ".join(f"`{option.column}`" for option in OPTIONS) + "."
)


@dataclass(slots=True)
class _Progress:
    """The results of a request's messages so far."""

    wants_all: bool
    chunks: list[RowResults] = field(default_factory=list)
    rows: int = 0
    accepted: int = 0
    refused: int = 0
    first_error: TarryError | None = None

    def add_refusal(self, chunk: RowResults, rows: Sequence[int], error: TarryError) -> None:
        self.refused += len(rows)
        self.first_error = self.first_error or error
        chunk.parts.append(RefusedRows(rows, error))


class Batches:
    """The endpoints."""

    def __init__(self, services: HttpServices) -> None:
        self._line_bytes_max = 2 * services.broker.config.body_bytes_max + OVERHEAD_BYTES

    def routes(self) -> Iterator[Route]:
        for path, where in (("/v1/batch", ""), (f"{TOPIC}/batch", " in one topic")):
            yield Route("POST", path, self.schedule, _described(path, where))

    async def schedule(self, request: RestRequest, names: Names) -> Answer:
        """Read and schedule all of a request."""
        answer_type = chosen(request, JSON_LINES, ARROW, JSON)
        progress = _Progress(_wants_all(request))
        topic = names.get("topic")
        match request.media_type:
            case "application/vnd.apache.arrow.stream":
                await self._read(self._arrow(request, topic, progress), progress)
            case "application/x-ndjson" | "application/jsonl" | "application/json" | None:
                await self._read(self._json(request, topic, progress), progress)
            case other:
                allowed = f"{JSON_LINES}, {ARROW}"
                raise HttpError(415, "unsupported_media_type", f"content-type is {other[:80]!r}; allowed: {allowed}")
        return _answer(progress, answer_type)

    async def _read(self, chunks: AsyncIterator[RowResults], progress: _Progress) -> None:
        """Carry out the request as far as possible; nothing is read after an error."""
        try:
            async for chunk in chunks:
                progress.chunks.append(chunk)
                _check_amount(progress)
        except (TarryError, HttpError) as error:
            if not progress.accepted and not progress.refused:
                raise
            refusal = error if isinstance(error, TarryError) else MessageTooLargeError(str(error))
            last = RowResults()
            progress.add_refusal(last, [progress.rows], refusal)
            progress.chunks.append(last)

    # -- JSON lines ----------------------------------------------------------------------------------------------------

    async def _json(self, request: RestRequest, topic: str | None, progress: _Progress) -> AsyncIterator[RowResults]:
        waiting: list[tuple[int, Row | TarryError]] = []
        size = 0
        async for line in self._lines(request):
            try:
                row = message_of_json(line, topic)
                request.desk.check_row(row)
                waiting.append((progress.rows, row))
            except (InvalidArgumentError, ForbiddenError) as error:
                waiting.append((progress.rows, error))
            progress.rows += 1
            size += len(line)
            if len(waiting) >= CHUNK_ROWS or size >= CHUNK_BYTES:
                yield await self._schedule_rows(request, waiting, progress)
                waiting, size = [], 0
        if waiting:
            yield await self._schedule_rows(request, waiting, progress)

    async def _lines(self, request: RestRequest) -> AsyncIterator[bytes]:
        rest = b""
        held = 0
        try:
            async for chunk in request.chunks():
                request.take(len(chunk))
                held += len(chunk)
                *lines, rest = (rest + chunk if rest else chunk).split(b"\n")
                for line in lines:
                    self._check_line(line)
                    if line.strip():
                        yield line
                self._check_line(rest)
                request.give_back(held - len(rest))
                held = len(rest)
            if rest.strip():
                yield rest
        finally:
            request.give_back(held)

    def _check_line(self, line: bytes) -> None:
        if len(line) > self._line_bytes_max:
            raise MessageTooLargeError(f"a line has {len(line)} bytes or more; allowed: {self._line_bytes_max}")

    async def _schedule_rows(
        self, request: RestRequest, given: list[tuple[int, Row | TarryError]], progress: _Progress
    ) -> RowResults:
        chunk = RowResults()
        entries = [(number, row) for number, row in given if not isinstance(row, TarryError)]
        for number, row in given:
            if isinstance(row, TarryError):
                progress.add_refusal(chunk, [number], row)
        tries = 0
        while entries:
            try:
                accepted = await _submit(request, to_batch([row for _, row in entries]))
            except InvalidMessageError as error:
                tries += 1
                if error.row is None or tries > TRIES_MAX:
                    await self._schedule_each(request, entries, chunk, progress)
                    break
                progress.add_refusal(chunk, [entries.pop(error.row)[0]], error.of_row(None))
                continue
            ids = [row[ID] for _, row in entries]
            chunk.parts.append(AcceptedRows([number for number, _ in entries], accepted, ids))
            progress.accepted += len(entries)
            break
        self._keep(request, progress, chunk, len(given))
        return chunk

    async def _schedule_each(
        self, request: RestRequest, entries: list[tuple[int, Row]], chunk: RowResults, progress: _Progress
    ) -> None:
        for number, row in entries:
            try:
                accepted = await _submit(request, to_batch([row]))
            except InvalidMessageError as error:
                progress.add_refusal(chunk, [number], error.of_row(None))
            else:
                chunk.parts.append(AcceptedRows([number], accepted, [row[ID]]))
                progress.accepted += 1

    # -- Arrow ---------------------------------------------------------------------------------------------------------

    async def _arrow(self, request: RestRequest, topic: str | None, progress: _Progress) -> AsyncIterator[RowResults]:
        stream = ArrowStream()
        held = 0
        try:
            async for piece in request.chunks():
                stream.feed(piece)
                request.take(stream.held - held if stream.held > held else 0)
                held = max(held, stream.held)
                for messages in stream.streams():
                    yield await self._schedule_batch(request, messages, topic, progress)
                request.give_back(held - stream.held)
                held = stream.held
        finally:
            request.give_back(held)
        if not stream.is_whole:
            raise InvalidArgumentError("the Arrow stream ends within a message; allowed: whole ones")

    async def _schedule_batch(
        self, request: RestRequest, messages: list[bytes], topic: str | None, progress: _Progress
    ) -> RowResults:
        chunk, first = RowResults(), progress.rows
        batch = await request.desk.run(read, messages)
        rows = range(first, first + batch.num_rows)
        progress.rows += batch.num_rows
        if not batch.num_rows:
            return chunk
        try:
            accepted = await _submit(request, _in_topic(batch, topic))
        except (InvalidArgumentError, ForbiddenError) as error:
            if isinstance(error, InvalidMessageError) and error.row is not None:
                error = error.of_row(first + error.row)
            progress.add_refusal(chunk, rows, error)
        else:
            ids = batch.column("id") if "id" in batch.schema.names else None
            chunk.parts.append(AcceptedRows(rows, accepted, ids))
            progress.accepted += batch.num_rows
        self._keep(request, progress, chunk, batch.num_rows)
        return chunk

    # -- both ----------------------------------------------------------------------------------------------------------

    def _keep(self, request: RestRequest, progress: _Progress, chunk: RowResults, rows: int) -> None:
        """Receipts stay until the whole request was read."""
        if progress.wants_all:
            request.take(rows * RECEIPT_BYTES)
        else:
            chunk.parts[:] = [part for part in chunk.parts if isinstance(part, RefusedRows)]


async def _submit(request: RestRequest, batch: pa.RecordBatch) -> Accepted:
    """Schedule a batch, waiting for a broker that is overloaded.

    Raises:
        TarryError: it was refused.
    """
    until_s = request.desk.loop.time() + PATIENCE_S
    while True:
        request.check_sender()
        try:
            return await request.desk.submit(batch)
        except OverloadedError:
            if request.desk.loop.time() >= until_s:
                raise
        await asyncio.sleep(AGAIN_S)


def _wants_all(request: RestRequest) -> bool:
    for name, value in request.query:
        if name != RECEIPTS.name or value not in RECEIPTS.schema["enum"]:
            raise InvalidArgumentError(f"the query has {name[:60]}={value[:60]!r}; allowed: receipts=all or refused")
    return dict(request.query).get(RECEIPTS.name) != "refused"


def _check_amount(progress: _Progress) -> None:
    if progress.refused > REFUSALS_MAX:
        raise InvalidArgumentError(f"{progress.refused} messages were refused, and no more were read")
    if progress.wants_all and progress.rows > RECEIPTS_MAX:
        raise MessageTooLargeError(
            f"{progress.rows} messages, and no more were read; allowed: {RECEIPTS_MAX}, or receipts=refused"
        )


def _in_topic(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """Return the batch with the path's topic, if the path has one."""
    if topic is None:
        return batch
    if "topic" not in batch.schema.names:
        return batch.append_column("topic", pa.repeat(topic, batch.num_rows))
    try:
        is_same = pc.all(pc.equal(batch.column("topic"), topic)).as_py()
    except (pa.ArrowException, TypeError):
        return batch  # the broker says what is wrong with it
    if not is_same:
        raise InvalidMessageError(f"the column topic has others than {topic!r} of the path; allowed: one topic")
    return batch


def _answer(progress: _Progress, answer_type: str) -> Answer:
    if progress.first_error is not None and not progress.accepted and progress.refused <= 1:
        raise progress.first_error
    if not progress.rows:
        raise InvalidMessageError("there are no messages; at least 1 is needed")
    headers = {"x-tarry-accepted": str(progress.accepted), "x-tarry-refused": str(progress.refused)}
    status = 200 if progress.accepted or progress.first_error is None else status_of(progress.first_error)
    if answer_type == ARROW:
        return Answer(status, as_arrow(progress.chunks), ARROW, headers)
    return Answer(status, as_json_lines(progress.chunks), JSON_LINES, headers)


def _described(path: str, where: str) -> Description:
    lines = DescribedBody(
        "JSON lines, or an Arrow stream.",
        {
            JSON_LINES: {"type": "string", "contentSchema": {"$ref": REF.format(model="TopicMessage")}},
            ARROW: {"type": "string", "contentMediaType": ARROW},
        },
    )
    receipts = DescribedBody("What became of each.", {JSON_LINES: {"type": "string"}, ARROW: {"type": "string"}})
    schemas = {**message_fields.schemas(), "Receipt": RECEIPT}
    name = "batch_topic" if "{" in path else "batch"
    parameters = (*in_path(path), RECEIPTS)
    text = TEXT.format(where)
    return Description(name, "messages", text, parameters, lines, {200: receipts}, schemas, needs=PRODUCE)
