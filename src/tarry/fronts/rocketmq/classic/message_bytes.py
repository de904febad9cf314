"""Messages as consumers get them: RocketMQ's storage format, one after the other. Pure functions, without I/O.

::

    length i32 · magic i32 · body's CRC-32 i32 · queue i32 · flag i32 · queue offset i64 · physical offset i64
    system flag i32 · born i64 (ms) · producer's address · stored i64 (ms) · broker's address
    tries before this one i32 · prepared offset i64 · body (length i32) · topic (length u8) · properties (length i16)

An address is 4 or 16 bytes (said by the system flag) and a port i32. Properties are ``name 0x01 value 0x02`` each. A
topic of more than 127 bytes has another magic, and its length as i16. Source: ``MessageDecoder`` of apache/rocketmq.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from tarry.api.receipt import id_of
from tarry.base.message import ORDER_KEY, RESERVED
from tarry.fronts.rocketmq.common.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    FLAG,
    KEYS,
    MESSAGE_ID,
    QUEUE,
    RECONSUME_TIMES,
    SHARDING_KEY,
    TAGS,
    TRANSACTION,
    born_ms_of,
    split_keys,
)

NAME_END, PAIR_END = "\x01", "\x02"
PROPERTIES_BYTES_MAX = (1 << 15) - 1
MAGIC, MAGIC_LONG_TOPIC = -626843481, -626843477
SHORT_TOPIC_BYTES = 127
COMMITTED, _BORN_V6, _STORED_V6 = 8, 1 << 4, 1 << 5
_FRONT = struct.Struct(">iiiiiqqiq")
_LONG, _WHOLE = struct.Struct(">q"), struct.Struct(">i")
_TRIES = struct.Struct(">iqi")
_OFFSET_BITS = 40
_TOPIC_MASK = (1 << 23) - 1
_COLUMNS = ("seq", "due_ms", "id", "tag", "properties", "body", "born_ms", "offset")
_IN_COLUMNS = frozenset({BORN_HOST, BORN_TIMESTAMP, FLAG, QUEUE, RECONSUME_TIMES})
"""Stored properties that have a place of their own in the format."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with all that the format says of it."""

    topic: str
    queue_offset: int
    body: bytes
    properties: Mapping[str, str]
    flag: int = 0
    system_flag: int = 0
    born_ms: int = 0
    born_host: str = ""
    stored_ms: int = 0
    reconsume_times: int = 0
    queue: int = 0


def stored_messages(batch: pa.RecordBatch, topic: str, queues: Iterable[int]) -> Iterator[StoredMessage]:
    """Rows of a topic's queue (:data:`tarry.api.views.QUEUED`), and the number of each one's queue. It counts as stored
    when it is due, also where it was accepted later: consumers look offsets up by that time.
    """
    columns = [batch.column(name).to_pylist() for name in _COLUMNS]
    for seq, due_ms, id, tag, pairs, body, accepted_ms, offset, queue in zip(*columns, queues, strict=True):
        stored = dict(pairs) if pairs else {}
        yield StoredMessage(
            topic,
            offset,
            body,
            _visible_properties(stored, tag, id or id_of(seq)),
            _number(stored.get(FLAG)),
            COMMITTED if stored.get(TRANSACTION) == "true" else 0,
            born_ms_of(stored, accepted_ms),
            stored.get(BORN_HOST, ""),
            due_ms,
            _number(stored.get(RECONSUME_TIMES)),
            int(queue),
        )


def _visible_properties(stored: Mapping[str, str], tag: str | None, id: str) -> dict[str, str]:
    properties = {n: v for n, v in stored.items() if n not in _IN_COLUMNS and not n.startswith(RESERVED)}
    properties.setdefault(MESSAGE_ID, id)
    if tag is not None:
        properties[TAGS] = tag
    if KEYS in properties:
        properties[KEYS] = " ".join(split_keys(properties[KEYS]))
    if ORDER_KEY in stored:
        properties[SHARDING_KEY] = stored[ORDER_KEY]
    return properties


