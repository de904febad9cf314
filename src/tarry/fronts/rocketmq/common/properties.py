"""Properties, under RocketMQ's names, for fields of its messages that have no column in Tarry.

No user may set one of these names (``MessageConst`` of apache/rocketmq), so they cannot be mistaken. Other readers of
the messages (SQL filters, Spark, Flight) find them under the names that RocketMQ's documents use.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import NamedTuple

import pyarrow as pa

from tarry.fronts.rocketmq.common.names import DEAD_PREFIX
from tarry.message.properties import entries_of

KEYS, TRACE_CONTEXT, BORN_HOST, BORN_TIMESTAMP = "KEYS", "TRACE_CONTEXT", "__BORNHOST", "BORN_TIMESTAMP"
TRANSACTION = "TRAN_MSG"
TAGS, RECONSUME_TIMES, FLAG, QUEUE = "TAGS", "RECONSUME_TIME", "__FLAG", "__QUEUE"
"""Further fields of classic producers and consumers.

The last two are columns in RocketMQ, and have no names there.
"""
RETRY_TOPIC, ORIGIN_MESSAGE_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
"""First topic and id of a message that a classic consumer could not handle."""
NUMBER = "__SEQ"
"""A message's number, as classic consumers get it; of a retry, then a colon and its first place.

It is not stored. A consumer that sends a retry itself tells by it which message it means.
"""
POP_HANDLE = "POP_CK"
"""Handle by which a popped message is settled. It is not stored."""
REPLY_TO, CORRELATION, CLUSTER_NAME = "REPLY_TO_CLIENT", "CORRELATION_ID", "CLUSTER"
"""For a classic producer's request: the client that waits for a reply, and its cluster."""
PRODUCER_GROUP = "PGROUP"
"""Group of a classic producer, which is asked about its transaction. Others cannot set it."""
TRANSACTION_ID = "__transactionId__"
"""Transaction of a message about which a classic producer is asked."""
REAL_TOPIC, MESSAGE_ID, SHARDING_KEY, DELIVER_MS = "REAL_TOPIC", "UNIQ_KEY", "__SHARDINGKEY", "TIMER_DELIVER_MS"
"""Topic, id, order and due time of a message whose transaction is not decided.

DELIVER_MS is also set for a message that was sent after the time at which it was to be delivered: its column only says
that it is due.
"""

START_DELIVER = "__STARTDELIVERTIME"
"""Name of the delivery time in clients of cloud providers' RocketMQ.

It is the property of ``setStartDeliverTime`` in ONS clients. RocketMQ's own client takes it for a delay, too; its
broker does not.
"""
DELAYS = ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", DELIVER_MS, START_DELIVER)
"""Properties by which a producer may ask for a delay, in the order in which they count."""
LEVEL, OUT_MS, REAL_QUEUE = DELAYS[0], "TIMER_OUT_MS", "REAL_QID"
_PRECISION_MS = 1000
MADE_BY_BROKER = frozenset({REAL_TOPIC, REAL_QUEUE, OUT_MS})
"""Properties that RocketMQ's broker adds to a delayed message, and leaves there when it delivers it."""

RESERVED_NAMES = frozenset(
    {
        "TRACE_ON", "MSG_REGION", "KEYS", "TAGS", "WAIT", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP",
        "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG",
        "RECONSUME_TIME", "UNIQ_KEY", "POP_CK", "POP_CK_OFFSET", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME",
        "1ST_POP_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "DUP_INFO", "EXTEND_UNIQ_INFO", "INSTANCE_ID", "CORRELATION_ID",
        "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "INNER_MULTI_QUEUE_OFFSET",
        "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL", "__BORNHOST", "BORN_TIMESTAMP", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "__CRC32#",
        "__SHARDINGKEY", "TRACE_CONTEXT", "__transactionId__", "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "TRANSACTION_CHECK_TIMES", "__FLAG", "__QUEUE", "__SEQ",
    }
)  # fmt: skip
SPREAD = "TARRY_SPREAD_MS"
"""A user's property: the span after its due time within which the message is due. It is stored."""
_NOT_USERS = RESERVED_NAMES | {*DELAYS}
_KEY_SEPARATOR = "\x1f"
"""No key contains it: control characters are refused."""


def map_of(rows: Sequence[Sequence[tuple[str, str]]]) -> pa.MapArray:
    """Return the properties of many messages as a column of :data:`tarry.message.schema.PROPERTIES`.

    It is built from flat columns: a list of pairs for each row takes several times as long.
    """
    pairs = list(chain.from_iterable(rows))
    names = [name for name, _ in pairs]
    values = pa.array([value for _, value in pairs], pa.string())
    width = len(rows[0]) if rows else 0
    # A producer's messages all have the same few names, and creating an array costs more than its content.
    is_even = set(map(len, rows)) == {width}
    if is_even and 0 < len(pairs) <= _SAME_NAMES_MAX and names == names[:width] * len(rows):
        return pa.MapArray.from_arrays(*_names_of(tuple(names[:width]), len(rows)), values)
    ends = pa.array([0, *accumulate(map(len, rows))], pa.int32())
    return pa.MapArray.from_arrays(ends, pa.array(names, pa.string()), values)


