"""The door into the system: what is admitted and how it looks then, and each refusal with its row and value."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tarry.base.delay import DELAY_MS_MAX
from tarry.base.errors import DelayTooLongError, InvalidMessageError, MessageTooLargeError
from tarry.client.bulk import batches_of
from tarry.message.admission import KeyPolicy, MessageLimits, OnKey, admit, key_policies
from tarry.message.message import Message
from tarry.message.properties import check_properties
from tarry.message.schema import (
    PROPERTIES,
    SCHEMA,
    UNNUMBERED,
    cancellations,
    cancelled_seqs,
    messages_only,
    rows_to_batch,
)
from tarry.message.topics import check_topic

NOW = 1_767_225_600_000
LIMITS = MessageLimits()
INT64_MAX = 2**63 - 1


def batch(**columns: Any) -> pa.RecordBatch:
    """A good batch of one row, with the columns given in place of its own; None takes a column out."""
    given = {"topic": ["orders"], "body": [b"x"], "delay_ms": pa.array([1000], pa.int64()), **columns}
    arrays = {n: c if isinstance(c, pa.Array) else pa.array(c) for n, c in given.items() if c is not None}
    rows = max(len(a) for a in arrays.values())
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays([a] * rows) if len(a) < rows else a for a in arrays.values()], names=list(arrays)
    )


def refused(data: Any, limits: MessageLimits = LIMITS) -> InvalidMessageError:
    with pytest.raises(InvalidMessageError) as caught:
        admit(data, NOW, limits)
    return caught.value


# -- what is admitted ----------------------------------------------------------------------------------------


def test_a_batch_comes_out_in_the_one_schema() -> None:
    row = {
        "topic": "orders", "body": b"\x00\xff", "due_ms": NOW + 5, "id": "a\x00b", "key": "k", "tag": "",
        "properties": [("p", "1"), ("q", "")], "expire_ms": NOW + 6, "tries": 3,
    }  # fmt: skip
    kinds = {f.name: f.type for f in SCHEMA}
    out = admit(pa.RecordBatch.from_pylist([row], schema=pa.schema([(n, kinds[n]) for n in row])), NOW)
    assert out.schema == UNNUMBERED
    assert out.to_pylist() == [{**row, "born_ms": NOW, "repeat": None, "kind": 0}]
    assert pa.schema([SCHEMA.field("seq"), *out.schema]) == SCHEMA


def test_what_is_left_out_is_null() -> None:
    [row] = admit(batch(), NOW).to_pylist()
    assert row.pop("due_ms") == NOW + 1000
    assert {k for k, v in row.items() if v is not None} == {"topic", "body", "born_ms", "kind"}


@pytest.mark.parametrize(
    ("column", "due"),
    [
        ({"due_ms": pa.array([NOW - 5], pa.int64())}, NOW - 5),
        ({"due_ms": pa.array([946_684_800_000], pa.uint64())}, 946_684_800_000),
        ({"due_ms": pa.array([NOW], pa.uint64())}, NOW),
        ({"delay_ms": pa.array([7], pa.int32())}, NOW + 7),
        ({"delay_ms": pa.array([DELAY_MS_MAX])}, NOW + DELAY_MS_MAX),
        ({"due": pa.array([1_800_000_000], pa.timestamp("s", tz="UTC"))}, 1_800_000_000_000),
        ({"due": pa.array([NOW], pa.timestamp("ms", tz="Europe/Berlin"))}, NOW),
        ({"due": pa.array([NOW], pa.timestamp("ms", tz="+05:30"))}, NOW),
        ({"due": pa.array([NOW], pa.timestamp("ms", tz="Nowhere/Land"))}, NOW),
        ({"due": pa.array([NOW * 1000 + 1], pa.timestamp("us", tz="UTC"))}, NOW + 1),
        ({"due": pa.array([NOW * 1_000_000 + 1], pa.timestamp("ns", tz="UTC"))}, NOW + 1),
        ({"due": pa.array([datetime(2026, 1, 2, tzinfo=UTC)])}, NOW + 86_400_000),
        ({"delay": pa.array([5], pa.duration("s"))}, NOW + 5000),
        ({"delay": pa.array([5], pa.duration("ms"))}, NOW + 5),
        ({"delay": pa.array([1], pa.duration("us"))}, NOW + 1),
        ({"delay": pa.array([1_000_001], pa.duration("ns"))}, NOW + 2),
        ({"delay": pa.array([timedelta(days=1)])}, NOW + 86_400_000),
        ({"delay_ms": pa.array([7]).dictionary_encode()}, NOW + 7),
    ],
)
def test_each_way_of_saying_when(column: dict[str, pa.Array], due: int) -> None:
    out = admit(batch(**{"delay_ms": None, **column}), NOW)
    assert out["due_ms"].to_pylist() == [due]


@pytest.mark.parametrize("name", ["id", "key"])
def test_an_empty_name_is_none_of_a_message(name: str) -> None:
    data = pa.record_batch({"topic": ["t"] * 3, "body": [b"x"] * 3, "delay_ms": [1] * 3, name: ["a", None, ""]})
    with pytest.raises(InvalidMessageError, match=f"row 2: {name} is empty"):
        admit(data, NOW)
    with pytest.raises(InvalidMessageError, match=f"row 0: {name} is empty"):
        admit(data.slice(2), NOW)
    assert admit(data.slice(0, 2), NOW)[name].to_pylist() == ["a", None]


def test_instants_and_delays_in_one_batch() -> None:
    data = batch(due_ms=pa.array([NOW + 9, None, NOW - 9]), delay_ms=pa.array([None, 3, None], pa.int64()))
    assert admit(data, NOW)["due_ms"].to_pylist() == [NOW + 9, NOW + 3, NOW - 9]


TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
OCTETS = [
    pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary()),
    pa.dictionary(pa.uint16(), pa.large_string()), *TEXTS,
]  # fmt: skip


def typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return typed(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values).cast(kind)


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_texts_of_every_type(kind: pa.DataType) -> None:
    words = ["orders", "naïve-is-not-a-topic-but-a-tag-of-more-than-twelve-bytes", "orders"]
    data = batch(topic=typed(["a", "b", "a"], kind), tag=typed([*words[:2], None], kind))
    out = admit(data, NOW)
    assert out["topic"].to_pylist() == ["a", "b", "a"]
    assert out["tag"].to_pylist() == [*words[:2], None]
    assert admit(data.slice(1, 1), NOW)["tag"].to_pylist() == words[1:2]


@pytest.mark.parametrize("kind", OCTETS, ids=str)
def test_bodies_of_every_type(kind: pa.DataType) -> None:
    is_text = pa.types.is_dictionary(kind) and pa.types.is_large_string(kind.value_type)
    values: list[Any] = ["a", "", "ü" * 20] if kind in TEXTS or is_text else [b"a", b"", b"\xff" * 40]
    out = admit(batch(body=typed(values, kind)), NOW)
    assert out["body"].to_pylist() == [v if isinstance(v, bytes) else v.encode() for v in values]


def test_bodies_of_fixed_size() -> None:
    assert admit(batch(body=pa.array([b"abcd"], pa.binary(4))), NOW)["body"].to_pylist() == [b"abcd"]


MAPS: list[list[tuple[str, str]] | None] = [[("a", "1")], None, [], [("b", "22"), ("c", "")], [("d", "4")]]


@pytest.mark.parametrize(
    "kind",
    [
        PROPERTIES,
        pa.map_(pa.string(), pa.string(), keys_sorted=True),
        pa.map_(pa.large_string(), pa.string()),
        pa.map_(pa.string(), pa.string_view()),
        pa.map_(pa.string(), pa.field("other", pa.string(), nullable=False)),
    ],
    ids=str,
)
@pytest.mark.parametrize("start", range(5))
def test_sliced_properties(kind: pa.DataType, start: int) -> None:
    data = batch(properties=pa.array(MAPS, kind)).slice(start)
    out = admit(data, NOW, MessageLimits(properties_bytes_max=4))
    assert out.schema == UNNUMBERED
    assert out["properties"].to_pylist() == MAPS[start:]
    out.validate(full=True)


def test_properties_under_a_null_do_not_count() -> None:
    entries = pa.array(["k" * 50, "a"]), pa.array(["v" * 50, None])
    hidden = pa.MapArray.from_arrays(pa.array([0, 1, 2, 2], pa.int32()), *entries, mask=pa.array([True, True, False]))
    assert admit(batch(properties=hidden), NOW, MessageLimits(properties_bytes_max=3))["properties"].null_count == 2


def test_a_table_of_many_chunks() -> None:
    parts = [batch(topic=["a"]), batch(topic=["b", "c"]), batch(topic=["d"]).slice(0, 0)]
    assert admit(pa.Table.from_batches(parts), NOW)["topic"].to_pylist() == ["a", "b", "c"]
    other = pa.chunked_array([typed(["a"], TEXTS[3]), typed(["b", "a"], TEXTS[3])])
    rest = {"body": [b""] * 3, "delay_ms": pa.array([0, 1, 2])}
    assert admit(pa.table({"topic": other, **rest}), NOW)["topic"].to_pylist() == ["a", "b", "a"]


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "row", "text"),
    [
        # topic
        ({"topic": None}, None, "column 'topic' is missing; given: body, delay_ms"),
        ({"topic": ["a", None]}, 1, "topic is null"),
        ({"topic": pa.nulls(1)}, 0, "topic is null"),
        ({"topic": ["a", "b c", "d e"]}, 1, "topic 'b c' is not a topic name; allowed: 1 to 255 of A-Z"),
        ({"topic": ["a", ""]}, 1, "topic ''"),
        ({"topic": ["a\n"]}, 0, "topic 'a\\n'"),
        ({"topic": ["a\x00"]}, 0, "topic 'a\\x00'"),
        ({"topic": ["ä"]}, 0, "topic 'ä'"),
        ({"topic": ["a" * 256]}, 0, "(258 characters) is not a topic name"),
        ({"topic": [7]}, None, "column 'topic' has type int64; allowed: string"),
        ({"topic": [b"a"]}, None, "column 'topic' has type binary"),
        # body
        ({"body": None}, None, "column 'body' is missing"),
        ({"body": [b"", None]}, 1, "body is null"),
        ({"body": [1.5]}, None, "column 'body' has type double; allowed: binary"),
        ({"body": [[1, 2]]}, None, "column 'body' has type list"),
        ({"body": [b"1234", b"12345", b"123456"]}, 1, "body has 5 bytes; allowed: 4"),
        ({"body": ["ää", "äää"]}, 1, "body has 6 bytes; allowed: 4"),
        # when
        ({"delay_ms": None}, None, "exactly one of due_ms, due, delay_ms, delay_level, delay is needed; given: none"),
        ({"delay": pa.array([1], pa.duration("s"))}, None, "given: delay_ms, delay"),
        ({"delay_ms": [1, None]}, 1, "delay_ms is null"),
        ({"delay_ms": [1, -1]}, 1, "delay_ms is -1; allowed: 0 to"),
        ({"delay_ms": [math.nan]}, None, "column 'delay_ms' has type double; allowed: int64"),
        ({"delay_ms": ["5"]}, None, "column 'delay_ms' has type string"),
        ({"delay_ms": [True]}, None, "column 'delay_ms' has type bool"),
        ({"delay_ms": pa.array([2**63], pa.uint64())}, 0, f"delay_ms is {2**63}; allowed: 0 to {INT64_MAX}"),
        ({"delay_ms": [5, DELAY_MS_MAX + 1]}, 1, "days away; the limit (delay_ms_max) is 14,640.0 days"),
        ({"delay_ms": [INT64_MAX]}, 0, "the limit (delay_ms_max)"),
        ({"delay_ms": None, "due_ms": [INT64_MAX]}, 0, "the limit (delay_ms_max)"),
        ({"delay_ms": None, "due_ms": [NOW, -(2**63)]}, 1, f"due_ms is {-(2**63)}; allowed: 0 to"),
        ({"delay_ms": None, "due": [datetime(2026, 1, 1)]}, None, "a naive one names no instant"),
        ({"delay_ms": None, "due": pa.array([5], pa.timestamp("ms", tz=""))}, None, "a naive one"),
        ({"delay_ms": None, "due": ["2026-01-01"]}, None, "column 'due' has type string"),
        ({"delay_ms": None, "due": pa.array([-1], pa.timestamp("s", tz="UTC"))}, 0, "due is -1 s; allowed: 1970"),
        ({"delay_ms": None, "due": pa.array([INT64_MAX], pa.timestamp("s", tz="UTC"))}, 0, "delay_ms_max"),
        ({"delay_ms": None, "due": pa.array([2**62, None], pa.timestamp("ns", tz="UTC"))}, 1, "due is null"),
        ({"delay_ms": None, "delay": pa.array([1, 2**62], pa.duration("s"))}, 1, "delay_ms_max"),
        ({"delay_ms": None, "delay": pa.array([-1], pa.duration("ns"))}, 0, "delay is -1 ns; allowed: 0"),
        ({"delay_ms": None, "delay": [5]}, None, "column 'delay' has type int64; allowed: an Arrow duration"),
        ({"delay_ms": [1, 1], "due_ms": [None, 1]}, 1, "exactly one of due_ms and delay_ms"),
        ({"delay_ms": [1, None], "due_ms": pa.array([None, None], pa.int64())}, 1, "exactly one of"),
        # the rest
        ({"id": [None, "i" * 256]}, 1, "id has 256 bytes; allowed: 255"),
        ({"key": ["k" * 256]}, 0, "key has 256 bytes; allowed: 255"),
        ({"tag": [5]}, None, "column 'tag' has type int64; allowed: string"),
        ({"tries": [1, 0]}, 1, "tries is 0; allowed: 1 to 2147483647"),
        ({"tries": [2**31]}, 0, f"tries is {2**31}; allowed: 1 to 2147483647"),
        ({"tries": [1.0]}, None, "column 'tries' has type double"),
        ({"ttl_ms": [2000, -1]}, 1, "ttl_ms is -1; allowed: 1 to"),
        ({"ttl_ms": [1000]}, 0, "it would expire at 2026-01-01T00:00:01.000Z, not after its due time"),
        ({"ttl_ms": [2000], "expire_ms": [NOW]}, None, "ttl_ms and expire_ms are both given"),
        ({"expire_ms": pa.array([None, 0], pa.int64())}, 1, "it would expire at 1970-01-01"),
        ({"expire_ms": [-1]}, 0, "expire_ms is -1"),
        ({"delay_ms": None, "delay_level": [1, None]}, 1, "exactly one of delay_level"),
        ({"delay_ms": [1, 1], "delay_level": pa.array([None, 1], pa.int32())}, 1, "exactly one of delay_ms and"),
        ({"delay_ms": None, "delay_level": ["1"]}, None, "column 'delay_level' has type string"),
        ({"late": [None, "never"]}, 1, "late is 'never'; allowed: deliver, drop, dead"),
        ({"order_key": ["x" * 256]}, 0, "order_key has 256 bytes; allowed: 255"),
        ({"properties": pa.array([[], [("tarry.x", "")]], PROPERTIES)}, 1, "property 'tarry.x' is reserved"),
        ({"properties": ["a=1"]}, None, "column 'properties' has type string; allowed: map<string, string>, as of"),
        ({"properties": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))}, None, "map<string, int8"),
        ({"properties": pa.array([[], [("a", None)]], PROPERTIES)}, 1, "a property's value is null"),
        ({"properties": pa.array([[("a", "123")], [("ab", "1234")]], PROPERTIES)}, 1, "have 6 bytes; allowed: 5"),
        ({"colour": ["red"]}, None, "unknown column 'colour'; allowed: body, delay, delay_level, delay_ms"),
        ({"seq": [1]}, None, "unknown column 'seq'"),
        ({"kind": pa.array([0], pa.int8())}, None, "unknown column 'kind'"),
    ],
)  # fmt: skip
def test_a_refusal_names_row_and_value(columns: dict[str, Any], row: int | None, text: str) -> None:
    error = refused(batch(**columns), MessageLimits(body_bytes_max=4, properties_bytes_max=5))
    assert error.row == row
    assert text in str(error)
    assert str(error).startswith(f"row {row}: ") == (row is not None)


NAMES = ["a", "b", "é"]


@given(st.lists(st.none() | st.dictionaries(st.sampled_from(NAMES), st.none() | st.text(max_size=3))), st.data())
def test_properties_may_be_a_struct_of_texts(rows: list[dict[str, str | None] | None], data: st.DataObject) -> None:
    kind = pa.struct([(name, data.draw(st.sampled_from([pa.string(), pa.large_string()]))) for name in NAMES])
    first = data.draw(st.integers(0, len(rows)))
    admitted = check_properties(pa.array(rows, kind)[first:], row_bytes_max=1000, bytes_max=10_000)
    admitted.validate(full=True)
    assert admitted.type == PROPERTIES
    given_ = [None if row is None else [(n, row[n]) for n in NAMES if row.get(n) is not None] for row in rows[first:]]
    assert admitted.to_pylist() == given_


@pytest.mark.parametrize(
    ("properties", "limits", "says"),
    [
        ([{"tarry.x": "y"}], LIMITS, "row 0: property 'tarry.x' is reserved"),
        ([{"a": "1"}, {"": "1"}], LIMITS, "row 1: the name of a property is empty"),
        (
            [{"a": "1"}, {"ab": "1234"}],
            MessageLimits(properties_bytes_max=5),
            "row 1: properties have 6 bytes; allowed: 5",
        ),
        (
            [{"a": 1}],
            LIMITS,
            "column 'properties' has type struct<a: int64>; allowed: map<string, string>, "
            "as of pa.array([[('name', 'text')]], pa.map_(pa.string(), pa.string())), or dicts of texts",
        ),
    ],
)
def test_a_struct_of_properties_that_is_refused(properties: list[Any], limits: MessageLimits, says: str) -> None:
    assert says in str(refused(batch(properties=properties), limits))


@pytest.mark.parametrize(
    "texts", [{"n" * 60: "x"}, {"n": "x" * 60}, {str(n): None for n in range(30)}], ids=["names", "texts", "fields"]
)
def test_a_struct_is_bounded_before_it_is_a_map(texts: dict[str, str | None]) -> None:
    kind = pa.struct([(name, pa.string()) for name in texts])
    with pytest.raises(MessageTooLargeError, match=r"properties have [0-9]+ bytes in all; allowed: 100"):
        check_properties(pa.array([texts, texts], kind), row_bytes_max=1000, bytes_max=100)


def test_a_name_in_a_struct_is_utf_8() -> None:
    named = pa.StructArray.from_arrays([pa.array(["x"])], fields=[pa.field(b"\xff", pa.string())])
    assert "the name of a property is b'\\xff'; allowed: UTF-8" in str(refused(batch(properties=named)))


def test_a_column_of_dicts_of_pandas_is_properties() -> None:
    frame = pd.DataFrame(
        {"topic": "t", "body": ["1", "2", "3"], "delay_ms": 1, "properties": [{"a": "1"}, None, {"b": "2"}]}
    )
    [chunk] = batches_of(frame, 10)
    assert admit(chunk, NOW).column("properties").to_pylist() == [[("a", "1")], None, [("b", "2")]]


def test_the_row_is_that_of_the_slice() -> None:
    assert refused(batch(topic=["a", "b", "?"]).slice(1)).row == 1
    assert refused(batch(properties=pa.array([[("a", None)], [], [("a", None)]], PROPERTIES)).slice(1)).row == 1


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (batch().slice(0, 0), "no rows"),
        (pa.table({}), "no rows"),
        ({"topic": ["a"]}, "a batch of type dict"),
        (None, "a batch of type NoneType"),
    ],
)
def test_what_is_no_batch(data: Any, text: str) -> None:
    assert text in str(refused(data))


def test_a_column_given_twice() -> None:
    column = pa.array(["a"])
    error = refused(pa.RecordBatch.from_arrays([column] * 4, names=["topic", "tag", "tag", "topic"]))
    assert "column 'tag' is there more than once" in str(error)


def test_the_kinds_of_refusal_are_told_apart() -> None:
    assert isinstance(refused(batch(delay_ms=[DELAY_MS_MAX + 1])), DelayTooLongError)
    assert isinstance(refused(batch(body=[b"12"]), MessageLimits(body_bytes_max=1)), MessageTooLargeError)
    assert isinstance(refused(batch(topic=["a"] * 3), MessageLimits(batch_rows_max=2)), MessageTooLargeError)
    assert isinstance(refused(batch(body=[b"x" * 99]), MessageLimits(batch_bytes_max=98)), MessageTooLargeError)


# -- what is hostile -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("spare", [1, 3, 4, 15])
@pytest.mark.parametrize("kind", [pa.binary_view(), pa.string_view()], ids=str)
def test_views_with_spare_bytes_behind_them(kind: pa.DataType, spare: int) -> None:
    views = typed(["a", "bc"], kind).buffers()[1].to_pybytes() + bytes(spare)
    column = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(views)])
    assert admit(batch(body=column), NOW).column("body").to_pylist() == [b"a", b"bc"]


@pytest.mark.parametrize("kind", [TEXTS[3], pa.binary_view(), pa.string_view()], ids=str)
def test_a_batch_that_is_small_until_it_is_written_out(kind: pa.DataType) -> None:
    once = typed(["x" * (1 << 20)], kind)
    indices = np.zeros(10_000, np.int8)
    if pa.types.is_dictionary(kind):
        many = pa.DictionaryArray.from_arrays(pa.array(indices), once.dictionary)
    else:
        views = np.tile(np.frombuffer(once.buffers()[1], np.uint8)[:16], len(indices))
        many = pa.Array.from_buffers(kind, len(indices), [None, pa.py_buffer(views.tobytes()), *once.buffers()[2:]])
    error = refused(batch(body=many))
    assert isinstance(error, MessageTooLargeError)
    assert f"column 'body' has {10_000 << 20} bytes" in str(error)


@pytest.mark.parametrize(
    ("column", "kind", "offsets", "data"),
    [
        ("topic", pa.string(), [0, 1 << 30], b"orders"),
        ("topic", pa.string(), [0, -5], b"orders"),
        ("topic", pa.string(), [0, 2], b"\xff\xfe"),
        ("tag", pa.string(), [0, 1], b"\x80"),
        ("body", pa.binary(), [5, 2], b"123456"),
    ],
    ids=["offset beyond", "offset negative", "not UTF-8", "tag not UTF-8", "offsets fall"],
)
def test_memory_that_does_not_hold_together(column: str, kind: pa.DataType, offsets: list[int], data: bytes) -> None:
    # Arrow checks what it makes from buffers, but not what a stream brings; so the memory is changed under it.
    memory, content = np.array([0, len(data)], np.int32), np.full(len(data), ord("a"), np.uint8)
    array = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(memory), pa.py_buffer(content)])
    lying = batch(**{column: array})
    memory[:], content[:] = offsets, np.frombuffer(data, np.uint8)
    assert "not valid Arrow data" in str(refused(lying))


def test_a_dictionary_index_that_leads_nowhere() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([7], pa.int8()), pa.array([b"x"]), safe=False)
    assert "not valid Arrow data" in str(refused(batch(body=array)))


scalars = st.sampled_from(
    [
        pa.null(), pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float16(), pa.float64(),
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
        pa.binary(3), pa.date32(), pa.time64("us"), pa.decimal128(10, 2), pa.timestamp("s", tz="UTC"),
        pa.timestamp("ms"),
        pa.timestamp("us", tz="+01:00"), pa.timestamp("ns", tz="x"), pa.duration("s"), pa.duration("ms"),
        pa.duration("ns"), pa.month_day_nano_interval(),
    ]
)  # fmt: skip
kinds = st.one_of(
    scalars,
    scalars.map(pa.list_),
    scalars.map(lambda kind: pa.struct([("a", kind)])),
    st.tuples(scalars, scalars).filter(lambda two: two[0] != pa.null()).map(lambda two: pa.map_(*two)),
    st.sampled_from([pa.string(), pa.binary(), pa.int64(), pa.float64()]).map(
        lambda kind: pa.dictionary(pa.int16(), kind)
    ),
    st.just(pa.run_end_encoded(pa.int32(), pa.string())),
    st.just(pa.json_(pa.string())),
    st.just(pa.uuid()),
)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if isinstance(kind, pa.BaseExtensionType):
        return values_of(kind.storage_type)
    types, ends = pa.types, st.sampled_from([0, 1, -1, 2**31, 2**62, INT64_MAX, -(2**63)])
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return values_of(kind.value_type)
    if types.is_map(kind):
        return st.lists(st.tuples(values_of(kind.key_type).filter(lambda k: k is not None), values_of(kind.item_type)))
    if types.is_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=2)
    if types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({"a": values_of(kind.field(0).type)})
    if types.is_boolean(kind):
        return st.none() | st.booleans()
    if types.is_integer(kind):
        low, high = (0, 2**kind.bit_width - 1) if types.is_unsigned_integer(kind) else (
            -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1,
        )  # fmt: skip
        return st.none() | st.integers(low, high) | ends.filter(lambda v: low <= v <= high)
    if types.is_float16(kind):
        return st.none() | st.sampled_from([np.float16(0), np.float16("nan"), np.float16("-inf")])
    if types.is_floating(kind):
        return st.none() | st.floats()
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return st.none() | st.text(max_size=20) | st.just("orders")
    if types.is_fixed_size_binary(kind):
        return st.none() | st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return st.none() | st.binary(max_size=20)
    if types.is_timestamp(kind) or types.is_duration(kind):
        return st.none() | st.integers(-(2**63) + 1, INT64_MAX) | ends.filter(lambda v: v > -(2**63))
    return st.none()


@st.composite
def tables(draw: st.DrawFn) -> pa.Table | pa.RecordBatch:
    rows = draw(st.integers(1, 4))
    good = {"topic": pa.array(["orders"] * rows), "body": pa.array([b"x"] * rows), "delay_ms": pa.array([5] * rows)}
    known = ["topic", "body", "due_ms", "due", "delay_ms", "delay", "id", "key", "tag", "properties", "expire_ms"]
    for name in draw(st.sets(st.sampled_from([*known, "ttl_ms", "tries", "repeat", "other"]), max_size=4)):
        kind = draw(kinds)
        values = draw(st.lists(values_of(kind), min_size=rows, max_size=rows))
        if isinstance(kind, pa.BaseExtensionType):
            good[name] = pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
        else:
            good[name] = pa.array(values, kind)
    for name in draw(st.sets(st.sampled_from(["topic", "body", "delay_ms"]), max_size=1)):
        del good[name]
    whole = pa.RecordBatch.from_arrays(list(good.values()), names=list(good))
    start = draw(st.integers(0, rows - 1))
    match draw(st.sampled_from(["batch", "slice", "table"])):
        case "slice":
            return whole.slice(start)
        case "table":
            return pa.Table.from_batches([whole.slice(start), whole.slice(0, start)])
        case _:
            return whole


@settings(
    max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(tables(), st.sampled_from([NOW, 0, 2**62]))
def test_any_table_is_admitted_well_or_refused_well(data: pa.Table | pa.RecordBatch, now_ms: int) -> None:
    try:
        out = admit(data, now_ms)
    except InvalidMessageError as error:
        assert error.row is None or 0 <= error.row < data.num_rows
        return
    assert out.schema == UNNUMBERED
    assert out.num_rows == data.num_rows
    out.validate(full=True)
    assert out["topic"].null_count == out["body"].null_count == out["due_ms"].null_count == 0
    assert 0 <= min(out["due_ms"].to_pylist()) <= max(out["due_ms"].to_pylist()) <= now_ms + DELAY_MS_MAX
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, UNNUMBERED) as writer:
        writer.write_batch(out)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().to_batches()[0].equals(out)


@pytest.mark.parametrize("place", range(40))
def test_bytes_turned_over_on_the_wire(place: int) -> None:
    """A stream whose bytes were damaged or forged is refused or admitted; the process does not crash."""
    kinds = {"topic": pa.string(), "body": pa.binary(), "delay_ms": pa.int64(), "properties": PROPERTIES}
    rows = [{"topic": "orders", "body": b"x" * 9, "delay_ms": i, "properties": [("a", "b")]} for i in range(5)]
    whole = pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(kinds.items())))
    schema, encoded = whole.schema, bytearray(whole.serialize())
    body_at = len(encoded) - 320
    generator = np.random.default_rng(place)
    for _ in range(20):
        forged = bytearray(encoded)
        at = int(generator.integers(max(0, body_at), len(forged)))
        forged[at] ^= 1 << int(generator.integers(0, 8))
        try:
            admit(pa.ipc.read_record_batch(pa.py_buffer(bytes(forged)), schema), NOW)
        except (InvalidMessageError, pa.ArrowException, OSError) as error:
            assert not isinstance(error, InvalidMessageError) or json.dumps(error.to_wire())


# -- one at a time -------------------------------------------------------------------------------------------


def test_rows_become_columns() -> None:
    messages = [
        Message("a", b"1", NOW + 1, id="i", properties={"p": "q"}, ttl_ms=50, tries=2),
        Message("b", b"2", NOW + 2, key="k", tag="t"),
    ]
    assert rows_to_batch(messages[1:]).schema.names == ["topic", "due_ms", "body", "key", "tag"]
    out = admit(rows_to_batch(messages), NOW).to_pylist()
    assert [(r["topic"], r["body"], r["due_ms"], r["id"], r["key"], r["expire_ms"], r["tries"]) for r in out] == [
        ("a", b"1", NOW + 1, "i", None, NOW + 50, 2),
        ("b", b"2", NOW + 2, None, "k", None, None),
    ]
    assert [r["properties"] for r in out] == [[("p", "q")], None]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"topic": 5}, "topic is 5 (int); allowed: string"),
        ({"body": 5}, "body is 5 (int); allowed: binary"),
        ({"due_ms": 2**70}, f"due_ms is {2**70} (int); allowed: int64"),
        ({"due_ms": "soon"}, "due_ms is 'soon' (str)"),
        ({"id": "\ud800"}, "id is '\\ud800' (str)"),
        ({"tries": 2**40}, f"tries is {2**40} (int); allowed: int32"),
        ({"properties": ["a"]}, "properties is ['a'] (list)"),
        ({"properties": {"a": 1}}, "properties is {'a': 1} (dict)"),
        ({"ttl_ms": "x" * 500}, "… (502 characters) (str)"),
    ],
)
def test_a_message_whose_field_is_of_no_use(fields: dict[str, Any], text: str) -> None:
    good = {"topic": "a", "body": b"", "due_ms": NOW}
    with pytest.raises(InvalidMessageError) as caught:
        rows_to_batch([Message("a", b"", NOW), Message(**{**good, **fields})])
    assert caught.value.row == 1
    assert text in str(caught.value)


def test_a_null_where_a_value_is_needed() -> None:
    with pytest.raises(InvalidMessageError, match="row 0: body is null"):
        admit(rows_to_batch([Message("a", None, NOW)]), NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize("topic", ["", "a b", "a\n", "ä", "a" * 256, None, 5, b"a"])
def test_check_topic(topic: Any) -> None:
    assert check_topic("a.B_9%|/-") == "a.B_9%|/-"
    with pytest.raises(InvalidMessageError, match="is not a topic name; allowed: 1 to 255"):
        check_topic(topic)


def test_a_delay_level_is_resolved_by_the_table() -> None:
    levels = pa.array([0, 1, 18, 99, -3], pa.int32())
    out = admit(batch(delay_ms=None, delay_level=levels), NOW)
    assert (out.column("due_ms").to_numpy() - NOW).tolist() == [0, 1000, 7_200_000, 7_200_000, 0]
    out = admit(batch(delay_ms=None, delay_level=levels), NOW, MessageLimits(levels=(7, 9)))
    assert (out.column("due_ms").to_numpy() - NOW).tolist() == [0, 7, 9, 9, 0]


def test_ways_to_say_when_may_differ_by_row() -> None:
    ways = {"due_ms": [NOW + 5, None, None], "delay_ms": [None, 6, None], "delay_level": [None, None, 2]}
    out = admit(batch(**{n: pa.array(v, pa.int64()) for n, v in ways.items()}), NOW)
    assert (out.column("due_ms").to_numpy() - NOW).tolist() == [5, 6, 5000]


def test_order_key_and_late_become_properties() -> None:
    given = pa.array([[("a", "1")], None], PROPERTIES)
    out = admit(batch(properties=given, order_key=["k", None], late=[None, "dead"]), NOW)
    assert out.column("properties").to_pylist() == [[("a", "1"), ("tarry.order", "k")], [("tarry.late", "dead")]]


def test_policies_of_keys() -> None:
    assert key_policies(batch()) is None
    found = key_policies(batch(key=["a"] * 4, on_key=[None, "keep", "refuse", "replace"]))
    assert found == [KeyPolicy(each) for each in (OnKey.REPLACE, OnKey.KEEP, OnKey.REFUSE, OnKey.REPLACE)]
    with pytest.raises(InvalidMessageError, match="row 1: on_key is 'never'; allowed: replace, keep, refuse"):
        key_policies(batch(on_key=["keep", "never"]))


def test_a_cancellation_is_where_its_target_is_and_names_it() -> None:
    names = ["seq", "due_ms", "topic"]
    targets = pa.RecordBatch.from_arrays([pa.array([7, 2**62]), pa.array([5, 6]), pa.array(["a", "b"])], names=names)
    rows = cancellations(targets, NOW)
    assert rows.schema == UNNUMBERED
    rows.validate(full=True)
    assert cancelled_seqs(rows).tolist() == [7, 2**62]
    assert rows.column("due_ms").to_pylist() == [5, 6] and rows.column("topic").to_pylist() == ["a", "b"]
    assert messages_only(rows).num_rows == 0


@pytest.mark.parametrize("nulls", [None, pa.nulls(5000, PROPERTIES)])
def test_a_message_of_a_large_batch_without_properties_takes_its_own_bytes_alone(nulls: pa.Array | None) -> None:
    columns = {"topic": ["a"] * 5000, "body": [b"x"] * 5000, "delay_ms": [0] * 5000}
    batch = admit(pa.record_batch(columns if nulls is None else {**columns, "properties": nulls}), NOW, LIMITS)
    assert batch.column("properties").null_count == 5000
    batch.validate(full=True)
    assert len(batch.slice(7, 1).serialize()) < 2000