def encode_message(message: StoredMessage, store_host: bytes) -> bytes:
    """One message. ``store_host``: the broker's :func:`address_bytes`."""
    topic = message.topic.encode()
    properties = encode_properties(message.properties)
    born_host = address_bytes(message.born_host)
    system_flag = message.system_flag | (_BORN_V6 if len(born_host) > 8 else 0)
    system_flag |= _STORED_V6 if len(store_host) > 8 else 0
    short = len(topic) <= SHORT_TOPIC_BYTES
    named = (bytes((len(topic),)) if short else len(topic).to_bytes(2, "big")) + topic
    rest = b"".join(
        (
            born_host, _LONG.pack(message.stored_ms), store_host,
            _TRIES.pack(message.reconsume_times, 0, len(message.body)), message.body,
            named, len(properties).to_bytes(2, "big"), properties,
        )
    )  # fmt: skip
    front = _FRONT.pack(
        _FRONT.size + len(rest),
        MAGIC if short else MAGIC_LONG_TOPIC,
        zlib.crc32(message.body) & 0x7FFFFFFF,
        message.queue,
        message.flag,
        message.queue_offset,
        physical_offset(message.topic, message.queue_offset),
        system_flag,
        message.born_ms,
    )
    return front + rest


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """As much as the format has room for; the last are left out, and what it cannot hold for its separators: messages
    of other protocols may have such.
    """
    parts: list[bytes] = []
    size = 0
    for name, value in properties.items():
        text = f"{name}{NAME_END}{value}{PAIR_END}"
        if text.count(NAME_END) > 1 or text.count(PAIR_END) > 1:
            continue
        part = text.encode()
        size += len(part)
        if size > PROPERTIES_BYTES_MAX:
            break
        parts.append(part)
    return b"".join(parts)


def decode_properties(text: str) -> dict[str, str]:
    """The pairs of a text; what is no pair is left out, as RocketMQ does."""
    pairs = (part.partition(NAME_END) for part in text.split(PAIR_END))
    return {name: value for name, between, value in pairs if between and name}


@lru_cache(maxsize=4096)
def address_bytes(host_port: str) -> bytes:
    """``HOST:PORT`` or an IP address alone; what is none (a producer may call itself anything) is 0.0.0.0:0."""
    for host, port in (host_port.rpartition(":")[::2], (host_port, "")):
        try:
            packed = ipaddress.ip_address(host.strip("[]")).packed
        except ValueError:
            continue
        number = int(port) if port.isdecimal() and port.isascii() and len(port) <= 5 else 0
        return packed + _WHOLE.pack(number)
    return bytes(8)


def physical_offset(topic: str, offset: int) -> int:
    """A number that tells where a message is: 23 bits of the topic's CRC-32, and 40 of the offset in its queue. Clients
    give it back with the topic's name, or to be looked for in all topics.
    """
    return _topic_mark(topic) << _OFFSET_BITS | offset & ((1 << _OFFSET_BITS) - 1)


def queue_offset(topic: str, physical: int) -> int | None:
    """Where in a topic's queue :func:`physical_offset` means; None: it is of another topic."""
    if physical < 0 or physical >> _OFFSET_BITS != _topic_mark(topic):
        return None
    return physical & ((1 << _OFFSET_BITS) - 1)


@lru_cache(maxsize=4096)
def _topic_mark(topic: str) -> int:
    return zlib.crc32(topic.encode()) & _TOPIC_MASK


def offset_id(store_host: bytes, physical: int) -> str:
    """A message's id by its place: the broker's address and the physical offset, in hexadecimal."""
    return (store_host + _LONG.pack(physical)).hex().upper()


def read_offset_id(text: str) -> int | None:
    """The physical offset of :func:`offset_id`; None: it is none."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return None
    return int(_LONG.unpack(raw[-_LONG.size :])[0]) if len(raw) in (16, 28) else None


def _number(text: str | None) -> int:
    """A property that a front wrote as a number; producers of other fronts may have put any text there."""
    if not text:
        return 0
    digits = text.removeprefix("-")
    valid = digits.isdecimal() and digits.isascii() and len(digits) < 11
    number = int(text) if valid else 0
    return number if -(1 << 31) <= number < 1 << 31 else 0
