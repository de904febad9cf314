"""What RocketMQ's messages have and Tarry's have no column for, as properties under RocketMQ's own names.

No user may set one of these names (``MessageConst`` of apache/rocketmq), so they cannot be mistaken; and who reads the
messages in another way (SQL filters, Spark, Flight) finds them under the names that RocketMQ's documents use.
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
"""What classic producers and consumers say beside; the last two have no names in RocketMQ, where they are columns."""
RETRY_TOPIC, ORIGIN_MESSAGE_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
"""Of a message that a classic consumer could not handle: its first topic and id."""
NUMBER = "__SEQ"
"""Of a message as classic consumers get it: its number, and behind a colon the place that it had first, where it is one
that was tried before. It is not stored; it tells which message a consumer means that sends a retry itself.
"""
POP_HANDLE = "POP_CK"
"""Of a message that a classic consumer popped: what it is settled with. It is not stored."""
REPLY_TO, CLUSTER_NAME = "REPLY_TO_CLIENT", "CLUSTER"
"""Of a classic producer's request: which client waits for a reply, and in which cluster."""
PRODUCER_GROUP = "PGROUP"
"""Of a classic producer's transaction: who is asked about it. Others cannot set it."""
TRANSACTION_ID = "__transactionId__"
"""Of the message that a classic producer is asked about: its transaction."""
REAL_TOPIC, MESSAGE_ID, SHARDING_KEY, DELIVER_MS = "REAL_TOPIC", "UNIQ_KEY", "__SHARDINGKEY", "TIMER_DELIVER_MS"
"""Of a message whose transaction is not decided: where it goes, in which order, and when. The last one also of a
message that was sent after the time at which it was to be delivered: its column says no more than that it is due.
"""

START_DELIVER = "__STARTDELIVERTIME"
"""What clients of cloud providers' RocketMQ name the time at which a message is to be delivered: that of
``setStartDeliverTime`` in ONS clients. RocketMQ's own client takes it for a delay too, and its broker for none.
"""
DELAYS = ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", DELIVER_MS, START_DELIVER)
"""What a producer may ask a delay with, in the order in which they count."""
LEVEL, OUT_MS, REAL_QUEUE = DELAYS[0], "TIMER_OUT_MS", "REAL_QID"
_PRECISION_MS = 1000
MADE_BY_BROKER = frozenset({REAL_TOPIC, REAL_QUEUE, OUT_MS})
"""What RocketMQ's broker adds to a delayed message, and leaves there when it delivers it."""

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
_NOT_USERS = RESERVED_NAMES | {*DELAYS}
_KEY_SEPARATOR = "\x1f"
"""No key has it: control characters are refused."""


def map_of(rows: Sequence[Sequence[tuple[str, str]]]) -> pa.MapArray:
    """Return the properties of many messages as a column of :data:`tarry.message.schema.PROPERTIES`.

    It is made from flat columns: a list of pairs a row takes several times as long.
    """
    pairs = list(chain.from_iterable(rows))
    names = [name for name, _ in pairs]
    values = pa.array([value for _, value in pairs], pa.string())
    width = len(rows[0]) if rows else 0
    # A producer's messages have the same few names each, and each array costs more than what is in it.
    if 0 < len(pairs) == width * len(rows) <= _SAME_NAMES_MAX and names == names[:width] * len(rows):
        return pa.MapArray.from_arrays(*_names_of(tuple(names[:width]), len(rows)), values)
    ends = pa.array([0, *accumulate(map(len, rows))], pa.int32())
    return pa.MapArray.from_arrays(ends, pa.array(names, pa.string()), values)


_SAME_NAMES_MAX = 512
"""Of one batch, so that what is kept of names is small."""


@lru_cache(maxsize=256)
def _names_of(names: tuple[str, ...], rows: int) -> tuple[pa.Array, pa.Array]:
    """Where each of ``rows`` messages with these names ends, and the names of all."""
    width = len(names)
    return pa.array(range(0, rows * width + 1, width), pa.int32()), pa.array(names * rows, pa.string())


class PropertyLists(NamedTuple):
    """The properties of many messages as flat lists: those of row ``r`` are from ``places[r]`` to ``places[r + 1]``."""

    places: list[int]
    names: list[str]
    values: list[str]


def lists_of(column: pa.MapArray) -> PropertyLists:
    """A column of :data:`tarry.message.schema.PROPERTIES`, in far less time than :meth:`to_pylist` takes."""
    if column.null_count:
        # A null row may span entries.
        column = pa.array([row or [] for row in column.to_pylist()], column.type)
    starts, low, names, values = entries_of(column)
    places = [*(starts - low).tolist(), len(names)]
    return PropertyLists(places, names.to_pylist(), values.to_pylist())


def join_keys(keys: Sequence[str]) -> str:
    """Keys as one text: with blanks between them, as RocketMQ has them, where none has a blank itself."""
    if any(" " in key for key in keys):
        return _KEY_SEPARATOR + _KEY_SEPARATOR.join(keys)
    return " ".join(keys)


def split_keys(text: str) -> list[str]:
    """The keys of :func:`join_keys`."""
    return text[1:].split(_KEY_SEPARATOR) if text.startswith(_KEY_SEPARATOR) else text.split(" ")


def plain_keys(text: str) -> str:
    """The keys of :func:`join_keys` with blanks between them, also where some have blanks themselves."""
    return " ".join(split_keys(text)) if text.startswith(_KEY_SEPARATOR) else text


def born_ms_of(properties: Mapping[str, str], accepted_ms: int) -> int:
    """When its producer made a message; where it does not say so, when it was accepted."""
    born_ms = _ms_of(properties.get(BORN_TIMESTAMP, ""))
    return accepted_ms if born_ms is None else born_ms


def deliver_ms_of(properties: Mapping[str, str]) -> int | None:
    """When a message was to be delivered that came too late for it; None: it had no such time."""
    return _ms_of(properties[DELIVER_MS]) if DELIVER_MS in properties else None


def asked_delay(user: Mapping[str, str], due_ms: int | None, now_ms: int, levels: int) -> list[tuple[str, str]]:
    """Make the properties that keep how a message's delay was asked for, so that its consumers can ask for the same, or
    for more: a level, which is one of so many ``levels``; else a span; else nothing, for its column is that moment,
    unless it came too late for it.
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
    """Make what RocketMQ's broker adds to a delayed message and leaves there when it delivers it, beside what is
    ``stored``, of which the names are enough; nothing of a message that was due when it was accepted.

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
    # Producers of other fronts may have put any text there.
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 15 else None


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """What a consumer sees as the user's own."""
    return {n: v for n, v in properties.items() if n not in _NOT_USERS and not n.startswith("tarry.")}
