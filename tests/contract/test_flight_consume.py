"""DoExchange, spoken with bare pyarrow: delivery, settling, prefetch, garbage, and ends of all kinds."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.contract.conftest import Served
from tests.waiting import wait_until

from tarry.api import wire
from tarry.api.views import DELIVERY
from tarry.api.wire import StreamOp, decode_error, decode_notice, encode_settle
from tarry.base.errors import CorruptError, StaleLeaseError
from tarry.client import Client
from tarry.log.frame import HEADER_BYTES
from tarry.log.segment import segment_path


class Exchange:
    """One stream, used as any Flight client would."""

    def __init__(self, address: str, *, by_path: bool = False, raw: bytes | None = None, **command: Any) -> None:
        self.flight = fl.FlightClient(f"grpc://{address}")
        said = raw if raw is not None else json.dumps({"topic": "t", "group": "g", **command}).encode()
        if by_path:
            self.writer, self.reader = self.flight.do_exchange(fl.FlightDescriptor.for_path("consume"))
            self.writer.write_metadata(pa.py_buffer(said))
        else:
            self.writer, self.reader = self.flight.do_exchange(fl.FlightDescriptor.for_command(said))

    def batch(self) -> pa.RecordBatch:
        chunk = self.reader.read_chunk()
        assert chunk.data is not None, chunk.app_metadata.to_pybytes()
        return chunk.data

    def notice(self) -> wire.Notice:
        chunk = self.reader.read_chunk()
        assert chunk.data is None
        return decode_notice(chunk.app_metadata.to_pybytes())

    def settle(self, op: StreamOp, batch: pa.RecordBatch, argument: int = 0) -> wire.Notice:
        leases, offsets = (batch.column(name).to_numpy() for name in ("lease", "offset"))
        self.writer.write_metadata(pa.py_buffer(encode_settle(op, argument, leases, offsets)))
        return self.notice()

    def end(self) -> list[Any]:
        self.writer.done_writing()
        rest = [*iter(self._rest())]
        self.writer.close()
        return rest

    def _rest(self) -> Iterator[Any]:
        while True:
            try:
                yield self.reader.read_chunk()
            except StopIteration:
                return


def schedule(client: Client, count: int, topic: str = "t") -> None:
    client.schedule_many({"topic": topic, "body": b"%d" % i} for i in range(count))


def bodies(batch: pa.RecordBatch) -> list[bytes]:
    return list(batch.column("body").to_pylist())


@pytest.mark.parametrize("by_path", [False, True])
def test_deliver_and_ack(by_path: bool, served: Any, client: Client) -> None:
    exchange = Exchange(served.address, by_path=by_path)
    client.schedule("t", b"hello", properties={"a": "b"})
    batch = exchange.batch()
    assert batch.schema == DELIVERY
    [row] = batch.to_pylist()
    assert (row["topic"], row["body"], row["attempt"]) == ("t", b"hello", 1)
    notice = exchange.settle(StreamOp.ACK, batch)
    assert (notice.op, notice.number, notice.error) == (wire.SETTLED, 1, None)
    assert exchange.end() == []
    assert client.receive("t", group="g") == []


def test_prefetch_is_honoured(served: Any, client: Client) -> None:
    schedule(client, 10)
    exchange = Exchange(served.address, prefetch=4)
    got: list[bytes] = []
    while len(got) < 4:
        got += bodies(last := exchange.batch())
    assert len(got) == 4
    # Nothing more until one is settled; then as many as were settled.
    assert exchange.settle(StreamOp.EXTEND, last, 60_000).number == 1
    one = last.slice(0, 1)
    leases, offsets = one.column("lease").to_numpy(), one.column("offset").to_numpy()
    exchange.writer.write_metadata(pa.py_buffer(encode_settle(StreamOp.ACK, 0, leases, offsets)))
    chunks = [exchange.reader.read_chunk() for _ in range(2)]  # the notice and one message, in either order
    assert sorted(0 if chunk.data is None else chunk.data.num_rows for chunk in chunks) == [0, 1]
    exchange.end()


def test_nack_comes_again_and_says_which_try_it_is(served: Any, client: Client) -> None:
    schedule(client, 1)
    exchange = Exchange(served.address)
    batch = exchange.batch()
    raw = encode_settle(StreamOp.NACK, 0, batch.column("lease").to_numpy(), batch.column("offset").to_numpy())
    exchange.writer.write_metadata(pa.py_buffer(raw))
    chunks = [exchange.reader.read_chunk() for _ in range(2)]  # the notice and the message, in either order
    assert [c.data.column("attempt").to_pylist() for c in chunks if c.data is not None] == [[2]]
    exchange.end()


@pytest.mark.parametrize("end", ["done_writing", "close", "cancel"])
def test_what_is_held_goes_to_another_consumer_when_the_stream_ends(end: str, served: Any, client: Client) -> None:
    schedule(client, 5)
    first = Exchange(served.address)
    held = first.batch()
    while held.num_rows < 5:
        held = pa.concat_batches([held, first.batch()])
    second = Exchange(served.address)
    if end == "done_writing":
        first.end()
    elif end == "close":
        first.writer.write_metadata(pa.py_buffer(encode_settle(StreamOp.CLOSE, 0, *[np.empty(0, np.int64)] * 2)))
    else:
        first.reader.cancel()
    got: list[bytes] = []
    while len(got) < 5:
        got += bodies(second.batch())
    assert sorted(got) == sorted(bodies(held))
    for exchange in (first, second):
        if (exchange, end) != (first, "done_writing"):
            exchange.reader.cancel()


def test_what_was_acked_before_the_end_does_not_come_again(served: Any, client: Client) -> None:
    schedule(client, 2)
    first = Exchange(served.address, prefetch=2)
    batch = first.batch()
    while batch.num_rows < 2:
        batch = pa.concat_batches([batch, first.batch()])
    one = batch.slice(0, 1)
    raw = encode_settle(StreamOp.ACK, 0, one.column("lease").to_numpy(), one.column("offset").to_numpy())
    first.writer.write_metadata(pa.py_buffer(raw))
    rest = first.end()  # without waiting for the notice: it comes before the end
    assert [decode_notice(c.app_metadata.to_pybytes()).number for c in rest] == [1]
    second = Exchange(served.address)
    assert bodies(second.batch()) == bodies(batch.slice(1))
    second.end()


KILLED = """
import sys
from tarry.client import Client
for message in Client(sys.argv[1]).consume("t", group="g", lease="1h"):
    print(message.body.decode(), flush=True)
