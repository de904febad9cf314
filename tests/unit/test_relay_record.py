"""A Kafka record as a row and back, to the byte; cancellations."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tarry.message.schema import SCHEMA, Kind
from tarry.store import stage
from tarry.store.parquet import read_group
from tarry.store.place import Place
from tarry_relay.cancels import Cancels
from tarry_relay.headers import Header
from tarry_relay.positions import seq_of
from tarry_relay.record import RecordRows, headers_column, headers_of, headers_text, key_bytes, key_text
from tarry_relay.sending import of_rows
from tarry_relay.settings import RelaySettings

octets = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=8).map(str.encode))
headers = st.lists(st.tuples(st.text(max_size=8), octets), max_size=6)
keys = st.one_of(octets, st.binary(max_size=8).map(lambda b: b"base64:" + b))


@given(keys)
def test_keys(key: bytes | None) -> None:
    assert key_bytes(key_text(key)) == key


@given(keys, keys)
def test_two_keys_are_one_only_if_they_are(one: bytes | None, other: bytes | None) -> None:
    assert (key_text(one) == key_text(other)) == (one == other)


@given(headers)
def test_headers(some: list[Header]) -> None:
    assert headers_of(headers_text(some)) == some


def row(rows: RecordRows, seq: int, **more: object) -> None:
    columns = {"topic": "t-due", "due_ms": 1_000, "id": f"t/0/{seq}", "key": "k", "headers": None, "body": b"b"}
    rows.add(seq=seq, **(columns | {"born_ms": 7, "kind": Kind.MESSAGE} | more))  # type: ignore[arg-type]


@given(st.lists(st.tuples(keys, octets, headers), min_size=1, max_size=10))
def test_records_through_columns(records: list[tuple[bytes | None, bytes | None, list[Header]]]) -> None:
    rows = RecordRows()
    for number, (key, value, some) in enumerate(records):
        row(rows, number, key=key_text(key), body=value, headers=headers_text(some), born_ms=number - 1)
    table = rows.table()
    assert table.schema == SCHEMA
    batch = table.combine_chunks().to_batches()[0]
    assert headers_column(batch) == [headers_text(some) for _, _, some in records]
    out = of_rows(RelaySettings(kafka="k", topics="t", store="s"), batch)
    assert [
        (o.key, o.value, list(o.headers[: len(some)])) for o, (_, _, some) in zip(out, records, strict=True)
    ] == records
    assert [o.timestamp_ms for o in out] == [None if n == 0 else n - 1 for n in range(len(records))]
    assert dict(out[0].headers[len(records[0][2]) :])["tarry-source-offset"] == b"0"


def test_cancellations_take_what_came_before_them(tmp_path: Path) -> None:
    rows, cancels = RecordRows(), RecordRows()
    places = [(0, 1), (0, 5), (0, 9), (1, 1)]
    for number, offset in places:
        row(rows, seq_of(number, offset))
    row(rows, seq_of(0, 2), key="other")
    row(rows, seq_of(0, 3), key=None)
    for offset in (4, 6):  # the last one says all
        row(cancels, seq_of(0, offset), kind=Kind.CANCEL, topic="t", body=b"\0" * 8)
    [messages] = stage(rows.table(), str(tmp_path), "r", 0)
    [cancelled] = stage(cancels.table(), str(tmp_path), "r", 0)
    assert cancelled.bucket == "cancelled"
    batch = read_group(Place.of(str(tmp_path)), messages.path, 0)
    loaded = Cancels()
    assert loaded.alive(batch).all()
    loaded.load(str(tmp_path), [cancelled.path])
    dead = batch.filter(~loaded.alive(batch))
    assert sorted(dead["seq"].to_pylist()) == [seq_of(0, 1), seq_of(0, 5)]
