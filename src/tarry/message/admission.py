"""The only way in for messages: checks a producer's columns and brings them to the one schema.

:func:`admit` takes what a producer sent, in any of the spellings that it describes, checks every row with column
operations, and gives back a batch of :data:`tarry.message.schema.UNNUMBERED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarry.base.delay import (
    DELAY_MS_MAX,
    DUE_MS_MIN,
    INT64_MAX,
    ROCKETMQ_LEVELS,
    DelayLevel,
    check_due,
    due_from_delay,
    format_ms,
    parse_levels,
)
from tarry.base.errors import InvalidArgumentError, InvalidMessageError, MessageTooLargeError
from tarry.base.printable import shown
from tarry.base.types import extremes
from tarry.message.columns import cast, check_lengths, check_memory, check_not_empty, in_ms, integers, no_nulls, plain
from tarry.message.options import OPTIONS, STORED_AS, Option, OptionKind
from tarry.message.properties import check_properties, with_property
from tarry.message.schema import UNNUMBERED, absent
from tarry.message.spreading import offsets_of, spread_of
from tarry.message.topics import INTERNAL_TOPIC, TOPIC_ALLOWED, is_internal, is_topic
from tarry.repeat import Repeat, first_due, parse, to_json


class _Now(NamedTuple):
    """A reading of the clock, rounded down and up."""

    ms: int
    start_ms: int


class OnKey(IntEnum):
    """Treatment of a message whose key is pending in its topic; names as a producer writes them."""

    REPLACE = 0
    KEEP = 1
    REFUSE = 2
    IF_PENDING = 3


class KeyPolicy(NamedTuple):
    """Treatment of one message with a key; ``if_seq``: replace only the message with this seq."""

    on_key: OnKey
    if_seq: int | None = None

    @property
    def is_condition(self) -> bool:
        """True if nothing is scheduled where no message of the key is pending, or another one."""
        return self.on_key is OnKey.IF_PENDING


REPLACE = KeyPolicy(OnKey.REPLACE)


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits of messages and batches. ``delay_ms_max`` is the one documented limit of a delay."""

    delay_ms_max: int = DELAY_MS_MAX
    body_bytes_max: int = 4 << 20
    properties_bytes_max: int = 64 << 10
    name_bytes_max: int = 255
    batch_rows_max: int = 1_000_000
    batch_bytes_max: int = 256 << 20
    levels: tuple[int, ...] = parse_levels(ROCKETMQ_LEVELS)
    repeat_ms_min: int = 1000


