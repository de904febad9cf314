"""Producers of single messages by either wire, as processes of their own: ``python -m benchmarks.wires_clients WIRE
ADDRESS IN_FLIGHT SECONDS``.

``link`` is :class:`tarry.AsyncClient`; ``flight`` is the same coalescing over one DoPut stream of pyarrow's client,
whose answers a thread reads: the wire alone, without the receipts and the pacing of a client. It prints its rate and
its CPU a message as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import uvloop

from tarry import AsyncClient
from tarry.api.wire import SCHEDULE_PATH, AcceptedAnswer, as_bytes, decode_answer
from tarry.batching.coalescing import Batch, Coalescer, EndOfTurn
from tarry.message.row_columns import to_batch
from tarry.message.rows import make_row

TOPIC, BODY, DELAY_S = "wires", b"x" * 256, 36_000
Send = Callable[[], Awaitable[object]]


class FlightProducer:
    """Single messages of one event loop over one DoPut stream."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._coalescer: Coalescer[tuple[Any, asyncio.Future[int]]] = Coalescer(self._send, lambda *_: None)
        self._turn = EndOfTurn(self._loop, self._coalescer.pump)
        self._sent: deque[Batch[Any]] = deque()
        self._client = fl.FlightClient(f"grpc://{address}")
        schema = to_batch([make_row(TOPIC, BODY, delay=DELAY_S)]).schema
        self._writer, self._reader = self._client.do_put(fl.FlightDescriptor.for_path(*SCHEDULE_PATH), schema)
        threading.Thread(target=self._read, daemon=True).start()

    def send(self) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        self._coalescer.add((make_row(TOPIC, BODY, delay=DELAY_S), future))
        self._turn.plan()
        return future

    def _send(self, batch: Batch[Any]) -> None:
        self._sent.append(batch)
        self._writer.write_batch(to_batch([row for row, _ in batch.entries]))

    def _read(self) -> None:
        while True:
            answer = decode_answer(as_bytes(self._reader.read()))
            assert isinstance(answer, AcceptedAnswer)
            self._loop.call_soon_threadsafe(self._resolve, self._sent.popleft(), answer)

    def _resolve(self, batch: Batch[Any], answer: AcceptedAnswer) -> None:
        self._coalescer.on_accepted(batch)
        for seq, (_, future) in enumerate(batch.entries, answer.first_seq):
            future.set_result(seq)
        self._turn.plan()


async def rate(send: Send, in_flight: int, seconds: float) -> dict[str, float]:
    count = 0

    async def task() -> None:
        nonlocal count
        while time.perf_counter() < end_s:
            await send()
            count += 1

    await send()
    began_s, spent_s = time.perf_counter(), time.process_time()
    end_s = began_s + seconds
    await asyncio.gather(*(task() for _ in range(in_flight)))
    return {"per_s": count / (time.perf_counter() - began_s), "cpu_us": (time.process_time() - spent_s) / count * 1e6}


async def main(wire: str, address: str, in_flight: int, seconds: float) -> None:
    if wire == "flight":
        found = await rate(FlightProducer(address).send, in_flight, seconds)
    else:
        async with AsyncClient(address) as client:
            found = await rate(lambda: client.schedule(TOPIC, BODY, delay=DELAY_S), in_flight, seconds)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    pa.set_cpu_count(1)
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
