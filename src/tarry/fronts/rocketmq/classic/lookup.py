"""QUERY_MESSAGE and VIEW_MESSAGE_BY_ID: messages by key, by id, or by place.

There is no index of keys: the topic's queue is searched, newest messages first, for :data:`LOOK_S` at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from tarry.api.local import AnyBroker
from tarry.api.operations import FindOffset, GetQueues, ReadQueue
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.connection import OpenRequest, Reply
from tarry.fronts.rocketmq.classic.dead_queues import DeadQueues
from tarry.fronts.rocketmq.classic.message_bytes import (
    StoredMessage,
    address_bytes,
    encode_message,
    queue_offset,
    stored_messages,
)
from tarry.fronts.rocketmq.classic.queues import TopicQueues
from tarry.fronts.rocketmq.classic.sending import NUMBER_BASE
from tarry.fronts.rocketmq.common.names import topic_name
from tarry.fronts.rocketmq.common.properties import KEYS, MESSAGE_ID, split_keys
from tarry.fronts.rocketmq.common.rights import check_browse, may_browse
from tarry.fronts.rocketmq.common.threads import RunInThread

LOOK_S = 3.0
CHUNK_ROWS = 8192
MESSAGES_MAX = 64
_BY_ID = "_UNIQUE_KEY_QUERY"
"""The field that is true if the key is a message's id."""

Matches = Callable[[pa.RecordBatch], list[int]]
"""Finds the matching rows of a batch."""


@dataclass(eq=False)
class Lookup:
    """Looks messages up. On the event loop's thread."""

    _broker: AnyBroker
    _queues: TopicQueues
    _dead_queues: DeadQueues
    _run_in_thread: RunInThread

    async def query(self, request: OpenRequest) -> Reply:
        """Answer QUERY_MESSAGE: a topic's messages with a key, or an id, that fell due in a span of time.

        Raises:
            RequestRefused: QUERY_NOT_FOUND.
        """
        fields = request.fields
        topic, key = topic_name(fields.text("topic"), ""), fields.text("key")
        most = max(1, min(fields.whole("maxNum", 32), MESSAGES_MAX))
        begin_ms, end_ms = fields.whole("beginTimestamp", 0), fields.whole("endTimestamp", (1 << 62))
        names = [name for name in self._dead_queues.topics(topic) if may_browse(request.principal.rights, name)]
        if not names:
            check_browse(request.principal, topic, peer=request.peer_host)
        matches = _with_id(key) if fields.truth(_BY_ID) else _with_key(key)
        host = address_bytes(request.connection.local)

        def look_in(name: str) -> Iterator[bytes]:
            first = self._broker.call(FindOffset(name, begin_ms))
            end = self._broker.call(FindOffset(name, end_ms + 1))
            rows = self._look(name, first, end, matches)
            return (encode_message(m, host) for m in self._some(rows, name, most))

        def look() -> bytes:
            found = (part for name in names for part in look_in(name))
            return b"".join(islice(found, most))

        body = await self._run_in_thread(look)
        if not body:
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, f"no message of topic {topic!r} has {key!r:.300}")
        return Reply(fields={"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}, body=body)

    async def view(self, request: OpenRequest) -> Reply:
        """Answer VIEW_MESSAGE_BY_ID: the message at a physical offset, or of a number.

        Ids that producers got contain the number.

        Raises:
            RequestRefused: SYSTEM_ERROR: there is no such message, or it is not due yet.
        """
        topic, place = request.fields.text("topic", " ").strip(), request.fields.whole("offset")
        return Reply(body=await self.find(topic, place, request))

    async def find(self, topic: str, place: int, request: OpenRequest) -> bytes:
        """Return the message at a place, as :meth:`view` does, of a topic that the caller may browse.

        ``topic``: empty if it may be any.

        Raises:
            RequestRefused: SYSTEM_ERROR.
        """
        host, rights = address_bytes(request.connection.local), request.principal.rights
        if topic and not any(may_browse(rights, name) for name in self._dead_queues.topics(topic)):
            check_browse(request.principal, topic, peer=request.peer_host)

        def look() -> bytes:
            queues = self._broker.call(GetQueues(self._dead_queues.topics(topic) if topic else None))
            for name, ends in queues.items():
                if not may_browse(rights, name):
                    continue
                if place < 0:
                    rows = self._look(name, *ends, _with_seq(place - NUMBER_BASE))
                elif (offset := queue_offset(name, place, ends)) is not None:
                    rows = self._broker.call(ReadQueue(name, offset, offset + 1))
                else:
                    continue
                for message in self._some(rows, name, 1):
                    return encode_message(message, host)
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"there is no message at {place}, or it is not due yet")

        return await self._run_in_thread(look)

    def _look(self, topic: str, first: int, end: int, matches: Matches) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of a queue, newest batches first. In a thread."""
        until_s = time.monotonic() + LOOK_S
        while first < end and time.monotonic() < until_s:
            begin = max(first, end - CHUNK_ROWS)
            batches = self._broker.call(ReadQueue(topic, begin, end))
            for batch in reversed(list(batches)):
                if places := matches(batch):
                    yield batch.take(pa.array(places))
            end = begin

    def _some(self, batches: Iterator[pa.RecordBatch], topic: str, most: int) -> Iterator[StoredMessage]:
        for batch in batches:
            for message in stored_messages(batch, topic, self._queues.numbers(batch, topic)):
                if most == 0:
                    return
                most -= 1
                yield message


def _with_key(key: str) -> Matches:
    def matches(batch: pa.RecordBatch) -> list[int]:
        keys = pc.map_lookup(batch.column("properties"), pa.scalar(KEYS), "first")
        rough = pc.match_substring(keys, key).fill_null(False)
        places = [row for row, may_have in enumerate(rough.to_pylist()) if may_have]
        return [row for row in places if key in split_keys(keys[row].as_py())]

    return matches


def _with_id(id: str) -> Matches:
    def matches(batch: pa.RecordBatch) -> list[int]:
        ids = pc.coalesce(pc.map_lookup(batch.column("properties"), pa.scalar(MESSAGE_ID), "first"), batch.column("id"))
        return [row for row, same in enumerate(pc.equal(ids, id).to_pylist()) if same]

    return matches


def _with_seq(seq: int) -> Matches:
    return lambda batch: [row for row, same in enumerate(pc.equal(batch.column("seq"), seq).to_pylist()) if same]
