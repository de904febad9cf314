"""SQS's JSON protocol over plain connections: no SDK, no signature, and every wait with an end.

A body is the moment before which its message must not come, in UTC microseconds, and filling. So lateness is measured
by one clock, that of the client; the time that a send takes is in it, for both servers alike.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

CALL_S = 30.0
"""Longest time of a request, its waiting for messages included."""
BODY_BYTES = 256
BATCH = 10
_HEAD = (
    "POST / HTTP/1.1\r\nhost: {place}\r\ncontent-type: application/x-amz-json-1.0\r\n"
    "x-amz-target: AmazonSQS.{action}\r\n"
    "authorization: AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, "
    "Signature=00\r\ncontent-length: "
)


class Connection:
    """One connection; one request at a time."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, action: str, **fields: Any) -> dict[str, Any]:
        """Return what a request is answered.

        Raises:
            TimeoutError: it took longer than :data:`CALL_S`. RuntimeError: it was refused.
        """
        async with asyncio.timeout(CALL_S):
            return await self._call(action, fields)

    async def _call(self, action: str, fields: dict[str, Any]) -> dict[str, Any]:
        if self._streams is None:
            host, _, port = self._place.rpartition(":")
            self._streams = await asyncio.open_connection(host, int(port), limit=1 << 22)
        reader, writer = self._streams
        body = json.dumps(fields).encode()
        writer.write(f"{_HEAD.format(place=self._place, action=action)}{len(body)}\r\n\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        found = head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        answer = await reader.readexactly(int(found))
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"{action} was refused: {answer[:500]!r}")
        return dict(json.loads(answer)) if answer else {}

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


class SqsClient:
    """Some connections to one queue."""

    def __init__(self, place: str, connections: int) -> None:
        self._place = place
        self.connections = [Connection(place) for _ in range(connections)]
        self.queue = ""

    async def make_queue(self, name: str) -> None:
        answer = await self.connections[0].call("CreateQueue", QueueName=name, Attributes={"VisibilityTimeout": "300"})
        self.queue = answer["QueueUrl"]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    async def each(self, work: Callable[[Connection], Awaitable[None]], connections: Sequence[Connection]) -> None:
        """Have each connection do some work, to the end of the first failure or of all."""
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(_done(work, connection))

    async def send(self, count: int, seconds: float, *, batch: bool = False, delay_s: int = 0) -> tuple[int, float]:
        """Send messages, for some time at most; return how many were accepted, and the seconds that it took."""
        numbers, began_s = iter(range(0, count, BATCH if batch else 1)), time.perf_counter()
        sent = 0

        async def work(connection: Connection) -> None:
            nonlocal sent
            while time.perf_counter() - began_s < seconds and next(numbers, None) is not None:
                accepted = await self._send(connection, BATCH if batch else 1, delay_s)
                sent += accepted  # not in one line: that would add to what it was before the wait

        await self.each(work, self.connections)
        return sent, time.perf_counter() - began_s

    async def _send(self, connection: Connection, count: int, delay_s: int) -> int:
        body = body_of(delay_s)
        if count == 1:
            await connection.call("SendMessage", QueueUrl=self.queue, MessageBody=body, DelaySeconds=delay_s)
            return 1
        entries = [{"Id": str(number), "MessageBody": body, "DelaySeconds": delay_s} for number in range(count)]
        answer = await connection.call("SendMessageBatch", QueueUrl=self.queue, Entries=entries)
        return len(answer["Successful"])

    async def send_for(self, due_s: float, count: int) -> None:
        """Send messages that are due within the second from ``due_s`` on."""
        numbers = iter(range(0, count, BATCH))

        async def work(connection: Connection) -> None:
            while next(numbers, None) is not None:
                await self._send(connection, BATCH, max(0, math.ceil(due_s - time.time())))

        await self.each(work, self.connections)

    async def send_paced(self, per_second: int, seconds: float, delays_s: Sequence[int]) -> int:
        """Send single messages at a pace, with one delay after the other; return how many."""
        began_s, count = time.perf_counter(), int(per_second * seconds)
        numbers = iter(range(count))

        async def work(connection: Connection) -> None:
            for number in numbers:
                await asyncio.sleep(max(0.0, began_s + number / per_second - time.perf_counter()))
                await self._send(connection, 1, delays_s[number % len(delays_s)])

        await self.each(work, self.connections)
        return count

    async def receive(
        self, count: int, seconds: float, connections: Sequence[Connection] | None = None
    ) -> tuple[np.ndarray, float]:
        """Receive and delete messages, for some time at most.

        Returns:
            Their lateness in milliseconds, and the seconds to the last of them.
        """
        began_s = last_s = time.perf_counter()
        lateness: list[float] = []

        async def work(connection: Connection) -> None:
            nonlocal last_s
            while len(lateness) < count and time.perf_counter() - began_s < seconds:
                answer = await connection.call(
                    "ReceiveMessage", QueueUrl=self.queue, MaxNumberOfMessages=BATCH, WaitTimeSeconds=1
                )
                found, now_us = answer.get("Messages") or [], time.time_ns() // 1000
                if not found:
                    continue
                lateness.extend((now_us - int(each["Body"][:20])) / 1000 for each in found)
                entries = [{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(found)]
                await connection.call("DeleteMessageBatch", QueueUrl=self.queue, Entries=entries)
                last_s = time.perf_counter()

        await self.each(work, connections or self.connections)
        return np.array(lateness), last_s - began_s


def body_of(delay_s: int) -> str:
    """Return the body of a message that is sent now."""
    return f"{time.time_ns() // 1000 + delay_s * 1_000_000:020d}".ljust(BODY_BYTES, "x")


async def _done(work: Callable[[Connection], Awaitable[None]], connection: Connection) -> None:
    await work(connection)
