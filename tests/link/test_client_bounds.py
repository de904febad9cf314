"""What one client may have under way on the link, however its bytes arrive."""

from __future__ import annotations

import gc
import json
import logging
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from loopgrpc import UnreadBytes
from tarry.api.operations import Peek, Ping
from tarry.base.memory import resident_bytes
from tarry.broker import Broker
from tarry.fronts.link import flow, questions, settling
from tarry.fronts.link.front import LinkFront
from tarry.link.frames import HEAD, FrameKind, Pairs, SettleFrame, SettleOp, frame
from tarry.message.columns import stream_bytes
from tarry.message.schema import UNNUMBERED
from tests.link.conftest import Connect
from tests.link.raw_client import RawClient, RefusedError, stream_of
from tests.waiting import wait_until

PING = json.dumps({"op": Ping.wire.name}).encode()


def calls(count: int, payload: bytes = PING) -> bytes:
    """Operations with the numbers from 1 on, as one piece of bytes."""
    return b"".join(b"".join(frame(FrameKind.CALL, number, payload)) for number in range(1, count + 1))


def test_calls_that_come_in_one_piece_are_begun_a_few_at_a_time(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    begun: list[int] = []
    whole = questions._call  # noqa: SLF001  where all calls begin

    def slow(*arguments: Any) -> Any:
        begun.append(arguments[1])
        assert go_on.wait(20)
        return whole(*arguments)

    monkeypatch.setattr(questions, "_call", slow)
    client, other = connect(), connect()
    client.send_bytes(calls(500))
    wait_until(lambda: len(begun) == flow.CALLS_MAX)
    other.send(FrameKind.CALL, 1, PING)
    wait_until(lambda: len(begun) == flow.CALLS_MAX + 1)  # there is a thread for it
    go_on.set()
    other.read(FrameKind.RESULT, 1)
    for number in range(1, 501):
        client.read(FrameKind.RESULT, number)
    assert sorted(begun) == sorted([*range(1, 501), 1])


def test_a_client_that_reads_no_answers_is_refused_more(connect: Connect, broker: Broker) -> None:
    client, other = connect(), connect()
    size = 4 << 20
    for _ in range(8):
        client.schedule(topic=["a"], delay_ms=pa.array([0]), body=[bytes(size)])
    wait_until(lambda: broker.call(Peek("a", limit=10)).num_rows == 8)
    peek = json.dumps({"op": "peek", "topic": "a", "limit": 10}).encode()
    client.send_bytes(calls(40, peek))
    # Half of the bound is for one address; while it is taken, other clients of that address are refused, too.
    wait_until(lambda: refused(other), timeout_s=20)
    client.close()
    wait_until(lambda: not refused(other), timeout_s=20)


def refused(client: RawClient) -> bool:
    try:
        client.ask(FrameKind.CALL, FrameKind.ROWS, b'{"op": "peek", "topic": "a", "limit": 1}')
    except RefusedError as error:
        assert error.code == "overloaded"
        return True
    return False


def test_clients_that_do_not_read_share_what_their_address_may_have(connect: Connect, unread: UnreadBytes) -> None:
    client = connect()
    for _ in range(4):
        client.schedule(topic=["a"] * 100, delay_ms=[0] * 100, body=[bytes(100_000)] * 100)
    silent = [connect() for _ in range(12)]
    for number, other in enumerate(silent):
        other.poll(1, other.group("a", f"g{number}"), rows_max=100)
    wait_until(lambda: unread.held > 8 << 20)  # the kernel takes some megabytes of each
    assert client.call("ping"), "who reads is served beside them"
    assert unread.held <= 40 << 20, "half is for one address, and one answer more"
    got: list[int] = []
    reading = [threading.Thread(target=lambda other=other: got.append(other.batch(1).num_rows)) for other in silent]
    for thread in reading:
        thread.start()
    for thread in reading:
        thread.join(60)
    assert got == [100] * len(silent), "each has its turn as the others read"


def test_a_frame_has_so_many_leases(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "LEASES_MAX", 3)
    client = connect()
    group = client.group("a", "g")
    many = np.arange(4, dtype=np.int64)
    settle = SettleFrame(SettleOp.ACK_EACH, group, 0, many, many)
    with pytest.raises(RefusedError, match="4 leases; allowed: 3 in one frame"):
        client.ask(FrameKind.SETTLE, FrameKind.SETTLED, settle.encode())
    assert client.ask(
        FrameKind.SETTLE, FrameKind.SETTLED, settle._replace(leases=many[:3], offsets=many[:3]).encode()
    ) == bytes(3)
    client.poll(7, group)
    client.send(FrameKind.RETURN, 7, Pairs(many, many).encode())
    with pytest.raises(RefusedError, match="4 leases"):
        client.read(FrameKind.RESULT, 7)


def test_refused_frames_that_nobody_waits_for_leave_few_lines(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    client.send_bytes(b"".join(frame(FrameKind.SETTLE, 0, b"no settlement")) * 1000)
    client.call("ping")
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 <= len(said) <= 12


def test_rows_are_staged_in_parts(connect: Connect) -> None:
    client, now_ms = connect(), int(time.time() * 1000)
    attempt = client.call("bulk-begin", job="load")
    number = attempt["number"]
    client.send(FrameKind.STAGE, 5, json.dumps({"number": number}).encode())
    with pytest.raises(RefusedError, match="one at a time"):
        client.ask(FrameKind.STAGE, FrameKind.RESULT, json.dumps({"number": number}).encode())
    for _ in range(3):
        client.send(FrameKind.PART, 5, rows(1000, now_ms + 3_600_000))
    client.send(FrameKind.PART, 5)
    staged = json.loads(client.read(FrameKind.RESULT, 5))
    assert staged["topics"] == {"orders": 3000}
    assert client.call("bulk-commit", number=number, **staged)["rows"] == 3000


def test_rows_that_cannot_be_staged_are_refused_before_they_end(connect: Connect) -> None:
    client = connect()
    number = client.call("bulk-begin", job="load")["number"]
    for wrong, code in (
        (b"no stream", "invalid_argument"),
        (rows(1, -5), "invalid_message"),
        (other_columns(), "invalid_argument"),
    ):
        client.send(FrameKind.STAGE, 5, json.dumps({"number": number}).encode())
        client.send(FrameKind.PART, 5, wrong)
        with pytest.raises(RefusedError) as refusal:
            client.read(FrameKind.RESULT, 5)
        assert refusal.value.code == code
        client.send(FrameKind.PART, 5, rows(1, 5))  # was on its way
    with pytest.raises(RefusedError) as refusal:
        client.send(FrameKind.STAGE, 6, b'{"number": 999}')
        client.send(FrameKind.PART, 6, rows(1, int(time.time() * 1000) + 3_600_000))
        client.send(FrameKind.PART, 6)
        client.read(FrameKind.RESULT, 6)
    assert refusal.value.code in ("invalid_argument", "not_found")
    client.call("ping")


def test_a_client_that_leaves_while_its_rows_are_staged_leaves_no_files(connect: Connect, broker: Broker) -> None:
    client = connect()
    number = client.call("bulk-begin", job="load")["number"]
    client.send(FrameKind.STAGE, 5, json.dumps({"number": number}).encode())
    client.send(FrameKind.PART, 5, rows(1000, int(time.time() * 1000) + 3_600_000))
    client.call("ping")
    client.close()
    wait_until(lambda: not any(thread.name.startswith("staging") for thread in threading.enumerate()))
    assert not list((broker.config.data / "store").rglob("*.parquet"))
    other = connect()
    assert other.call("bulk-jobs", job="load")["jobs"][0]["rows"] == 0


def test_a_range_is_read_in_parts(connect: Connect) -> None:
    client = connect()
    for _ in range(5):
        client.schedule(topic=["a"] * 2, delay_ms=pa.array([3_600_000] * 2), body=[bytes(3 << 20)] * 2)
    end = client.call("intake-state")["durable_seq"]
    seqs: list[int] = []
    parts = 0
    while not seqs or seqs[-1] + 1 < end:
        ask = {"op": "intake", "start": seqs[-1] + 1 if seqs else 0, "end": end}
        part = pa.ipc.open_stream(client.ask(FrameKind.CALL, FrameKind.ROWS, json.dumps(ask).encode())).read_all()
        assert part.nbytes < 40 << 20
        seqs += part["seq"].to_pylist()
        parts += 1
    assert seqs == list(range(end))
    assert parts > 1


def test_what_is_behind_a_stream_is_not_lost_in_silence(connect: Connect) -> None:
    client = connect()
    stream = stream_of(pa.record_batch({"topic": ["a"], "delay_ms": [0], "body": [b"x"]}))
    with pytest.raises(RefusedError, match="what is behind it would not be read"):
        client.submit(stream + stream)
    client.submit(stream)


def test_what_half_a_frame_had_is_free_when_its_client_has_left(front: LinkFront) -> None:
    gc.collect()
    gc.disable()
    try:
        before = resident_bytes()
        for _ in range(4):
            with RawClient(front.address) as client:
                client.send_bytes(HEAD.pack(300 << 20, FrameKind.SUBMIT, 1))
                for _ in range(100):
                    client.send_bytes(bytes(1 << 20))
        with RawClient(front.address) as client:
            client.call("ping")
            wait_until(lambda: resident_bytes() < before + (250 << 20))
    finally:
        gc.enable()


def rows(count: int, due_ms: int) -> bytes:
    """Rows as a bulk job stages them."""

    given: dict[str, Any] = {"topic": ["orders"] * count, "due_ms": [due_ms] * count, "body": [b"x"] * count}
    columns = [pa.array(given.get(field.name, [None] * count), field.type) for field in UNNUMBERED]
    return stream_bytes(UNNUMBERED, [pa.RecordBatch.from_arrays(columns, schema=UNNUMBERED)])


def other_columns() -> bytes:

    batch = pa.record_batch({"topic": ["a"]})
    return stream_bytes(batch.schema, [batch])