_SAME_NAMES_MAX = 512
"""Most names of one batch that are cached, so that the cache stays small."""


@lru_cache(maxsize=256)
def _names_of(names: tuple[str, ...], rows: int) -> tuple[pa.Array, pa.Array]:
    """Return the offsets of ``rows`` messages with these names, and the names of all."""
    width = len(names)
    return pa.array(range(0, rows * width + 1, width), pa.int32()), pa.array(names * rows, pa.string())


class PropertyLists(NamedTuple):
    """The properties of many messages as flat lists.

    Those of row ``r`` are from ``places[r]`` to ``places[r + 1]``.
    """

    places: list[int]
    names: list[str]
    values: list[str]


def lists_of(column: pa.MapArray) -> PropertyLists:
    """Convert a column of PROPERTIES to lists, in far less time than :meth:`to_pylist` takes.

    See :data:`tarry.message.schema.PROPERTIES`.
    """
    if column.null_count:
        # A null row may span entries.
        column = pa.array([row or [] for row in column.to_pylist()], column.type)
    starts, low, names, values = entries_of(column)
    places = [*(starts - low).tolist(), len(names)]
    return PropertyLists(places, names.to_pylist(), values.to_pylist())


def join_keys(keys: Sequence[str]) -> str:
    """Join keys into one text: with blanks as in RocketMQ, unless a key contains a blank itself."""
    if any(" " in key for key in keys):
        return _KEY_SEPARATOR + _KEY_SEPARATOR.join(keys)
    return " ".join(keys)


def split_keys(text: str) -> list[str]:
    """Split the keys that :func:`join_keys` joined."""
    return text[1:].split(_KEY_SEPARATOR) if text.startswith(_KEY_SEPARATOR) else text.split(" ")


def plain_keys(text: str) -> str:
    """Return joined keys with blanks between them, even if some contain blanks themselves."""
    return " ".join(split_keys(text)) if text.startswith(_KEY_SEPARATOR) else text


def born_ms_of(properties: Mapping[str, str], accepted_ms: int) -> int:
    """Return the time at which its producer made a message, or else at which it was accepted."""
    born_ms = _ms_of(properties.get(BORN_TIMESTAMP, ""))
    return accepted_ms if born_ms is None else born_ms


def deliver_ms_of(properties: Mapping[str, str]) -> int | None:
    """Return the delivery time of a message that was sent after it; None if it had no such time."""
    return _ms_of(properties[DELIVER_MS]) if DELIVER_MS in properties else None


def asked_delay(user: Mapping[str, str], due_ms: int | None, now_ms: int, levels: int) -> list[tuple[str, str]]:
    """Make the properties that keep how a message's delay was asked for, so that consumers can repeat it.

    They are a level, at most ``levels``; or a span; or nothing, since the due time is in its column, unless the message
    came after it.
    """
    if due_ms is None:
        return []
    for name in DELAYS:
        if name in user and (name != LEVEL or int(user[name]) > 0):
            if name == DELIVER_MS:
                break
            return [(name, str(min(int(user[name]), levels)) if name == LEVEL else user[name])]
    return [(DELIVER_MS, str(due_ms))] if due_ms < now_ms else []


def delay_properties(stored: Container[str], due_ms: int, accepted_ms: int, topic: str, queue: int) -> dict[str, str]:
    """Make the properties that RocketMQ's broker adds to a delayed message, beside those ``stored``.

    It leaves them there when it delivers the message. Only the names of ``stored`` are used. A message that was due
    when it was accepted gets none.

    Source: ``HookUtils.transformTimerMessage``, ``transformDelayLevelMessage``.
    """
    if due_ms <= accepted_ms or topic.startswith(DEAD_PREFIX):
        return {}
    real = {REAL_TOPIC: topic, REAL_QUEUE: str(queue)}
    if LEVEL in stored:
        return real
    out_ms = (due_ms - 1) // _PRECISION_MS * _PRECISION_MS
    spans = any(name in stored for name in DELAYS[1:3])
    return {**({} if spans else {DELIVER_MS: str(due_ms)}), OUT_MS: str(out_ms), **real}


def _ms_of(text: str) -> int | None:
    # Producers of other fronts may have set any text.
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 15 else None


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a consumer sees as the user's own."""
    return {n: v for n, v in properties.items() if n not in _NOT_USERS and not n.startswith("tarry.")}
