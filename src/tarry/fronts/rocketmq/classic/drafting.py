"""Checks of a message that a producer sends. See :mod:`tarry.fronts.rocketmq.common.draft`."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from tarry.base.clock import Clock
from tarry.fronts.rocketmq.classic.batches import BatchEntry
from tarry.fronts.rocketmq.classic.codes import RequestRefused, ResponseCode
from tarry.fronts.rocketmq.classic.fields import Fields
from tarry.fronts.rocketmq.classic.message_bytes import PROPERTIES_BYTES_MAX
from tarry.fronts.rocketmq.common.draft import (
    ID_BYTES_MAX,
    Draft,
    DraftRules,
    check_body,
    check_order_key,
    check_tag,
    due_ms_of,
    spread_due_ms,
)
from tarry.fronts.rocketmq.common.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    CLUSTER_NAME,
    DELAYS,
    DELIVER_MS,
    FLAG,
    MADE_BY_BROKER,
    MESSAGE_ID,
    NUMBER,
    QUEUE,
    RECONSUME_TIMES,
    REPLY_TO,
    SHARDING_KEY,
    TAGS,
    TRANSACTION,
    asked_delay,
)
from tarry.fronts.rocketmq.common.unpacking import GZIP, LZ4, ZSTD, Unpacker
from tarry.message.topics import RESERVED

COMPRESSED = 1
_COMPRESSION_SHIFT, _COMPRESSION_MASK = 8, 7
_CODECS = {1: LZ4, 2: ZSTD}
_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_IMMUNITY_S_MAX = 3_600
_CHARACTER_BYTES_MAX = 4
_NOT_KEPT = frozenset(
    (
        *DELAYS, *MADE_BY_BROKER, TAGS, SHARDING_KEY, "WAIT", BORN_HOST, BORN_TIMESTAMP, FLAG, QUEUE, RECONSUME_TIMES,
        CLUSTER_NAME, NUMBER,
    )
)  # fmt: skip
"""Properties that become a column, are written anew, or mean nothing once a message is stored."""


class Draftsman:
    """Makes drafts of one request's messages.

    ``fields``: the request's, under the names of SEND_MESSAGE; ``queue``: the queue of the topic that they go to, None
    if the topic has only one, or the producer has not chosen.
    """

    def __init__(
        self, topic: str, queue: int | None, fields: Fields, peer: str, clock: Clock, rules: DraftRules, cluster: str
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._now_ms = now_ms = clock.now_ms()
        self._rules = rules
        self._cluster = cluster
        self._system_flag = fields.whole("sysFlag", 0)
        self._from_header: list[tuple[str, str]] = [
            (BORN_HOST, peer), (BORN_TIMESTAMP, str(max(0, fields.whole("bornTimestamp", now_ms)))),
        ]  # fmt: skip
        if queue is not None:
            self._from_header.append((QUEUE, str(queue)))
        if reconsume_times := fields.whole("reconsumeTimes", 0):
            self._from_header.append((RECONSUME_TIMES, str(reconsume_times)))

    def drafts(self, entries: Sequence[BatchEntry], unpacker: Unpacker) -> list[Draft]:
        """Return all messages of the request. Any thread.

        Raises:
            Refusal, RequestRefused: MESSAGE_ILLEGAL.
        """
        return [self._draft(entry, unpacker) for entry in entries]

    def _draft(self, entry: BatchEntry, unpacker: Unpacker) -> Draft:
        given, rules = entry.properties, self._rules
        body = self._plain_body(entry.body, unpacker)
        check_body(body, rules.body_bytes_max)
        _check_properties(given, rules.properties_bytes_max)
        due_ms = due_ms_of(given, None, self._clock, rules)
        due_ms = spread_due_ms(given, due_ms, given.get(MESSAGE_ID), self._clock, rules)
        order_key = given.get(SHARDING_KEY) or None
        if order_key is not None:
            check_order_key(order_key)
        half = given.get(TRANSACTION, "").lower() == "true"
        properties = [(name, value) for name, value in given.items() if name not in _NOT_KEPT]
        asked = asked_delay(given, due_ms, self._now_ms, len(rules.levels))
        # A half message keeps its time of delivery in any case.
        properties += [pair for pair in asked if not half or pair[0] != DELIVER_MS]
        if REPLY_TO in given:
            properties.append((CLUSTER_NAME, self._cluster))
        if entry.flag:
            properties.append((FLAG, str(entry.flag)))
        return Draft(
            self._topic,
            self._now_ms if due_ms is None else due_ms,
            body,
            _transaction_message_id(given) if half else "",
            check_tag(given.get(TAGS, "")) or None,
            properties + self._from_header,
            order_key,
            half,
            _immunity_ms(given) if half else None,
            due_ms is not None,
        )

    def _plain_body(self, body: bytes, unpacker: Unpacker) -> bytes:
        if not self._system_flag & COMPRESSED:
            return body
        return unpacker.unpack(body, _CODECS.get(self._system_flag >> _COMPRESSION_SHIFT & _COMPRESSION_MASK, GZIP))


def _check_properties(properties: dict[str, str], bytes_max: int) -> None:
    for name in properties:
        if name.startswith(RESERVED):
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"property {name!r:.300} is used by the system")
    size = sum(map(len, properties)) + sum(map(len, properties.values())) + 2 * len(properties)
    if size * _CHARACTER_BYTES_MAX <= bytes_max:
        return
    size = sum(len(name.encode()) + len(value.encode()) + 2 for name, value in properties.items())
    if size > min(bytes_max, PROPERTIES_BYTES_MAX):
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the properties have {size} bytes; allowed: {min(bytes_max, PROPERTIES_BYTES_MAX)}",
        )


def _transaction_message_id(properties: dict[str, str]) -> str:
    """Return the id of a transaction's message, which is the same when the message is sent again.

    Only such messages are deduplicated by their id: a program may send one object twice, which keeps its id, and mean
    two messages.
    """
    id = properties.get(MESSAGE_ID) or uuid4().hex
    if len(id.encode()) > ID_BYTES_MAX:
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL, f"{MESSAGE_ID} has {len(id.encode())} bytes; allowed: {ID_BYTES_MAX}"
        )
    return id


def _immunity_ms(properties: dict[str, str]) -> int | None:
    text = properties.get(_IMMUNITY, "")
    valid = text.isdecimal() and text.isascii() and len(text) <= 4 and int(text) <= _IMMUNITY_S_MAX
    if text and not valid:
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL, f"{_IMMUNITY} is {text!r:.60}; allowed: 0 to {_IMMUNITY_S_MAX}"
        )
    return int(text) * 1000 if text else None
