"""What a producer may say about a message, and what is refused before it travels."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import zip_longest
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.delay import DelayLevel
from tarry.base.errors import InvalidArgumentError, InvalidMessageError
from tarry.message.admission import MessageLimits, admit, key_policies
from tarry.message.message import Message
from tarry.message.row_columns import COLUMNS, columns_of, to_batch
from tarry.message.rows import Row, make_row, row_of, rows_of
from tarry.repeat import Repeat, parse, to_json

HOUR = 3_600_000
LEVEL = [name for name, _ in COLUMNS].index("delay_level")


@pytest.mark.parametrize(
    ("arguments", "due_ms", "delay_ms"),
    [
        ({}, None, 0),
        ({"delay": 0}, None, 0),
        ({"delay": 3600}, None, HOUR),
        ({"delay": 0.0015}, None, 2),
        ({"delay": "1h"}, None, HOUR),
        ({"delay": timedelta(hours=1)}, None, HOUR),
        ({"delay": "1970-01-01T01:00:00Z"}, HOUR, None),
        ({"delay": datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=1)))}, HOUR, None),
        ({"due": datetime(1970, 1, 1, 1, tzinfo=UTC)}, HOUR, None),
        ({"due": HOUR}, HOUR, None),
    ],
)
def test_when(arguments: dict[str, Any], due_ms: int | None, delay_ms: int | None) -> None:
    row = make_row("t", b"", **arguments)
    assert row == ("t", b"", due_ms, delay_ms, None)


@pytest.mark.parametrize(
    ("level", "travels"), [(1, 1), (0, 0), (99, 99), (1 << 40, (1 << 31) - 1), (-(1 << 40), -(1 << 31))]
)
def test_a_level_is_resolved_by_the_broker_s_table(level: int, travels: int) -> None:
    row = make_row("t", b"", delay=DelayLevel(level))
    assert (row[2:4], row[LEVEL]) == ((None, None), travels)
    mixed = to_batch([row, make_row("t", b"", delay="1s"), make_row("t", b"", due=7)])
    at_1, at_last = 100 + 5_000, 100 + 60_000
    limits = MessageLimits(levels=(5_000, 60_000))
    expected = at_1 if level == 1 else 100 if level <= 0 else at_last
    assert admit(mixed, 100, limits).column("due_ms").to_pylist() == [expected, 1100, 7]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"topic": ""}, "allowed: 1 to 255"),
        ({"topic": None}, "allowed: 1 to 255"),
        ({"topic": "t\n"}, "allowed: 1 to 255"),
        ({"body": None}, "NoneType; allowed: bytes or str"),
        ({"body": "\ud800"}, "UTF-8"),
        ({"delay": float("nan")}, "nan"),
        ({"delay": float("inf")}, "inf"),
        ({"delay": -0.5}, "-0.5 is negative"),
        ({"delay": True}, "truth value"),
        ({"delay": "soon"}, "'soon'"),
        ({"delay": "1970-01-01T01:00:00"}, "naive"),
        ({"delay": datetime(2030, 1, 1)}, "naive"),
        ({"delay": []}, "list"),
        ({"delay": 1e300}, "milliseconds"),
        ({"due": datetime(2030, 1, 1)}, "naive"),
        ({"due": 1.5}, "due is 1.5"),
        ({"due": True}, "due is True"),
        ({"due": 1 << 63}, "64 bits"),
        ({"delay": 1, "due": 1}, "both given"),
        ({"id": 5}, "id is 5"),
        ({"key": b"k"}, "key is b'k'"),
        ({"tag": "\ud800"}, "tag is no UTF-8"),
        ({"properties": ["a"]}, "list; allowed: a dict"),
        ({"properties": {"a": 1}}, "'a' is 1"),
        ({"properties": {"a": None}}, "None; allowed: a text"),
        ({"properties": {None: "a"}}, "allowed: a text"),
        ({"properties": {"a": "b", "": "c"}}, "the name of a property is empty"),
        ({"ttl": 0}, "ttl is 0"),
        ({"ttl": -1}, "ttl is -1"),
        ({"ttl": float("nan")}, "ttl is nan"),
        ({"ttl": "soon"}, "ttl is 'soon'"),
        ({"ttl": "0"}, "ttl is '0': not a duration: '0'; allowed: more than 0: seconds"),
        ({"ttl": "0s"}, "ttl is '0s'; allowed: more than 0: seconds"),
        ({"ttl": datetime(2030, 1, 1, tzinfo=UTC)}, "ttl is"),
        ({"tries": 0}, "tries is 0"),
        ({"tries": 1 << 31}, "tries is"),
        ({"tries": True}, "tries is True"),
        ({"delay": DelayLevel("1")}, "'1' is not a whole number"),
        ({"delay": DelayLevel(True)}, "True is not a whole number"),
        ({"on_key": "upsert"}, "on_key is 'upsert'; allowed: replace, keep, refuse"),
        ({"on_key": ["keep"]}, "on_key is ['keep']; allowed"),
        ({"on_key": "keep"}, "on_key 'keep' without a key; allowed: with a key"),
        ({"on_key": "refuse", "key": None}, "on_key 'refuse' without a key"),
        ({"late": "never"}, "late is 'never'; allowed: deliver, drop, dead"),
        ({"order_key": 7}, "order_key is 7"),
        ({"order_key": "\ud800"}, "order_key is no UTF-8"),
        ({"repeat": 7}, "repeat is 7 (int); allowed"),
        ({"repeat": {"every": {1}}}, "every"),
        ({"repeat": {"evry": 5}}, "evry"),
        ({"repeat": "\ud800"}, "repeat is no UTF-8"),
    ],
)
def test_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        make_row(**{"topic": "t", "body": b"", **arguments})
    assert problem in str(caught.value)
    assert str(caught.value).count("allowed: ") <= 1


def _row(topic: str, body: bytes | str, **options: Any) -> Row:
    return make_row(topic, body, **options | ({"on_key": None} if options["key"] is None else {}))


ROWS = st.builds(
    _row,
    st.just("t"),
    st.binary(max_size=20) | st.text(max_size=20),
    delay=st.none() | st.integers(0, 10**6),
    id=st.none() | st.text(min_size=1, max_size=9),
    key=st.none() | st.text(min_size=1, max_size=9),
    properties=st.none() | st.dictionaries(st.text(min_size=1, max_size=3), st.text(max_size=3), max_size=3),
    ttl=st.none() | st.integers(2 * 10**6, 10**7),
    tries=st.none() | st.integers(1, 9),
    on_key=st.sampled_from(["replace", "keep", "refuse", "if_pending", None]),
    order_key=st.none() | st.text(min_size=1, max_size=9),
    late=st.sampled_from(["deliver", "drop", "dead", None]),
    repeat=st.sampled_from([None, '{"every":"1h"}', {"every": "1h", "times": 3}, Repeat.every("1h", factor=2)]),
)


@given(st.lists(ROWS, min_size=1, max_size=20), st.booleans())
def test_every_row_that_is_made_is_one_that_the_broker_takes(rows: list[Any], all_columns: bool) -> None:
    batch = to_batch(rows, [name for name, _ in COLUMNS] if all_columns else None)
    rows = [dict(zip_longest((name for name, _ in COLUMNS), row)) for row in rows]
    admitted = admit(batch, 0)
    assert admitted.column("body").to_pylist() == [row["body"] for row in rows]
    assert admitted.column("due_ms").to_pylist() == [row["delay_ms"] for row in rows]
    assert admitted.column("id").to_pylist() == [row["id"] for row in rows]
    for row, properties in zip(rows, admitted.column("properties").to_pylist(), strict=True):
        own = {"tarry.order": row["order_key"], "tarry.late": row["late"]}
        expected = dict(row["properties"] or []) | {name: value for name, value in own.items() if value is not None}
        assert dict(properties or []) == expected
    rules = [None if row["repeat"] is None else parse(row["repeat"]) for row in rows]
    assert [None if text is None else parse(text) for text in admitted.column("repeat").to_pylist()] == rules
    policies = key_policies(batch)
    if policies is not None:
        assert [p.on_key.name.lower() for p in policies] == [row["on_key"] or "replace" for row in rows]


def test_absolute_and_relative_due_times_in_one_batch() -> None:
    batch = to_batch([make_row("t", b"", due=5), make_row("t", b"", delay=1)])
    assert batch.schema.names == ["topic", "body", "due_ms", "delay_ms"]
    assert admit(batch, 100).column("due_ms").to_pylist() == [5, 1100]


def test_columns_that_nobody_uses_are_left_out() -> None:
    assert to_batch([make_row("t", b"")]).schema.names == ["topic", "body", "delay_ms"]
    everything = [name for name, _ in COLUMNS]
    assert to_batch([make_row("t", b"")], everything).schema == pa.schema(COLUMNS)
    keyed = [make_row("t", b"", key="k"), make_row("t", b"", key="k", on_key="replace")]
    assert columns_of(keyed) == ["topic", "body", "delay_ms", "key"]
    assert columns_of([*keyed, make_row("t", b"", key="k", on_key="keep")])[-1] == "on_key"


def said_of(row: Row) -> dict[str, object]:
    return {name: value for (name, _), value in zip(COLUMNS, row, strict=True) if value is not None}


def test_messages_and_dicts() -> None:
    full = Message("t", b"b", 7, "i", "k", "g", {"a": "b"}, 9, 3)
    said = {
        "topic": "t",
        "body": b"b",
        "due_ms": 7,
        "id": "i",
        "key": "k",
        "tag": "g",
        "properties": [("a", "b")],
        "ttl_ms": 9,
        "tries": 3,
    }
    assert said_of(row_of(full)) == said
    more = {"on_key": "keep", "repeat": '{"every": 60}', "order_key": "o", "late": "drop"}
    assert said_of(row_of(replace(full, **more))) == said | more
    for rule in ({"every": 60}, {"every": timedelta(minutes=1)}, Repeat.every("1m")):
        assert said_of(row_of({"topic": "t", "body": b"", "repeat": rule}))["repeat"] == to_json(Repeat.every(60))
    assert row_of({"topic": "t", "body": "b", "delay": "1s"})[:4] == ("t", b"b", None, 1000)


def test_a_dict_may_say_milliseconds() -> None:
    """As the columns of a batch do."""
    said = {"topic": "t", "body": b"b"}
    assert row_of({**said, "due_ms": 7}) == row_of({**said, "due": 7})
    assert row_of({**said, "delay_ms": 1500, "due": None}) == row_of({**said, "delay": "1500ms"})
    assert row_of({**said, "due_ms": 7, "ttl_ms": 9}) == row_of({**said, "due": 7, "ttl": "9ms"})
    assert row_of({**said, "due_ms": None, "delay_ms": 2}) == row_of({**said, "delay": "2ms"})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"due_ms": 7, "due": 8}, "due_ms 7 and due 8 are both given"),
        ({"due_ms": 7, "delay_ms": 8}, "both given"),
        ({"delay_ms": 7, "delay": "1s"}, "delay_ms 7 and delay '1s' are both given"),
        ({"due_ms": "7"}, "due_ms is '7'; allowed: milliseconds as an int"),
        ({"due_ms": datetime(2026, 1, 1, tzinfo=UTC)}, "allowed: milliseconds as an int"),
        ({"delay_ms": True}, "delay_ms is True; allowed: milliseconds as an int"),
        ({"delay_ms": 1 << 70}, "delay_ms is .* allowed: 40 years"),
        ({"due_in_ms": 1}, "unknown field 'due_in_ms'; allowed: .*due_ms"),
    ],
)
def test_milliseconds_that_are_not_allowed(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        row_of({"topic": "t", "body": b"b", **fields})
    good, bad = {"topic": "t", "body": ""}, {"topic": "t", "body": "", "tries": 0}
    with pytest.raises(InvalidMessageError, match=r"^row 1: tries is 0") as caught:
        list(rows_of([good, bad]))
    assert caught.value.row == 1
