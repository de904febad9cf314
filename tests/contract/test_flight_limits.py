"""What one peer may take of the Flight front: connections, calls, memory for messages; and the calls there are not."""

from __future__ import annotations

import json
import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.contract.conftest import Served
from tests.loopgrpc.wire import call as call_of
from tests.waiting import wait_until

from loopgrpc import UnreadBytes
from loopgrpc.frames import DATA, frame
from tarry.api.wire import decode_error
from tarry.base.descriptors import ConnectionLimits
from tarry.base.errors import MessageTooLargeError, OverloadedError, TarryError, UnavailableError
from tarry.client import Client
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.flight.settings import FlightSettings
from tarry.fronts.kit.loop_thread import THREADS
from tarry.testing import TestBroker, open_broker

SERVICE = "/arrow.flight.protocol.FlightService/"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with open_broker(tmp_path) as broker:
        yield broker


def allow(monkeypatch: pytest.MonkeyPatch, calls_max: int) -> None:
    monkeypatch.setattr(FlightSettings, "of", lambda _: FlightSettings(flight_calls_max=calls_max))


class Raw:
    """A gRPC channel of its own, with calls of bytes."""

    def __init__(self, front: FlightFront) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]  # windows do not grow
        self.channel = grpc.insecure_channel(front.address, options)
        self._end = threading.Event()

    def open_silent(self) -> Any:
        """A DoPut that sends nothing until :meth:`close`."""

        def nothing() -> Iterator[bytes]:
            self._end.wait()
            yield from ()

        return self.channel.stream_stream(SERVICE + "DoPut")(nothing())

    def receive(self, **options: Any) -> Any:
        """A long poll, whose answer is not read."""
        asked = {"op": "receive", "topic": "t", "group": "g", **options}
        return self.channel.unary_stream(SERVICE + "DoGet")(fl.Ticket(json.dumps(asked).encode()).serialize())

    def refusal(self, call: Any) -> grpc.RpcError:
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        return caught.value

    def close(self) -> None:
        self._end.set()
        self.channel.close()


def test_calls_are_bounded_for_a_peer_and_in_all_and_come_back(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, 8)
    with FlightFront.start(broker, "127.0.0.1:0") as front, ExitStack() as stack:
        raw = Raw(front)
        stack.callback(raw.close)
        receives = [raw.receive(topic=f"t{n}", wait_ms=600_000) for n in range(4)]
        wait_until(lambda: all(broker.groups(f"t{n}") for n in range(4)))
        flight = stack.enter_context(fl.connect(f"grpc://{front.address}"))
        with pytest.raises(fl.FlightServerError, match=r"open calls of 127\.0\.0\.1 would take 5"):
            list(flight.do_action(fl.Action("ping", b"")))
        with Client(front.address) as client:
            assert client.status()["state"] == "serving", "a client of the link makes no call"
        for receive in receives:
            receive.cancel()
        wait_until(lambda: is_answered(flight))


def is_answered(flight: fl.FlightClient) -> bool:
    try:
        return bool(list(flight.do_action(fl.Action("ping", b""))))
    except fl.FlightServerError:
        return False


def details_of(error: grpc.RpcError) -> TarryError:
    [details] = [v for k, v in error.trailing_metadata() if k == "grpc-status-details-bin"]
    return decode_error(details)


def test_streams_that_send_nothing_are_bounded_and_keep_no_one_else_out(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, 20)
    with FlightFront.start(broker, "127.0.0.1:0") as front:
        raw = Raw(front)
        calls = [raw.open_silent() for _ in range(30)]
        for call in calls[-5:]:
            error = details_of(raw.refusal(call))
            assert isinstance(error, OverloadedError)
            assert str(error) == "open calls of 127.0.0.1 would take 11 places; allowed: 10 of one address"
        own = [thread.name for thread in threading.enumerate() if thread.name.startswith("tarry-flight")]
        assert len(own) <= 1 + THREADS, "none of them has a thread"
        with socket.create_connection(("127.0.0.1", front.port), 60, source_address=("127.0.0.2", 0)) as other:
            other.sendall(PREFACE + call_of(1, b"", path=SERVICE + "ListActions"))
            answer = b""
            while b"settle messages for good" not in answer:
                answer += other.recv(65536)
        raw.close()