def admit(
    data: pa.RecordBatch | pa.Table,
    now_ms: int,
    limits: MessageLimits = MessageLimits(),
    *,
    start_ms: int | None = None,
    again: bool = False,
    internal: bool = False,
) -> pa.RecordBatch:
    """Check a producer's batch and bring it to :data:`UNNUMBERED`; all of it is admitted or none.

    Columns by name: ``topic`` (string) and ``body`` (binary or string) and exactly one of ``due_ms`` (integer), ``due``
    (timestamp with a time zone), ``delay_ms`` (integer), ``delay_level`` (integer: RocketMQ's) or ``delay`` (Arrow
    duration), or several of ``due_ms``, ``delay_ms`` and ``delay_level`` with exactly one of them in each row; optional
    ``id``, ``key``, ``tag`` (string), ``properties`` (map or struct of strings), ``expire_ms`` or ``ttl_ms`` (integer),
    ``spread_ms`` and ``tries`` (integer), ``repeat`` (string: :mod:`tarry.repeat`), ``order_key`` and ``late``
    (string), and ``on_key`` and ``if_seq``, which :func:`key_policies` reads. Texts may be large, view or dictionary
    types. Unknown columns are refused, so that a misspelt one is not silently dropped. Nothing about the memory behind
    the columns is taken on trust: they may have come over a wire. ``start_ms``: what delays, and the limit of due
    times, are counted from, the clock's reading rounded up (None: ``now_ms``). ``again``: another process has admitted
    them already, and so they may have the properties that stand for ``order_key`` and ``late``. ``internal``: a front's
    own, which may be for topics of Tarry's own, and go on with a series that is late.

    Raises:
        InvalidMessageError: names the column, or the first offending row, its value and what is allowed.
    """
    now = _Now(now_ms, now_ms if start_ms is None else start_ms)
    rows = _count_rows(data, limits)
    check_memory(data, limits.batch_bytes_max)
    given = _named_columns(data, limits.batch_bytes_max)
    topic = _required(given, "topic", pa.string())
    _check_topics(topic, internal=internal)
    body = _required(given, "body", pa.binary())
    check_lengths(body, "body", limits.body_bytes_max)
    due = _due(given, now, limits)
    columns: dict[str, pa.Array] = {"topic": topic, "due_ms": due, "body": body}
    for option in _NAMES:
        if (name := option.name) in given:
            columns[name] = cast(given[name], name, pa.string())
            check_lengths(columns[name], name, limits.name_bytes_max)
            if option.is_name:
                # Two messages with an empty id would be duplicates, and nothing could name an empty key again.
                check_not_empty(columns[name], name)
    latest = due
    if "spread_ms" in given and given["spread_ms"].null_count < rows:
        columns["due_ms"], latest = _spread(given, due, columns, now, limits)
        due = columns["due_ms"]
    if "repeat" in given and given["repeat"].null_count < rows:
        columns["repeat"], due = _repeats(given["repeat"], due, now, limits, internal=internal)
        columns["due_ms"], latest = due, pc.max_element_wise(latest, due)
    if "properties" in given:
        columns["properties"] = check_properties(
            given["properties"],
            row_bytes_max=limits.properties_bytes_max,
            bytes_max=limits.batch_bytes_max,
            exempt=tuple(STORED_AS) if again else (),
        )
        if again:
            for reserved, option in STORED_AS.items():
                _check_stored(option, pc.map_lookup(columns["properties"], reserved, "last"))
    for reserved, option in STORED_AS.items():
        if option.column in given and given[option.column].null_count < rows:
            value = _stored(option, given[option.column], limits)
            columns["properties"] = with_property(columns.get("properties"), reserved, value)
    for option in _NUMBERS:
        if (name := option.column) in given:
            columns[name] = integers(given[name], name, pa.int32(), option.low)
    expire = _expiry(given, now_ms, latest)
    if expire is not None:
        columns["expire_ms"] = expire
    columns["born_ms"] = pa.array(np.full(rows, now_ms, np.int64), pa.int64())
    return pa.RecordBatch.from_arrays(
        [columns.get(name, column) for name, column in absent(rows).items()], schema=UNNUMBERED
    )


def _count_rows(data: object, limits: MessageLimits) -> int:
    if not isinstance(data, (pa.RecordBatch, pa.Table)):
        raise InvalidMessageError(f"a batch of type {type(data).__name__}; allowed: a pyarrow RecordBatch or Table")
    rows = data.num_rows
    if rows == 0:
        raise InvalidMessageError("the batch has no rows; at least 1 is needed")
    if rows > limits.batch_rows_max:
        raise MessageTooLargeError(f"the batch has {rows} rows; allowed: {limits.batch_rows_max}")
    return int(rows)


def assembled(columns: Mapping[str, pa.Array], now_ms: int) -> pa.RecordBatch:
    """Assemble a batch of :data:`UNNUMBERED` from columns of its types and of one length.

    The caller has checked the values one by one as :func:`admit` would: for fronts that see single messages, where
    column operations on a handful of rows cost several times what a look at each does.
    """
    rows = len(columns["topic"])
    whole = {**absent(rows), **columns, "born_ms": pa.array(np.full(rows, now_ms, np.int64), pa.int64())}
    return pa.RecordBatch.from_arrays([whole[name] for name in UNNUMBERED.names], schema=UNNUMBERED)


