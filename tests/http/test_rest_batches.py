"""Many messages in one request: JSON lines and Arrow streams, good and bad, in pieces of any size."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import InvalidArgumentError, TarryError
from tarry.fronts.http.rest.arrow_stream import ArrowStream, read
from tests.http.rest import Rest

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


def stream_of(table: pa.Table, rows: int = 100, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue()


def lines_of(answer: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def test_each_json_line_stands_for_itself(rest: Rest) -> None:
    lines = [
        b'{"body": "a", "delay": "1h", "id": "mine"}',
        b'{"bodi": 1}',
        b"",
        b"{",
        b'{"body": "b", "delay_ms": 9000000000000000}',
        b'{"body": "c", "topic": "orders"}',
        b'{"body": "d", "topic": "other"}',
    ]
    answer = rest.http.post("/v1/topics/orders/batch", content=b"\r\n".join(lines))
    assert answer.status_code == 200
    results = lines_of(answer)
    assert [line["row"] for line in results] == list(range(6))
    assert [line.get("error") for line in results] == [
        *(None, "invalid_message", "invalid_argument", "delay_too_long", None, "invalid_message")
    ]
    assert results[0]["id"] == "mine"
    assert (answer.headers["x-tarry-accepted"], answer.headers["x-tarry-refused"]) == ("2", "4")
    assert rest.http.delete(f"/v1/messages/{results[0]['handle']}").json() == {"outcome": "done"}


def test_many_bad_lines_keep_no_good_one_out(rest: Rest) -> None:
    lines = [{"body": str(n), "delay_ms": 10**16 if n % 3 else 0} for n in range(90)]
    answer = rest.http.post("/v1/topics/orders/batch", content="\n".join(map(json.dumps, lines)).encode())
    good = {line["row"] for line in lines_of(answer) if "handle" in line}
    assert good == set(range(0, 90, 3))
    bodies: set[str] = set()
    while len(bodies) < 30:
        bodies |= {message["body"] for message in rest.receive(max_messages=100)}
    assert bodies == {str(n) for n in good}


def test_only_refusals_where_that_is_asked_for(rest: Rest) -> None:
    answer = rest.http.post("/v1/batch?receipts=refused", content=b'{"topic":"a"}\n{"topic":"a b"}\n')
    assert [line["row"] for line in lines_of(answer)] == [1]
    assert answer.headers["x-tarry-accepted"] == "1"
    assert rest.http.post("/v1/batch?receipts=none", content=b"{}").status_code == 400


def test_nothing_accepted_is_an_error(rest: Rest) -> None:
    assert rest.http.post("/v1/batch", content=b"").status_code == 422
    assert rest.http.post("/v1/batch", content=b"{}\n{}").status_code == 422
    assert rest.http.post("/v1/batch", content=b"x", headers={"content-type": "text/csv"}).status_code == 415
    coded = rest.http.post("/v1/batch", content=b"x", headers={"content-encoding": "gzip"})
    assert (coded.status_code, coded.json()["message"]) == (415, "content-encoding is 'gzip'; allowed: none")


def test_arrow_in_and_out(rest: Rest) -> None:
    table = pa.table({"body": [b"%d" % n for n in range(1000)], "delay_ms": [3_600_000 + n for n in range(1000)]})

    def pieces() -> Iterator[bytes]:
        whole = stream_of(table)
        yield from (whole[at : at + 777] for at in range(0, len(whole), 777))

    answer = rest.http.post(
        "/v1/topics/orders/batch", content=pieces(), headers={**ARROW, "accept": ARROW["content-type"]}
    )
    receipts = pa.ipc.open_stream(answer.content).read_all()
    assert receipts.num_rows == 1000
    assert receipts.column("error").null_count == 1000
    pages: list[pa.Table] = []
    fields: dict[str, str] | None = {"limit": "1000"}
    while fields:
        page = rest.http.get("/v1/messages", params=fields, headers={"accept": ARROW["content-type"]})
        pages.append(pa.ipc.open_stream(page.content).read_all().replace_schema_metadata(None))
        cursor = page.headers.get("x-tarry-cursor")
        fields = {"limit": "1000", "cursor": cursor} if cursor else None
    messages = pa.concat_tables(pages)
    assert messages.column("body").to_pylist() == table.column("body").to_pylist()
    assert messages.column("seq").to_pylist() == receipts.column("seq").to_pylist()


def test_a_record_batch_is_scheduled_whole_or_not_at_all(rest: Rest) -> None:
    table = pa.table({"topic": ["a"] * 150 + ["no topic"] + ["a"] * 149, "body": [b""] * 300, "delay_ms": [0] * 300})
    results = lines_of(rest.http.post("/v1/batch", content=stream_of(table), headers=ARROW))
    assert ["error" in line for line in results] == [False] * 100 + [True] * 100 + [False] * 100
    assert "row 150" in results[100]["message"]


def test_a_stream_that_breaks_off_says_what_was_accepted(rest: Rest) -> None:
    table = pa.table({"topic": ["a"] * 300, "body": [b"x"] * 300, "delay_ms": [0] * 300})
    results = lines_of(rest.http.post("/v1/batch", content=stream_of(table)[:-500], headers=ARROW))
    assert ["error" in line for line in results] == [False] * 200 + [True]


@pytest.mark.parametrize(
    "bad", [b"GET / HTTP/1.1\r\n", b"\xff\xff\xff\xff\x10\0\0\0" + b"\xff" * 64, b"\xff" * 8, b"\0"]
)
def test_no_arrow_stream(rest: Rest, bad: bytes) -> None:
    answer = rest.http.post("/v1/batch", content=bad, headers=ARROW)
    assert answer.status_code in (400, 413)
    assert "Arrow" in answer.json()["message"]


def test_compressed_buffers_are_refused(rest: Rest) -> None:
    table = pa.table({"topic": ["a"] * 100, "body": [b"x" * 100] * 100})
    answer = rest.http.post("/v1/batch", content=stream_of(table, compression="lz4"), headers=ARROW)
    assert answer.status_code == 400
    assert "compressed" in answer.json()["message"]


SAMPLE = stream_of(
    pa.table({"topic": pa.array(["a", "b"] * 50).dictionary_encode(), "body": [b"x"] * 100, "due_ms": range(100)}), 30
)


@given(st.lists(st.integers(0, len(SAMPLE)), max_size=20))
def test_pieces_of_any_size_are_the_same_stream(cuts: list[int]) -> None:
    stream, batches = ArrowStream(), []
    at = 0
    for end in [*sorted(cuts), len(SAMPLE)]:
        stream.feed(SAMPLE[at:end])
        batches += [read(messages) for messages in stream.streams()]
        at = end
    assert stream.is_whole
    assert pa.Table.from_batches(batches).to_pylist() == pa.ipc.open_stream(SAMPLE).read_all().to_pylist()


@given(st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_stream_is_refused_or_read(changes: list[tuple[int, int]]) -> None:
    raw = bytearray(SAMPLE)
    for at, value in changes:
        raw[at] = value
    stream = ArrowStream()
    try:
        stream.feed(bytes(raw))
        for messages in stream.streams():
            read(messages)
    except TarryError as error:
        assert isinstance(error, InvalidArgumentError)
