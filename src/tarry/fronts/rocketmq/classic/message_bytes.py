"""Messages for consumers, in RocketMQ's storage format, one after the other. No I/O.

::

    length i32 · magic i32 · body's CRC-32 i32 · queue i32 · flag i32 · queue offset i64 · physical offset i64
    system flag i32 · born i64 (ms) · producer's address · stored i64 (ms) · broker's address
    tries before this one i32 · prepared offset i64 · body (length i32) · topic (length u8) · properties (length i16)

An address is 4 or 16 bytes (see the system flag) and a port i32. Properties are ``name 0x01 value 0x02`` each. A
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

from tarry.fronts.rocketmq.common.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    FLAG,
    KEYS,
    MESSAGE_ID,
    NUMBER,
    QUEUE,
    RECONSUME_TIMES,
    SHARDING_KEY,
    TAGS,
    TRANSACTION,
    PropertyLists,
    born_ms_of,
    delay_properties,
    plain_keys,
)
from tarry.message.options import ORDER_KEY
from tarry.message.receipt import id_of
from tarry.message.reserved import DEAD_ATTEMPTS, FIRST
from tarry.message.topics import RESERVED

NAME_END, PAIR_END = "\x01", "\x02"
PROPERTIES_BYTES_MAX = (1 << 15) - 1
MAGIC, MAGIC_LONG_TOPIC = -626843481, -626843477
SHORT_TOPIC_BYTES = 127
COMMITTED, _BORN_V6, _STORED_V6 = 8, 1 << 4, 1 << 5
_FRONT = struct.Struct(">iiiiiqqiq")
_LONG, _WHOLE = struct.Struct(">q"), struct.Struct(">i")
_TRIES = struct.Struct(">iqi")
_OFFSET_BITS = 32
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_TOPIC_MASK = (1 << 21) - 1
_FIXED_BYTES = _FRONT.size + _LONG.size + _TRIES.size + 2
_COLUMNS = ("seq", "due_ms", "id", "tag", "properties", "body", "born_ms", "offset")
_IN_COLUMNS = frozenset({BORN_HOST, BORN_TIMESTAMP, FLAG, NUMBER, QUEUE, RECONSUME_TIMES})
"""Stored properties that have a field of their own in the format."""
_IN_BOTH = _IN_COLUMNS | {MESSAGE_ID}
_RARE = frozenset({KEYS, ORDER_KEY, TAGS, TRANSACTION})


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with all fields of the format."""

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
    """Convert rows of a topic's queue, whose queue numbers are ``queues``.

    The rows are those of :data:`tarry.api.row_schemas.QUEUED`. A message counts as stored when it is due, even if it
    was accepted later: consumers look offsets up by that time.
    """
    columns = [batch.column(name).to_pylist() for name in _COLUMNS]
    for seq, due_ms, id, tag, pairs, body, accepted_ms, offset, queue in zip(*columns, queues, strict=True):
        stored = dict(pairs) if pairs else {}
        yield StoredMessage(
            topic,
            offset,
            body,
            _visible_properties(stored, tag, id or id_of(seq), seq)
            | delay_properties(stored, due_ms, accepted_ms, topic, int(queue)),
            _number(stored.get(FLAG)),
            _system_flag(stored),
            born_ms_of(stored, accepted_ms),
            stored.get(BORN_HOST, ""),
            due_ms,
            tries_of(stored),
            int(queue),
        )


def _visible_properties(stored: Mapping[str, str], tag: str | None, id: str, seq: int) -> dict[str, str]:
    first = stored.get(FIRST)
    properties = {NUMBER: str(seq) if first is None else f"{seq}:{first}"}
    properties |= {n: v for n, v in stored.items() if n not in _IN_COLUMNS and not n.startswith(RESERVED)}
    properties.setdefault(MESSAGE_ID, id)
    if tag is not None:
        properties[TAGS] = tag
    if KEYS in properties:
        properties[KEYS] = plain_keys(properties[KEYS])
    if ORDER_KEY in stored:
        properties[SHARDING_KEY] = stored[ORDER_KEY]
    return properties


def encode_message(message: StoredMessage, store_host: bytes) -> bytes:
    """Encode one message. ``store_host``: the broker's :func:`address_bytes`."""
    properties = encode_properties(message.properties)
    return TopicBytes(message.topic, store_host).encode(
        message.queue, message.flag, message.queue_offset, message.system_flag, message.born_ms,
        address_bytes(message.born_host), message.stored_ms, message.reconsume_times, message.body, properties,
    )  # fmt: skip