_FEW_ROWS = 16
_DUE_WAYS = ("due_ms", "due", "delay_ms", "delay_level", "delay")
_MIXED_WAYS = {"due_ms", "delay_ms", "delay_level"}
_NAMES = tuple(o for o in OPTIONS if o.kind is OptionKind.TEXT and not o.stored_as)
_NUMBERS = tuple(o for o in OPTIONS if o.kind is OptionKind.WHOLE and not (o.stored_as or o.is_condition))
_KNOWN = {"topic", "body", "expire_ms", *_DUE_WAYS, *(option.column for option in OPTIONS)}


def _named_columns(data: pa.RecordBatch | pa.Table, bytes_max: int) -> dict[str, pa.Array]:
    names = data.schema.names
    for name in names:
        if name not in _KNOWN:
            raise InvalidMessageError(f"unknown column {shown(name)}; allowed: {', '.join(sorted(_KNOWN))}")
    if len(set(names)) < len(names):
        twice = min(n for n in names if names.count(n) > 1)
        raise InvalidMessageError(f"column {twice!r} is there more than once")
    return {n: plain(c, n, bytes_max) for n, c in zip(names, data.columns, strict=True)}


def _required(given: dict[str, pa.Array], name: str, kind: pa.DataType) -> pa.Array:
    if name not in given:
        raise InvalidMessageError(f"column {name!r} is missing; given: {', '.join(given) or 'none'}")
    return no_nulls(cast(given[name], name, kind), name)


def _check_topics(topic: pa.Array, *, internal: bool) -> None:
    # Few distinct topics in a batch is the rule: check those, and look for the row only when one is refused.
    few = len(topic) <= _FEW_ROWS
    for name in dict.fromkeys(topic.to_pylist()) if few else pc.unique(topic).to_pylist():
        is_good = is_topic(name)
        if is_good and (internal or not is_internal(name)):
            continue
        wrong = f": {INTERNAL_TOPIC}" if is_good else f" is not a topic name; allowed: {TOPIC_ALLOWED}"
        raise InvalidMessageError(f"topic {shown(name)}{wrong}", row=int(pc.index(topic, name).as_py()))


def _repeats(
    column: pa.Array, due: pa.Array, now: _Now, limits: MessageLimits, *, internal: bool
) -> tuple[pa.Array, pa.Array]:
    """Return the rules in their canonical form, and the due time of each row's first occurrence."""
    given = cast(column, "repeat", pa.string())
    rules: dict[str, tuple[Repeat, str]] = {}
    texts, moments = given.to_pylist(), due.to_pylist()
    for row, text in enumerate(texts):
        if text is None:
            continue
        try:
            if text not in rules:
                rule = parse(text, least_ms=limits.repeat_ms_min)
                rules[text] = rule, to_json(rule)
            rule, texts[row] = rules[text]
            # A producer's cron rule begins now at the earliest: its instants before were no occurrences.
            start = moments[row] if rule.expression is None or internal else max(moments[row], now.ms)
            moments[row] = check_due(first_due(rule, start), now.start_ms, limits.delay_ms_max)
        except InvalidArgumentError as error:
            raise InvalidMessageError(str(error), row=row) from error
    return pa.array(texts, pa.string()), pa.array(moments, pa.int64())


def _spread(
    given: dict[str, pa.Array], due: pa.Array, named: Mapping[str, pa.Array], now: _Now, limits: MessageLimits
) -> tuple[pa.Array, pa.Array]:
    """Return the due times within their spans, and the latest that they could have been.

    What is refused must not follow from where in its span a message came to lie, so it is the latest that is judged.
    """
    spans = spread_of(given["spread_ms"])
    if "repeat" in given:
        row = pc.index(pc.and_(given["repeat"].is_valid(), spans.is_valid()), True).as_py()
        if row >= 0:
            raise InvalidMessageError('spread and repeat are both given; allowed: "spread" of the rule', row=row)
    latest = pc.add(due, pc.max_element_wise(pc.subtract(spans, 1), 0))
    _check_limit(latest, now.start_ms, limits)
    return pc.add(due, offsets_of(spans, named.get("id"), named.get("key"))), latest


