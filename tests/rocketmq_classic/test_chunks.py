"""Parts of queues in memory: divided by queue and by filter, written down as they would be one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tarry.api.row_schemas import QUEUED
from tarry.fronts.rocketmq.classic.chunks import Chunk, ChunkCache
from tarry.fronts.rocketmq.classic.message_bytes import address_bytes, encode_message, stored_messages
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tests.rocketmq_classic.remoting import messages_of

HOST = address_bytes("127.0.0.1:10911")
QUEUES = TopicQueues(2)
NAME = st.sampled_from(
    ["a", "KEYS", "TAGS", "UNIQ_KEY", "TRAN_MSG", "__QUEUE", "__FLAG", "RECONSUME_TIME", "__BORNHOST",
     "BORN_TIMESTAMP", "tarry.only", "tarry.order"]
)  # fmt: skip
VALUE = st.sampled_from(["", "1", "7", "true", "x", "\x1fa b\x1fc", "a\x01b", "\x02", "ü", "v" * 20_000, "10.0.0.1:3"])
PROPERTIES = st.none() | st.dictionaries(NAME, VALUE, max_size=5)


def group(filter: str = "", wanted: list[bool] | None = None) -> Any:
    return SimpleNamespace(
        name="g", settings=SimpleNamespace(filter=filter), wants=lambda batch, _: np.array(wanted, np.bool_)
    )


def batch_of(properties: list[dict[str, str] | None], first: int = 0) -> pa.RecordBatch:
    rows = [
        {
            "seq": 100 + row, "topic": "t", "due_ms": 5, "id": f"id{row}" if row % 3 else None,
            "tag": "tag" if row % 2 else None, "properties": None if p is None else list(p.items()),
            "body": b"body%d" % row, "born_ms": 3, "kind": 0, "offset": first + row,
        }
        for row, p in enumerate(properties)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=QUEUED)


def chunk_of(batch: pa.RecordBatch, first: int, end: int) -> Chunk:
    return Chunk(batch, first, end, "t", QUEUES)


@given(st.lists(PROPERTIES, min_size=1, max_size=6))
def test_a_chunk_has_the_messages_that_are_read_one_by_one(properties: list[dict[str, str] | None]) -> None:
    batch = batch_of(properties)
    chunk = chunk_of(batch, 0, len(properties))
    everybody = group("a", [True] * len(properties))
    chunk.choose(everybody)
    found = [chunk.collect(everybody, queue, 0, HOST, 100, 1 << 30)[0] for queue in (0, 1)]
    numbers = QUEUES.numbers(batch, "t").tolist()
    expected = [encode_message(message, HOST) for message in stored_messages(batch, "t", numbers)]
    for queue in (0, 1):
        rows = [row for row, number in enumerate(numbers) if number == queue]
        assert [messages_of(part) for part in found[queue]] == [messages_of(expected[row]) for row in rows]


def test_a_chunk_is_collected_up_to_a_number_or_a_size_and_says_where_to_go_on() -> None:
    chunk = chunk_of(batch_of([{}] * 6, first=10), 9, 20)  # seqs 100 to 105: even rows are in queue 0
    everybody = group()
    assert chunk.knows(everybody)
    parts, behind, looked = chunk.collect(everybody, 0, 9, HOST, 2, 1 << 30)
    assert ([m["offset"] for m in messages_of(b"".join(parts))], behind, looked) == ([10, 12], 13, 13)
    parts, behind, looked = chunk.collect(everybody, 0, 13, HOST, 2, 1 << 30)
    assert ([m["offset"] for m in messages_of(b"".join(parts))], behind, looked) == ([14], 15, 20)
    assert chunk.collect(everybody, 0, 15, HOST, 2, 1 << 30) == ([], 15, 20)
    assert len(chunk.collect(everybody, 0, 9, HOST, 9, 1)[0]) == 1


def test_a_group_with_a_filter_gets_what_it_wants() -> None:
    chunk = chunk_of(batch_of([{}] * 4), 0, 4)
    some = group("a", [True, False, False, True])
    assert not chunk.knows(some)
    chunk.choose(some)
    assert chunk.knows(some) and not chunk.knows(group("b"))
    offsets = [messages_of(b"".join(chunk.collect(some, queue, 0, HOST, 9, 1 << 30)[0])) for queue in (0, 1)]
    assert [[m["offset"] for m in found] for found in offsets] == [[0], [3]]
    assert not chunk_of(batch_of([{"tarry.only": "h"}]), 0, 1).knows(group())


def test_chunks_are_found_by_their_offsets_and_go_when_there_are_too_many() -> None:
    chunks = [chunk_of(batch_of([{}] * 2, first), first, first + 2) for first in (0, 2, 6)]
    cache = ChunkCache(2 * chunks[0].size)
    for chunk in chunks[:2]:
        cache.add("t", chunk)
    assert [cache.find("t", offset) for offset in (0, 1, 2, 3, 4)] == [chunks[0], chunks[0], chunks[1], chunks[1], None]
    assert cache.find("other", 0) is None and cache.find("t", -1) is None
    assert (cache.next_first("t", 0), cache.next_first("t", 2), cache.next_first("other", 0)) == (2, None, None)
    assert cache.find("t", 0) is chunks[0]  # so the other one goes
    cache.add("t", chunks[2])
    assert [cache.find("t", offset) for offset in (0, 2, 7)] == [chunks[0], None, chunks[2]]
    again = chunk_of(batch_of([{}] * 2, 6), 6, 8)
    cache.add("t", again)
    assert (cache.find("t", 6), cache.find("t", 0)) == (again, chunks[0])