class TopicBytes:
    """The parts that all messages of a topic from one broker have in common."""

    def __init__(self, topic: str, store_host: bytes, shown: str | None = None) -> None:
        """Prepare the common parts. ``shown``: the topic's name for clients, if it differs."""
        self.name = shown or topic
        name = self.name.encode()
        short = len(name) <= SHORT_TOPIC_BYTES
        self._magic = MAGIC if short else MAGIC_LONG_TOPIC
        self._named = (bytes((len(name),)) if short else len(name).to_bytes(2, "big")) + name
        self._mark = _topic_mark(topic) << _OFFSET_BITS
        self._host = store_host
        self._flags = _STORED_V6 if len(store_host) > 8 else 0

    def encode(
        self, queue: int, flag: int, offset: int, system_flag: int, born_ms: int, born_host: bytes, stored_ms: int,
        tries: int, body: bytes, properties: bytes,
    ) -> bytes:  # fmt: skip
        """Encode one message; ``properties`` as :func:`encode_properties` writes them."""
        host, named = self._host, self._named
        born_size, size, text_size = len(born_host), len(body), len(properties)
        length = _FIXED_BYTES + born_size + len(host) + size + len(named) + text_size
        flags = system_flag | self._flags | (_BORN_V6 if born_size > 8 else 0)
        front = _FRONT.pack(
            length, self._magic, zlib.crc32(body) & 0x7FFFFFFF, queue, flag, offset, self._mark | offset & _OFFSET_MASK,
            flags, born_ms,
        )  # fmt: skip
        return b"".join(
            (
                front, born_host, _LONG.pack(stored_ms), host, _TRIES.pack(tries, 0, size), body, named,
                text_size.to_bytes(2, "big"), properties,
            )
        )  # fmt: skip


class MessageRows:
    """Rows of a topic's queue, each encoded when it is asked for.

    The rows are those of :data:`tarry.api.row_schemas.QUEUED`; ``queues`` has the number of each one's queue. The
    result is as with :func:`stored_messages`, in a third of the time.
    """

    def __init__(self, batch: pa.RecordBatch, topic: TopicBytes, queues: list[int], properties: PropertyLists) -> None:
        self._topic = topic
        self._queues = queues
        self._properties = properties
        self._seqs, self._due, self._ids, self._tags, self._bodies, self._born, self._offsets = (
            batch.column(name).to_pylist() for name in ("seq", "due_ms", "id", "tag", "body", "born_ms", "offset")
        )
        self._names: dict[str, str] = {}
        """The encoded start of a property, by name; empty if the property needs special care."""

    def encode(self, row: int) -> bytes:
        """Encode one of the messages."""
        (begin, end), (_, names, values), starts = self._properties.places[row : row + 2], self._properties, self._names
        parts, special = [], {}
        for place in range(begin, end):
            name = names[place]
            start = starts.get(name)
            if start is None:
                start = starts[name] = _start_of(name)
            if start:
                parts.append(f"{start}{values[place]}{PAIR_END}")
            elif name == KEYS:
                # Consumers that use keys mostly have them on each message.
                parts.append(f"{KEYS}{NAME_END}{plain_keys(values[place])}{PAIR_END}")
            else:
                special[name] = values[place]
        if not special.keys() <= _IN_BOTH:
            return self._encode_rare(row, dict(zip(names[begin:end], values[begin:end], strict=True)))
        id = special[MESSAGE_ID] if MESSAGE_ID in special else self._ids[row] or id_of(self._seqs[row])
        parts.append(f"{NUMBER}{NAME_END}{self._seqs[row]}{PAIR_END}{MESSAGE_ID}{NAME_END}{id}{PAIR_END}")
        if (tag := self._tags[row]) is not None:
            parts.append(f"{TAGS}{NAME_END}{tag}{PAIR_END}")
        if (due_ms := self._due[row]) > (accepted_ms := self._born[row]):
            more = delay_properties(names[begin:end], due_ms, accepted_ms, self._topic.name, self._queues[row])
            parts += [f"{name}{NAME_END}{value}{PAIR_END}" for name, value in more.items()]
        text = "".join(parts)
        content = text.encode()
        if not text.count(NAME_END) == text.count(PAIR_END) == len(parts) + 1 or len(content) > PROPERTIES_BYTES_MAX:
            return self._encode_rare(row, dict(zip(names[begin:end], values[begin:end], strict=True)))
        return self._topic.encode(
            self._queues[row], _number(special.get(FLAG)), self._offsets[row], 0, born_ms_of(special, self._born[row]),
            address_bytes(special.get(BORN_HOST, "")), self._due[row], _number(special.get(RECONSUME_TIMES)),
            self._bodies[row], content,
        )  # fmt: skip

    def _encode_rare(self, row: int, stored: dict[str, str]) -> bytes:
        """Encode a message whose properties are not written as they are."""
        properties = _visible_properties(
            stored, self._tags[row], self._ids[row] or id_of(self._seqs[row]), self._seqs[row]
        )
        properties |= delay_properties(stored, self._due[row], self._born[row], self._topic.name, self._queues[row])
        return self._topic.encode(
            self._queues[row], _number(stored.get(FLAG)), self._offsets[row], _system_flag(stored),
            born_ms_of(stored, self._born[row]), address_bytes(stored.get(BORN_HOST, "")), self._due[row],
            tries_of(stored), self._bodies[row], encode_properties(properties),
        )  # fmt: skip