def key_policies(data: pa.RecordBatch | pa.Table) -> list[KeyPolicy] | None:
    """Return what the columns ``on_key`` (null: replace) and ``if_seq`` of a batch say.

    None: it has neither.

    Raises:
        InvalidMessageError: another value, or values that do not go together.
    """
    names = data.schema.names
    if "on_key" not in names and "if_seq" not in names:
        return None
    none: list[Any] = [None] * data.num_rows
    texts = seqs = none
    if "on_key" in names:
        texts = cast(plain(data.column("on_key"), "on_key", 256 << 20), "on_key", pa.string()).to_pylist()
    if "if_seq" in names:
        column = plain(data.column("if_seq"), "if_seq", 256 << 20)
        seqs = integers(column, "if_seq", pa.int64(), 0).to_pylist()
    keys = none if "key" not in names else data.column("key").to_pylist()
    return [
        _key_policy(row, *said) if said[0] or said[1] is not None else REPLACE
        for row, said in enumerate(zip(texts, seqs, keys, strict=True))
    ]


def _key_policy(row: int, text: str | None, seq: int | None, key: str | None) -> KeyPolicy:
    if text is not None and text not in _ON_KEY:
        raise InvalidMessageError(f"on_key is {shown(text)}; allowed: {', '.join(_ON_KEY)}", row=row)
    policy = KeyPolicy(_ON_KEY[text or ("replace" if seq is None else "if_pending")], seq)
    if seq is not None and not policy.is_condition:
        raise InvalidMessageError(f'if_seq is {seq} and on_key "{text}"; allowed: with "if_pending", or alone', row=row)
    if policy.is_condition and key is None:
        given = "if_seq" if seq is not None else "on_key if_pending"
        raise InvalidMessageError(f"{given} without a key; allowed: with a key", row=row)
    return policy


_ON_KEY = {policy.name.lower(): policy for policy in OnKey}


def _stored(option: Option, column: pa.Array, limits: MessageLimits) -> pa.Array:
    """Return the texts of an option that is stored as a property.

    Raises:
        InvalidMessageError: names the row and what is allowed.
    """
    name = option.column
    if option.kind is OptionKind.WHOLE:
        texts = integers(column, name, pa.int64(), option.low).cast(pa.string())
    else:
        texts = cast(column, name, pa.string())
    check_lengths(texts, name, limits.name_bytes_max)
    _check_stored(option, texts)
    return texts


def _check_stored(option: Option, texts: pa.Array) -> None:
    if option.kind is OptionKind.CHOICE:
        allowed = ", ".join(option.choices)
    elif option.kind is OptionKind.WHOLE:
        allowed = f"a whole number from {option.low} to {option.high}"
    else:
        return
    for row, text in enumerate(texts.to_pylist()):
        if text is not None and not _is_allowed(option, text):
            raise InvalidMessageError(f"{option.name} is {shown(text)}; allowed: {allowed}", row=row)


def _is_allowed(option: Option, text: str) -> bool:
    if option.kind is OptionKind.CHOICE:
        return text in option.choices
    # It may have come over a wire: int() would take its time for thousands of digits.
    return len(text) <= 20 and text.removeprefix("-").isdecimal() and option.low <= int(text) <= option.high


