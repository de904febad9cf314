"""What Spark's side decides without Spark: columns, options, JSON bodies, bounds, ranges, rows that are refused."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql import datasource as ds
from pyspark.sql import types as t
from pyspark.sql.datasource import CaseInsensitiveDict

from tarry.base.errors import DiskFullError, InvalidArgumentError, InvalidMessageError
from tarry.message.accepted import ids_of
from tarry.message.admission import MessageLimits
from tarry.message.schema import SCHEMA, UNNUMBERED, chunks
from tarry.spark.broker_client import BulkAttempt
from tarry.spark.datasource import staging
from tarry.spark.datasource.bodies import to_json
from tarry.spark.datasource.columns import check_columns
from tarry.spark.datasource.filters import Bounds, Span
from tarry.spark.datasource.options import ReadOptions, StreamOptions, WriteOptions
from tarry.spark.datasource.rows import RowChecker
from tarry.spark.datasource.shape import MESSAGE, Shape, arrow_schema, instants
from tarry.spark.datasource.source import TarryDataSource
from tarry.spark.datasource.staging import StagingTask, can_reach
from tarry.spark.datasource.stream import for_group, next_end
from tarry.store import Store

NOW_MS = 1_795_264_000_000

# -- columns -----------------------------------------------------------------------------------------------------------


def struct(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


TEXT, LONG = t.StringType(), t.LongType()


@pytest.mark.parametrize(
    "columns",
    [
        {"topic": TEXT, "body": t.BinaryType(), "due": t.TimestampType()},
        {"topic": TEXT, "body": TEXT, "delay": t.DayTimeIntervalType()},
        {"topic": t.VarcharType(9), "body": t.ArrayType(LONG), "due_ms": t.IntegerType(), "delay_ms": LONG},
        {"topic": TEXT, "body": t.MapType(LONG, t.StructType()), "delay_level": t.ByteType()},
    ],
)
def test_columns_that_are_allowed(columns: dict[str, t.DataType]) -> None:
    check_columns(struct(**columns), {})


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"Topic ": TEXT}, r"unknown column 'Topic ' \(did you mean 'topic'\?\)"),
        ({"topic": TEXT, "body": t.VariantType(), "due_ms": LONG}, "column 'body' has type variant; allowed: binary"),
        ({"topic": TEXT, "body": struct(x=t.DayTimeIntervalType()), "due_ms": LONG}, "has no place in JSON"),
        ({"topic": TEXT, "body": t.MapType(t.DoubleType(), LONG), "due_ms": LONG}, "a map key of type double"),
        (
            {"topic": TEXT, "body": TEXT, "due": t.TimestampNTZType()},
            "timestamp_ntz; allowed: timestamp; .* no instant",
        ),
        ({"topic": TEXT, "body": TEXT, "due": LONG}, "column 'due' has type bigint.*name the column 'due_ms'"),
        ({"topic": TEXT, "body": TEXT, "due": t.DateType()}, "column 'due' has type date"),
        ({"topic": TEXT, "body": TEXT, "delay": LONG}, "name the column 'delay_ms'"),
        ({"topic": TEXT, "body": TEXT, "delay": t.YearMonthIntervalType()}, "allowed: interval day to second"),
        ({"topic": TEXT, "body": TEXT, "due_ms": t.DoubleType()}, "column 'due_ms' has type double; allowed: bigint"),
        ({"topic": TEXT, "body": TEXT, "due_ms": LONG, "properties": t.MapType(TEXT, LONG)}, "map<string,string>"),
        ({"topic": TEXT, "body": TEXT, "due_ms": LONG, "ttl_ms": LONG, "expire_ms": LONG}, "both given"),
        ({"topic": TEXT, "body": TEXT, "due_ms": LONG, "on_key": TEXT}, "column 'on_key' is not for bulk"),
        ({"topic": TEXT, "body": TEXT, "due_ms": LONG, "seq": LONG}, "the broker numbers messages"),
        ({"topic": TEXT, "body": TEXT, "due": t.TimestampType(), "due_ms": LONG}, "given: due, due_ms"),
    ],
)
def test_columns_that_are_not(columns: dict[str, t.DataType], words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        check_columns(struct(**columns), {})


def test_a_column_twice() -> None:
    schema = t.StructType([t.StructField("topic", TEXT), t.StructField("topic", TEXT)])
    with pytest.raises(InvalidMessageError, match="more than once"):
        check_columns(schema, {})
    schema = t.StructType([t.StructField("topic", TEXT), t.StructField("TOPIC", TEXT)])
    with pytest.raises(InvalidMessageError, match="column 'TOPIC' is there more than once"):
        check_columns(schema, {})


def test_capitals_of_a_column_do_not_count() -> None:
    """As in Spark, which is ``spark.sql.caseSensitive=false`` by default."""
    names = {"Topic": TEXT, "BODY": t.StructType([t.StructField("N", t.LongType())]), "Due_Ms": t.LongType()}
    check_columns(t.StructType([t.StructField(name, kind) for name, kind in names.items()]), {})
    with pytest.raises(InvalidMessageError, match="column 'DUE' has type bigint; allowed: timestamp"):
        check_columns(t.StructType([t.StructField("DUE", t.LongType())]), {"topic": "t"})
    batch = pa.RecordBatch.from_pydict({"Topic": ["t", None], "BODY": [{"N": 1}, {"N": 2}], "Due_Ms": [NOW_MS + 9] * 2})
    [rows] = RowChecker(NOW_MS, MessageLimits(), {"topic": "other"}).admitted([batch], 0)
    assert rows.column("topic").to_pylist() == ["t", "other"]
    assert rows.column("body").to_pylist() == [b'{"N":1}', b'{"N":2}']
    assert rows.column("due_ms").to_pylist() == [NOW_MS + 9] * 2


def test_columns_are_read_by_any_capitals() -> None:
    schema = t.StructType([t.StructField("Topic", TEXT), t.StructField("SEQ", t.LongType())])
    shape = Shape.of(schema, MESSAGE)
    assert shape.needed() == ["topic", "seq"]
    shaped = shape.shaped({"topic": pa.array(["t"]), "seq": pa.array([7], pa.int64())})
    assert shaped.to_pylist() == [{"Topic": "t", "SEQ": 7}]
    bounds = Bounds().narrowed([ds.EqualTo(("TOPIC",), "t"), ds.LessThan(("Due_Ms",), 5)])
    assert (bounds.topics, bounds.due_ms.high) == ({"t"}, 4)


def test_options_of_a_stream_are_checked_when_it_is_loaded() -> None:
    good = {"endpoint": "h:1", "topic": "t", "group": "g"}
    assert "offset" in TarryDataSource(CaseInsensitiveDict(good)).schema().names
    for wrong in ({"startingOffsets": "newest"}, {"maxRowsPerTrigger": "0"}, {"tpic": "x"}, {"topic": ""}):
        with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
            TarryDataSource(CaseInsensitiveDict({**good, **wrong})).schema()
    for alone in ({"startingOffsets": "latest"}, {"maxRowsPerTrigger": "1"}):
        with pytest.raises(InvalidArgumentError, match="'group' is missing; a stream is read of a topic, by a group"):
            TarryDataSource(CaseInsensitiveDict({"endpoint": "h:1", "topic": "t", **alone})).schema()
    with pytest.raises(InvalidArgumentError, match="unknown option 'tpic'"):
        TarryDataSource(CaseInsensitiveDict({"endpoint": "h:1", "tpic": "t"})).schema()


# -- options -----------------------------------------------------------------------------------------------------------


def test_options() -> None:
    options = WriteOptions.of({"EndPoint": "h:1", "Delay_MS": "5", "checkpointLocation": "x", "mode": "FLIGHT"})
    assert (options.broker.endpoint, options.way, options.job, options.defaults) == (
        "h:1",
        "flight",
        None,
        {"delay_ms": 5},
    )
    read = ReadOptions.of({"endpoint": "[::1]:7611", "topic": " a, b,a", "until_ms": "7"})
    assert (read.topics, read.until_ms, read.after_ms, read.what) == (("a", "b"), 7, None, "pending")
    stream = StreamOptions.of({"endpoint": "h:1", "topic": "a", "group": "g", "failOnDataLoss": "FALSE"})
    assert (stream.start, stream.fail_on_data_loss, stream.rows_max) == ("group", False, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "option 'endpoint' is missing; .*WITH \\('endpoint' = "),
        ({"endpoint": "h:99999"}, "allowed: HOST:PORT"),
        ({"endpoint": "grpc://h:1"}, "allowed: HOST:PORT"),
        ({"endpoint": "h:1", "tries": "many"}, "option 'tries' is 'many'; allowed: a whole number, 0 or more"),
        ({"endpoint": "h:1", "due_ms": str(1 << 63)}, "allowed: a whole number"),
        ({"endpoint": "h:1", "job": ""}, "option 'job' has 0 bytes"),
        ({"endpoint": "h:1", "topic": "a b"}, "option 'topic': topic 'a b' is not a topic name"),
    ],
)
def test_options_that_are_not_allowed(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        WriteOptions.of(options)


# -- bodies ------------------------------------------------------------------------------------------------------------

LEAF = pa.struct(
    [
        ("text", pa.string()),
        ("long", pa.int64()),
        ("float", pa.float64()),
        ("yes", pa.bool_()),
        ("at", pa.timestamp("us", "Asia/Kolkata")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 3)),
        ("raw", pa.binary()),
        ("list", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("numbers", pa.map_(pa.int32(), pa.struct([("x", pa.string())]))),
        ("deep", pa.list_(pa.list_(pa.struct([("y", pa.int8())])))),
    ]
)
INSTANTS = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1))
DECIMALS = st.decimals(-(10**8), 10**8, places=3, allow_nan=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def maybe(strategy: Any) -> Any:
    return st.none() | strategy


ROWS = st.lists(
    maybe(
        st.fixed_dictionaries(
            {
                "text": maybe(TEXTS),
                "long": maybe(st.integers(-(1 << 63), (1 << 63) - 1)),
                "float": maybe(st.floats(allow_nan=False)),
                "yes": maybe(st.booleans()),
                "at": maybe(INSTANTS.map(lambda moment: moment.replace(tzinfo=UTC))),
                "local": maybe(INSTANTS),
                "day": maybe(st.dates(date(1970, 1, 1), date(2200, 1, 1))),
                "price": maybe(DECIMALS),
                "raw": maybe(st.binary(max_size=5)),
                "list": maybe(st.lists(maybe(TEXTS), max_size=3)),
                "map": maybe(st.dictionaries(TEXTS, maybe(st.integers(-5, 5)), max_size=3)),
                "numbers": maybe(st.dictionaries(st.integers(-9, 9), maybe(st.just({"x": "1"})), max_size=2)),
                "deep": maybe(st.lists(maybe(st.lists(maybe(st.just({"y": None}) | st.just({"y": 3})))), max_size=2)),
            }
        )
    ),
    min_size=1,
    max_size=6,
)


def plain(value: Any) -> Any:
    """What a JSON reader gives of a value."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def without_nulls(value: Any, kind: pa.DataType) -> Any:
    """Fields of structs that are null are left out."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: without_nulls(value[f.name], f.type) for f in kind if value.get(f.name) is not None}
    if pa.types.is_list(kind):
        return [without_nulls(v, kind.value_type) for v in value]
    if pa.types.is_map(kind):
        return {k: without_nulls(v, kind.item_type) for k, v in value.items()}
    return value


@given(ROWS, st.integers(0, 3))
def test_json_is_what_a_reader_of_it_expects(rows: list[Any], skip: int) -> None:
    ready = [
        None if row is None else {**row, **{n: row[n] and list(row[n].items()) for n in ("map", "numbers")}}
        for row in rows
    ]
    skip = min(skip, len(rows) - 1)
    column = pa.array(ready, LEAF).slice(skip)
    texts = to_json(column)
    assert texts.type == pa.string()
    for row, text in zip(rows[skip:], texts.to_pylist(), strict=True):
        if row is None:
            assert text is None
            continue
        got = json.loads(text, parse_float=Decimal)
        want = plain(without_nulls(row, LEAF))
        assert float(got.pop("float", 0)) == float(want.pop("float", 0) or 0)
        assert got == want


def test_json_of_what_is_no_number() -> None:
    column = pa.array([{"x": float("nan")}, {"x": float("-inf")}, {"x": 1e300}])
    assert to_json(column).to_pylist() == ['{"x":"NaN"}', '{"x":"-Infinity"}', '{"x":1e+300}']
    assert to_json(pa.array([{}, None], pa.struct([]))).to_pylist() == ["{}", None]
    assert to_json(pa.array([{"x": None}], pa.struct([("x", pa.null())]))).to_pylist() == ["{}"]


# -- rows --------------------------------------------------------------------------------------------------------------


def test_a_refused_row_is_numbered_over_batches_and_pieces() -> None:
    checker = RowChecker(NOW_MS, MessageLimits(batch_rows_max=7), {"topic": "t"})
    batches = [
        pa.RecordBatch.from_pydict({"body": [f"{n}" for n in range(low, low + 20)], "delay_ms": [5] * 20})
        for low in (0, 20)
    ]
    got = list(checker.admitted(batches, 0))
    assert [b.num_rows for b in got] == [7, 7, 6, 7, 7, 6]
    assert all(b.schema == UNNUMBERED for b in got)
    bad = pa.RecordBatch.from_pydict({"body": ["ok"] * 16 + ["x" * 200], "delay_ms": [5] * 16 + [-3]})
    with pytest.raises(
        InvalidMessageError, match=r"row 56 of partition 4 is refused: delay_ms is -3; allowed: 0"
    ) as refusal:
        list(checker.admitted([*batches, bad], 4))
    assert f"the row: body='{'x' * 79}… (202 characters), delay_ms=-3" in str(refusal.value)


def test_a_large_batch_is_admitted_in_pieces() -> None:
    checker = RowChecker(NOW_MS, MessageLimits(batch_bytes_max=10_000), {"topic": "t", "delay_ms": 1})
    batch = pa.RecordBatch.from_pydict({"body": [b"x" * 1000] * 50})
    assert sum(b.num_rows for b in checker.admitted([batch], 0)) == 50


# -- staging -----------------------------------------------------------------------------------------------------------


class Numbers:
    """Reserves seqs as a broker does."""

    def __init__(self) -> None:
        self.next = 1 << 62

    def reserve(self, number: int, rows: int) -> int:
        self.next += rows
        return self.next - rows


def test_a_task_stages_its_partition_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "CHUNK_BYTES", 100_000)
    store = Store.open(str(tmp_path / "store"))
    job = BulkAttempt("j", "open", 0, store.root, store.table_id, 0, NOW_MS, MessageLimits(), 0, {})
    checker = RowChecker(NOW_MS, job.limits, {"topic": "t"})
    batch = pa.RecordBatch.from_pydict({"body": [b"x" * 1000] * 50, "delay_ms": [n * 86_400_000 for n in range(50)]})
    staged = StagingTask(Numbers(), job).run([batch] * 10, checker, 3, "bulk")  # type: ignore[arg-type]
    assert staged.topics == {"t": 500}
    assert sum(file.rows for file in staged.files) == 500
    assert sorted(file.seq_min for file in staged.files)[0] == 1 << 62
    seqs = [s for f in staged.files for s in pa.parquet.read_table(tmp_path / "store" / f.path)["seq"].to_pylist()]
    assert sorted(seqs) == list(range(1 << 62, (1 << 62) + 500))


def test_files_of_a_task_that_fails_are_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "CHUNK_BYTES", 1000)
    store = Store.open(str(tmp_path / "store"))
    job = BulkAttempt("j", "open", 0, store.root, store.table_id, 0, NOW_MS, MessageLimits(), 0, {})
    good = pa.RecordBatch.from_pydict({"body": [b"x" * 1000] * 50})
    bad = pa.RecordBatch.from_pydict({"body": [None]}, schema=good.schema)
    checker = RowChecker(NOW_MS, job.limits, {"topic": "t", "delay_ms": 1})
    with pytest.raises(InvalidMessageError, match="row 100 of partition 0 is refused: body is null"):
        StagingTask(Numbers(), job).run([good, good, bad], checker, 0, "bulk")  # type: ignore[arg-type]
    assert list((tmp_path / "store").rglob("*.parquet")) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "CHUNK_BYTES", 1000)
    store = Store.open(str(tmp_path / "store"))
    job = BulkAttempt("j", "open", 0, store.root, store.table_id, 0, NOW_MS, MessageLimits(), 0, {})
    good = pa.RecordBatch.from_pydict({"body": [b"x" * 1000] * 50})
    checker = RowChecker(NOW_MS, job.limits, {"topic": "t", "delay_ms": 1})
    times = iter([False, False, True])
    stage = staging.stage

    def filling(*args: Any, **options: Any) -> Any:
        if next(times):
            raise OSError(28, "No space left on device")
        return stage(*args, **options)

    monkeypatch.setattr(staging, "stage", filling)
    with pytest.raises(DiskFullError, match=r"No space left on device; nothing .* run it again with the same job id"):
        StagingTask(Numbers(), job).run([good] * 3, checker, 0, "bulk")  # type: ignore[arg-type]
    assert list((tmp_path / "store").rglob("*.parquet")) == []


def test_chunks_and_reach(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"n": list(range(10))})
    assert [len(held) for held in chunks([batch] * 5, 100)] == [2, 2, 1]
    assert list(chunks([], 100)) == []
    store = Store.open(str(tmp_path / "store"))
    job = BulkAttempt("j", "open", 0, store.root, store.table_id, 0, NOW_MS, MessageLimits(), 0, {})
    assert can_reach(job)
    assert not can_reach(replace(job, store_uri=str(tmp_path / "none")))
    assert not can_reach(replace(job, store_uri="nonsense://x"))
    # Another machine's directory of the same name.
    assert not can_reach(replace(job, store_uri=Store.open(str(tmp_path / "other")).root))


# -- bounds ------------------------------------------------------------------------------------------------------------

AT = datetime(2026, 11, 21, 12, 0, 0, 500, UTC)
AT_MS = 1_795_262_400_000


@pytest.mark.parametrize(
    ("one", "span"),
    [
        (ds.EqualTo(("due_ms",), 5), Span(5, 5)),
        (ds.GreaterThan(("due_ms",), 5), Span(low=6)),
        (ds.GreaterThanOrEqual(("due_ms",), 5), Span(low=5)),
        (ds.LessThan(("due_ms",), 5), Span(high=4)),
        (ds.LessThanOrEqual(("due_ms",), 5), Span(high=5)),
        (ds.In(("due_ms",), (7, None, 3)), Span(3, 7)),
        (ds.EqualTo(("due",), AT), Span(AT_MS + 1, AT_MS)),  # between two milliseconds: none
        (ds.GreaterThan(("due",), AT), Span(low=AT_MS + 1)),
        (ds.GreaterThanOrEqual(("due",), AT), Span(low=AT_MS + 1)),
        (ds.LessThan(("due",), AT), Span(high=AT_MS)),
        (ds.LessThanOrEqual(("due",), AT), Span(high=AT_MS)),
        (ds.LessThan(("due",), AT.replace(microsecond=0)), Span(high=AT_MS - 1)),
        (ds.GreaterThan(("due",), AT.replace(microsecond=0)), Span(low=AT_MS + 1)),
        (ds.Not(ds.EqualTo(("due_ms",), 5)), Span()),
        (ds.EqualTo(("due_ms",), None), Span()),
        (ds.EqualTo(("due", "x"), 5), Span()),
    ],
)
def test_bounds_of_due_times(one: ds.Filter, span: Span) -> None:
    assert Bounds().narrowed([one]).due_ms == span


def test_bounds_of_topics_and_offsets() -> None:
    bounds = Bounds().narrowed([ds.In(("topic",), ("a", "b", "c")), ds.EqualTo(("topic",), "b")])
    assert bounds.topics == {"b"}
    assert bounds.may_have("a", "c")
    assert not bounds.may_have("c", "d")
    assert bounds.may_have(None, None)
    assert Bounds().may_have("x", "y")
    assert Bounds().narrowed([ds.LessThan(("offset",), 5), ds.GreaterThan(("offset",), 2)]).offset == Span(3, 4)
    assert Bounds().narrowed([ds.IsNull(("topic",)), ds.StringStartsWith(("topic",), "a")]) == Bounds()


@given(
    st.integers(0, 10**12), st.sampled_from([ds.GreaterThan, ds.GreaterThanOrEqual, ds.LessThan, ds.LessThanOrEqual])
)
def test_bounds_leave_out_nothing_that_the_filter_wants(micros: int, kind: Any) -> None:
    compare = {
        ds.GreaterThan: "__gt__",
        ds.GreaterThanOrEqual: "__ge__",
        ds.LessThan: "__lt__",
        ds.LessThanOrEqual: "__le__",
    }
    moment = datetime.fromtimestamp(0, UTC) + np.timedelta64(micros, "us").astype(object)
    span = Bounds().narrowed([kind(("due",), moment)]).due_ms
    for ms in range(micros // 1000 - 2, micros // 1000 + 3):
        assert (span.low <= ms <= span.high) == getattr(ms * 1000, compare[kind])(micros)


# -- shapes and ranges -------------------------------------------------------------------------------------------------


def test_ids_and_instants() -> None:
    seqs = pa.array([0, 255, (1 << 62) + 7, -1], pa.int64())
    assert ids_of(seqs).to_pylist() == [f"{s & (1 << 64) - 1:016x}" for s in seqs.to_pylist()]
    assert ids_of(seqs.slice(1, 2)).to_pylist() == [f"{255:016x}", f"{(1 << 62) + 7:016x}"]
    assert ids_of(pa.array([], pa.int64())).to_pylist() == []
    shown = instants(pa.array([AT_MS, None, 1 << 60], pa.int64()))
    assert shown.to_pylist() == [datetime(2026, 11, 21, 12, tzinfo=UTC), None, None]
    assert arrow_schema(("due",)).field("due").type == shown.type


def test_next_end() -> None:
    assert next_end({"a": 3}, {"a": 10, "b": 5}, None) == {"a": 10, "b": 5}
    assert next_end({"a": 0, "b": 0}, {"a": 100, "b": 100}, 11) == {"a": 6, "b": 5}
    assert next_end({"a": 0, "b": 0, "c": 0}, {"a": 2, "b": 100, "c": 0}, 10) == {"a": 2, "b": 8, "c": 0}
    assert next_end({"a": 7}, {"a": 7}, 5) == {"a": 7}
    assert next_end({"a": 7}, {"a": 2}, 5) == {"a": 7}  # a queue that went back is found when it is read


def test_messages_for_another_group_alone_are_left_out() -> None:
    rows = [{"properties": [("tarry.only", "x")]}, {"properties": None}, {"properties": [("tarry.only", "g")]}]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    assert for_group(batch, "g").num_rows == 2
    assert for_group(batch.slice(1, 1), "g").num_rows == 1