def _start_of(name: str) -> str:
    if name in _IN_BOTH or name in _RARE or name.startswith(RESERVED):
        return ""
    return name + NAME_END


def _system_flag(stored: Mapping[str, str]) -> int:
    return COMMITTED if stored.get(TRANSACTION) == "true" else 0


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode as many properties as the format has room for; leave out the last ones.

    Those that the format cannot hold because of its separators are left out, too: messages of other protocols may have
    some.
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
    """Decode the pairs of a text; anything that is no pair is left out, as in RocketMQ."""
    pairs: dict[str, str] = {}
    # No comprehension: this runs once for each message.
    for part in text.split(PAIR_END):
        name, between, value = part.partition(NAME_END)
        if between and name:
            pairs[name] = value
    return pairs


@lru_cache(maxsize=4096)
def address_bytes(host_port: str) -> bytes:
    """Encode ``HOST:PORT`` or an IP address alone; anything else becomes 0.0.0.0:0.

    A producer may call itself anything.
    """
    for host, port in (host_port.rpartition(":")[::2], (host_port, "")):
        try:
            packed = ipaddress.ip_address(host.strip("[]")).packed
        except ValueError:
            continue
        number = int(port) if port.isdecimal() and port.isascii() and len(port) <= 5 else 0
        return packed + _WHOLE.pack(number)
    return bytes(8)


def physical_offset(topic: str, offset: int) -> int:
    """Return a number for a message's place: 21 bits of its topic's CRC-32, 32 of its offset.

    Clients give it back with the topic's name, or to be looked for in all topics; and as a JSON number, which has no
    more than 53 bits for a client in JavaScript.
    """
    return _topic_mark(topic) << _OFFSET_BITS | offset & _OFFSET_MASK


def queue_offset(topic: str, physical: int, ends: tuple[int, int]) -> int | None:
    """Return the offset in a topic's queue that a :func:`physical_offset` means.

    It is the last offset with these bits, as no queue holds 2³² messages at a time. ``ends``: the queue's first offset,
    and the one behind its last. Returns None if the number is of another topic, or not between these.
    """
    if physical < 0 or physical >> _OFFSET_BITS != _topic_mark(topic):
        return None
    low = physical & _OFFSET_MASK
    first, end = ends
    offset = (end - 1 - low >> _OFFSET_BITS << _OFFSET_BITS) + low
    return offset if first <= offset else None


@lru_cache(maxsize=4096)
def _topic_mark(topic: str) -> int:
    return zlib.crc32(topic.encode()) & _TOPIC_MASK


def offset_id(store_host: bytes, physical: int) -> str:
    """Return a message's id by its place: the broker's address and the physical offset, in hexadecimal."""
    return (store_host + _LONG.pack(physical)).hex().upper()


def read_offset_id(text: str) -> int | None:
    """Return the physical offset of an :func:`offset_id`; None if the text is none."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return None
    return int(_LONG.unpack(raw[-_LONG.size :])[0]) if len(raw) in (16, 28) else None


def tries_of(stored: Mapping[str, str]) -> int:
    """Return how often a message was tried before; of a dead letter, until it was given up."""
    return _number(stored.get(RECONSUME_TIMES) or stored.get(DEAD_ATTEMPTS))


def _number(text: str | None) -> int:
    """Return a property that should be a number; producers of other fronts may have set any text."""
    if not text:
        return 0
    digits = text.removeprefix("-")
    valid = digits.isdecimal() and digits.isascii() and len(digits) < 11
    number = int(text) if valid else 0
    return number if -(1 << 31) <= number < 1 << 31 else 0