def _due(given: dict[str, pa.Array], now: _Now, limits: MessageLimits) -> pa.Array:
    ways = [way for way in _DUE_WAYS if way in given]
    if ways == ["delay_level"] or (len(ways) > 1 and _MIXED_WAYS.issuperset(ways)):
        due = _one_of(given, ways, now, limits)
    elif len(ways) != 1:
        given_ways = ", ".join(ways) or "none"
        raise InvalidMessageError(f"exactly one of {', '.join(_DUE_WAYS)} is needed; given: {given_ways}")
    elif ways == ["due_ms"]:
        due = no_nulls(integers(given["due_ms"], "due_ms", pa.int64(), 0), "due_ms")
    elif ways == ["delay_ms"]:
        due = _later(no_nulls(integers(given["delay_ms"], "delay_ms", pa.int64(), 0), "delay_ms"), now)
    elif ways == ["due"]:
        kind = given["due"].type
        if not pa.types.is_timestamp(kind) or kind.tz is None:
            allowed = "a timestamp with a time zone (a naive one names no instant)"
            raise InvalidMessageError(f"column 'due' has type {kind}; allowed: {allowed}")
        due = in_ms(given["due"], "due")
    else:
        if not pa.types.is_duration(given["delay"].type):
            text = f"column 'delay' has type {given['delay'].type}; allowed: an Arrow duration, or use 'delay_ms'"
            raise InvalidMessageError(text)
        due = _later(in_ms(given["delay"], "delay"), now)
    _check_limit(due, now.start_ms, limits)
    return due


def _check_limit(due: pa.Array, start_ms: int, limits: MessageLimits) -> None:
    values = due.to_numpy(zero_copy_only=False)
    latest_ms = start_ms + limits.delay_ms_max
    least, most = extremes(values)
    if most > latest_ms or least < DUE_MS_MIN <= start_ms:
        early = (values < DUE_MS_MIN) & (start_ms >= DUE_MS_MIN)  # before 2000, a clock of that time has such times
        row = int(np.argmax((values > latest_ms) | early))
        try:
            check_due(int(values[row]), start_ms, limits.delay_ms_max)
        except InvalidMessageError as error:
            raise type(error)(str(error), row=row) from None


def _one_of(given: dict[str, pa.Array], ways: list[str], now: _Now, limits: MessageLimits) -> pa.Array:
    columns = []
    for way in ways:
        column = integers(given[way], way, pa.int64(), -(1 << 31) if way == "delay_level" else 0)
        if way == "delay_ms":
            column = _later(column, now)
        elif way == "delay_level":
            levels = {
                x: due_from_delay(DelayLevel(x), now.ms, limits.levels, start_ms=now.start_ms)
                for x in pc.unique(column.drop_null()).to_pylist()
            }
            column = pa.array([None if x is None else levels[x] for x in column.to_pylist()], pa.int64())
        columns.append(column)
    counts = sum(c.is_valid().to_numpy(zero_copy_only=False).astype(np.int8) for c in columns)
    wrong = np.flatnonzero(counts != 1)
    if len(wrong):
        raise InvalidMessageError(f"exactly one of {' and '.join(ways)} is needed", row=int(wrong[0]))
    return pc.coalesce(*columns)


def _later(delay_ms: pa.Array, now: _Now) -> pa.Array:
    """Apply :func:`due_after`; on overflow the greatest int64, which every limit refuses."""
    delay_ms_max = INT64_MAX - max(now.start_ms, 0)
    if delay_ms.null_count:
        capped = pc.min_element_wise(delay_ms, delay_ms_max, skip_nulls=False)
        return pc.add(capped, pc.if_else(pc.greater(capped, 0), now.start_ms, now.ms))
    delays_ms = np.minimum(delay_ms.to_numpy(), delay_ms_max)
    return pa.array(delays_ms + np.where(delays_ms > 0, now.start_ms, now.ms))


def _expiry(given: dict[str, pa.Array], now_ms: int, due: pa.Array) -> pa.Array | None:
    if "ttl_ms" in given and "expire_ms" in given:
        raise InvalidMessageError("ttl_ms and expire_ms are both given; allowed: one of them")
    if "ttl_ms" in given:
        expire = _later(integers(given["ttl_ms"], "ttl_ms", pa.int64(), 1), _Now(now_ms, now_ms))
    elif "expire_ms" in given:
        expire = integers(given["expire_ms"], "expire_ms", pa.int64(), 0)
    else:
        return None
    row = pc.index(pc.less_equal(expire, due), True).as_py()
    if row >= 0:
        ends, begins = format_ms(expire[row].as_py()), format_ms(due[row].as_py())
        raise InvalidMessageError(f"it would expire at {ends}, not after its due time {begins}", row=row)
    return expire