def test_streams_that_send_nothing_for_long_are_ended(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.fronts.flight.service.FIRST_S", 0.1)
    with FlightFront.start(broker, "127.0.0.1:0") as front, Client(front.address) as client:
        raw = Raw(front)
        for call in [raw.open_silent() for _ in range(4)]:
            assert "has said nothing for 0.1 s" in str(raw.refusal(call).details())
        assert client.status()["state"] == "serving"
        raw.close()


def test_connections_of_a_peer_are_bounded(broker: TestBroker) -> None:
    limits = ConnectionLimits(in_all=6, per_peer=3)
    with FlightFront.start(broker, "127.0.0.1:0", connections=limits) as front, ExitStack() as stack:

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", front.port), timeout=60))

        silent = [connect() for _ in range(20)]
        speaking = []
        for _ in range(3):
            speaking.append(connect())
            speaking[-1].sendall(PREFACE)
            assert speaking[-1].recv(1)
        for connection in silent:
            assert not read_all(connection).startswith(b"HTTP"), "who says nothing makes room"
        refused = [connect() for _ in range(2)]
        for connection in refused:
            connection.sendall(PREFACE)
            answer = read_all(connection)
            assert b"overloaded: too many connections of 127.0.0.1; allowed: 3; try again later" in answer
        for connection in speaking:
            connection.close()
        with Client(front.address) as client:
            wait_until(lambda: is_served(client))


def is_served(client: Client) -> bool:
    try:
        return client.status()["state"] == "serving"
    except UnavailableError:  # the others' ends have not been seen yet
        return False


def read_all(connection: socket.socket) -> bytes:
    content = b""
    try:
        while part := connection.recv(65536):
            content += part
    except OSError:
        pass
    return content


def test_a_message_that_is_too_large_is_refused_with_a_code(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.fronts.flight.front.MESSAGE_BYTES_MAX", 1 << 20)
    rows = pa.record_batch({"topic": ["t"], "body": [bytes(2 << 20)], "delay_ms": [0]})
    with FlightFront.start(broker, "127.0.0.1:0") as front, fl.connect(f"grpc://{front.address}") as client:
        writer, reader = client.do_put(fl.FlightDescriptor.for_path("schedule"), rows.schema)
        with pytest.raises(fl.FlightError, match=r"a message of \d+ bytes; at most 1048576") as caught:
            while True:
                writer.write_batch(rows)
                reader.read()
        assert type(decode_error(caught.value.extra_info)) is MessageTooLargeError
        assert len(list(client.do_action("ping"))) == 1


def send_half(connection: socket.socket, size: int) -> None:
    """Begin a message of many megabytes, and send ``size`` bytes of it."""
    sent = (64 << 20).to_bytes(5, "big") + bytes(size)
    parts = [sent[at : at + 16_384] for at in range(0, len(sent), 16_384)]
    begin = call_of(1, None, path=SERVICE + "DoPut")
    connection.sendall(PREFACE + begin + b"".join(frame(DATA, 0, 1, part) for part in parts))


def test_messages_that_are_not_whole_share_a_bound(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.fronts.flight.front.MESSAGE_BYTES_MAX", 64 << 20)
    monkeypatch.setattr("tarry.fronts.flight.front.HALF_BYTES_MAX", 2 << 20)
    with FlightFront.start(broker, "127.0.0.1:0") as front, ExitStack() as stack:
        first, second = (stack.enter_context(socket.create_connection(("127.0.0.1", front.port), 60)) for _ in range(2))
        send_half(first, 700_000)
        wait_until(lambda: front._grpc.budget.held > 700_000)  # noqa: SLF001
        send_half(second, 700_000)
        answer = b""
        while b"x-arrow-status-message-bin" not in answer:
            answer += second.recv(65536)
        assert b"allowed: 1048576 of one address" in answer, "it has half of what all may have"
        assert b64encode(b'{"code":"message_too_large"')[:-4] in answer
        with Client(front.address) as client:
            assert client.status()["state"] == "serving"


def one_answer(name: str) -> Callable[[grpc.Channel], Any]:
    # To call it as one with many answers is the same on the wire.
    return lambda channel: channel.unary_stream(SERVICE + name)(b"\x08\x01\x1a\x01a")


@pytest.mark.parametrize(
    "begin",
    [
        one_answer("GetFlightInfo"),
        one_answer("GetSchema"),
        one_answer("PollFlightInfo"),
        lambda channel: channel.unary_stream(SERVICE + "ListFlights")(b""),
        lambda channel: channel.stream_stream(SERVICE + "DoExchange")(iter([b"", b"no message of Flight"])),
    ],
    ids=["GetFlightInfo", "GetSchema", "PollFlightInfo", "ListFlights", "DoExchange"],
)
def test_calls_that_there_are_not_are_unimplemented_without_a_traceback(
    broker: TestBroker, begin: Callable[[grpc.Channel], Any]
) -> None:
    with FlightFront.start(broker, "127.0.0.1:0") as front:
        raw = Raw(front)
        error = raw.refusal(begin(raw.channel))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        assert "allowed: DoPut, DoGet (op 'receive' for messages), DoAction, ListActions" in str(error.details())
        assert "Traceback" not in str(error.details())
        assert "Traceback" not in str(error.trailing_metadata())
        raw.close()


def consume(client: fl.FlightClient) -> None:
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(b'{"topic": "t", "group": "g"}'))
    with writer:
        reader.read_chunk()


@pytest.mark.parametrize("call", [consume, lambda client: list(client.list_flights())], ids=["exchange", "flights"])
def test_the_client_of_pyarrow_is_told_the_same(broker: TestBroker, call: Callable[[fl.FlightClient], None]) -> None:
    with FlightFront.start(broker, "127.0.0.1:0") as front, fl.connect(f"grpc://{front.address}") as client:
        with pytest.raises(NotImplementedError, match="Tarry has neither flights nor DoExchange; allowed: DoPut"):
            call(client)
        assert broker.groups("t") == []
        assert len(list(client.do_action("ping"))) == 1


def test_streams_that_do_not_read_share_a_bound() -> None:
    unread = UnreadBytes(100)
    assert unread.take("a", 40, 0)
    with unread.sending("a", 10):
        assert not unread.take("a", 1, 0), "one address has half"
        assert unread.take("b", 50, 0)
        assert not unread.take("b", 1, 0)
    assert unread.take("a", 10, 0)
    assert unread.take("c", 200, 0), "who has nothing never waits"
    unread.add("c", -200)
    unread.add("a", -50)
    assert not unread.take("b", 1, 0)


def test_receives_that_nobody_reads_are_refused_then_cut(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    unread = served.front._unread  # noqa: SLF001 - a small bound
    monkeypatch.setattr(unread, "_bytes_max", 64 << 20)
    rows = {"topic": ["t"] * 100, "body": [bytes(100_000)] * 100, "delay_ms": [0] * 100}
    with Client(served.address) as client, ExitStack() as stack:
        client.set_group("t", "g", tries=3)
        for _ in range(4):
            client.schedule_batch(pa.table(rows))

        def ask() -> Any:
            raw = Raw(served.front)
            stack.callback(raw.close)
            # Of an answer that nobody asks for, its client takes no more than a window.
            return raw.receive(max_messages=100, wait_ms=10_000, lease_ms=600_000)

        silent = []
        for count in (100, 200):
            silent.append(ask())
            wait_until(lambda count=count: served.broker.group_info("t", "g").leased == count)
            # A window of each is taken, and lies with the client.
            wait_until(lambda count=count: (count - 20) * 100_000 <= unread.held < (count + 50) * 100_000)
        with pytest.raises(grpc.RpcError) as refused:
            list(ask())
        [details] = [v for k, v in refused.value.trailing_metadata() if k == "grpc-status-details-bin"]
        error = decode_error(details)
        assert isinstance(error, OverloadedError)
        assert error.retryable
        assert f"allowed before the next: {16 << 20} of one address" in str(error)
        assert served.broker.group_info("t", "g").leased == 200
        # A look comes each second, and finds that nothing more was taken.
        object.__setattr__(served.front._grpc.limits, "stall_s", 0.1)  # noqa: SLF001
        wait_until(lambda: unread.held == 0)
        wait_until(lambda: served.broker.group_info("t", "g").leased == 0)
        assert client.receive("t", group="g", max_messages=1)
        assert all(not call.is_active() for call in silent)