"""


def test_a_killed_consumers_messages_come_again_at_once(served: Any, client: Client) -> None:
    schedule(client, 3)
    killed = subprocess.Popen([sys.executable, "-c", KILLED, served.address], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    seen = [killed.stdout.readline().strip() for _ in range(3)]
    assert sorted(seen) == ["0", "1", "2"]
    assert client.receive("t", group="g") == []
    killed.kill()
    killed.wait()
    # The lease is an hour; what comes, comes because the connection broke.
    with client.consume("t", group="g", timeout=30) as consumer:
        got = []
        for message in consumer:
            got.append(message)
            if len(got) == 3:
                break
    assert sorted(m.body.decode() for m in got) == seen
    assert {m.attempt for m in got} == {2}


def test_garbage_is_answered_and_the_stream_goes_on(served: Any, client: Client) -> None:
    exchange = Exchange(served.address)
    for number, garbage in enumerate([b"\x00", b"garbage", b"\x07" + bytes(8), b"\x01" + bytes(9)], 1):
        exchange.writer.write_metadata(pa.py_buffer(garbage))
        notice = exchange.notice()
        assert notice.number == number
        assert notice.error is not None
        assert notice.error.code == "invalid_argument"
    schedule(client, 1)
    assert exchange.settle(StreamOp.ACK, exchange.batch()).error is None
    exchange.end()


def test_a_stale_ack_is_an_error_and_the_rest_is_settled(served: Any, client: Client) -> None:
    schedule(client, 1)
    exchange = Exchange(served.address)
    batch = exchange.batch()
    leases = np.append(batch.column("lease").to_numpy(), 1 << 60)
    offsets = np.append(batch.column("offset").to_numpy(), -1)
    exchange.writer.write_metadata(pa.py_buffer(encode_settle(StreamOp.ACK, 0, leases, offsets)))
    assert isinstance(exchange.notice().error, StaleLeaseError)
    exchange.end()
    assert client.receive("t", group="g") == []


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"garbage", "invalid_argument"),
        (b"", "invalid_argument"),
        (b"[]", "invalid_argument"),
        (b'{"topic": "t"}', "invalid_argument"),
        (b'{"topic": "t", "group": "g", "op": "produce"}', "invalid_argument"),
        (b'{"topic": "t t", "group": "g"}', "invalid_message"),
        (b'{"topic": "t", "group": ""}', "invalid_argument"),
        (b'{"topic": "t", "group": "g", "prefetch": 0}', "invalid_argument"),
    ],
)
@pytest.mark.parametrize("by_path", [False, True])
def test_a_bad_command_ends_the_call_with_a_code(raw: bytes, code: str, by_path: bool, served: Any) -> None:
    exchange = Exchange(served.address, by_path=by_path, raw=raw)
    with pytest.raises(fl.FlightServerError) as caught:
        exchange.reader.read_chunk()
    assert decode_error(caught.value.extra_info).code == code
    # The connection serves on.
    assert len(list(exchange.flight.do_action("ping"))) == 1


def test_a_stopping_front_says_goodbye(served: Any, client: Client) -> None:
    schedule(client, 1)
    exchange = Exchange(served.address)
    batch = exchange.batch()
    stopping = threading.Thread(target=served.front.stop, args=(60,))
    stopping.start()
    assert exchange.notice().op is wire.GOODBYE
    assert exchange.settle(StreamOp.ACK, batch).error is None  # there is still time for that
    exchange.end()
    stopping.join(60)
    assert not stopping.is_alive()


def test_a_silent_consumer_is_told_that_the_broker_is_there(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.fronts.flight.receiving.ALIVE_S", 0.02)
    exchange = Exchange(served.address)
    assert [exchange.notice().op for _ in range(3)] == [StreamOp.ALIVE] * 3
    exchange.end()


def test_stopping_cuts_a_consumer_that_does_not_react(served: Any) -> None:
    exchange = Exchange(served.address)
    exchange.writer.write_metadata(pa.py_buffer(b"?"))  # so that the stream is there
    exchange.notice()
    served.front.stop(grace_s=0.1)
    assert exchange.notice().op is wire.GOODBYE
    with pytest.raises(fl.FlightUnavailableError):
        exchange.reader.read_chunk()


def test_a_damaged_frame_ends_consuming_with_its_place_when_what_lies_before_is_settled(tmp_path: Path) -> None:
    served = Served(tmp_path / "data", ready_cache_bytes_max=0, segment_bytes_max=4096)
    try:
        with Client(served.address) as client:
            for number in range(12):
                client.schedule("t", b"%d" % number * 500)
                wait_until(lambda number=number: served.broker.components.ready.topic("t").written == number + 1)
            ready = served.broker.components.ready
            entry = ready.frames_in(0)[1]
            path = segment_path(served.config.data / "ready", 0)
            with path.open("r+b") as file:
                file.seek(entry.position + HEADER_BYTES)
                file.write(b"\xff" * 8)
            received = []
            with (
                client.consume("t", group="g", timeout=60) as consumer,
                pytest.raises(CorruptError, match=f"{path} at offset {entry.position}"),
            ):
                for message in consumer:
                    received.append(message.body)
                    message.ack()
            assert received == [b"%d" % number * 500 for number in range(entry.offset)]
            assert client.group_info("t", "g").lag == 12 - len(received), "and those are settled"
            with pytest.raises(CorruptError, match=str(path)):
                client.receive("t", group="g")
            client.schedule("u", b"other")
            [other] = client.receive("u", group="g", wait=60)
            assert other.body == b"other"
    finally:
        served.stop()
