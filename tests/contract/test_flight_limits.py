"""What one peer may take of the Flight front: connections, calls, memory for messages; and the calls there are not."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.contract.conftest import Served
from tests.contract.test_flight_consume import Exchange
from tests.waiting import wait_until

from loopgrpc import UnreadBytes
from tarry.api.wire import decode_error
from tarry.base.descriptors import ConnectionLimits
from tarry.base.errors import OverloadedError, UnavailableError
from tarry.client import Client
from tarry.fronts.flight.calls import CallLimits
from tarry.fronts.flight.front import FlightFront
from tarry.fronts.flight.guard import ConnectionGuard
from tarry.testing import TestBroker, open_broker

SERVICE = "/arrow.flight.protocol.FlightService/"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with open_broker(tmp_path) as broker:
        yield broker


class Raw:
    """A gRPC channel of its own, with calls of bytes."""

    def __init__(self, front: FlightFront) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]  # windows do not grow
        self.channel = grpc.insecure_channel(front.address, options)
        self._end = threading.Event()

    def open_silent(self) -> Any:
        """A DoExchange that sends nothing until :meth:`close`."""

        def nothing() -> Iterator[bytes]:
            self._end.wait()
            yield from ()

        return self.channel.stream_stream(SERVICE + "DoExchange")(nothing())

    def refusal(self, call: Any) -> grpc.RpcError:
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        return caught.value

    def close(self) -> None:
        self._end.set()
        self.channel.close()


def test_calls_are_bounded_for_a_peer_and_in_all_and_come_back(broker: TestBroker) -> None:
    with FlightFront.start(broker, "127.0.0.1:0", calls_max=8) as front, ExitStack() as stack:
        consumers = [stack.enter_context(Client(front.address)).consume(f"t{n}", group="g") for n in range(4)]
        with ThreadPoolExecutor(4) as pool:
            readers = [pool.submit(list, consumer) for consumer in consumers]
            wait_until(lambda: all(broker.groups(f"t{n}") for n in range(4)))
            with Client(front.address) as client:
                with pytest.raises(OverloadedError, match=r"4 calls of ipv4:127\.0\.0\.1 are open; allowed: 4"):
                    client.status()
                for consumer in consumers:
                    consumer.close()
                for reader in readers:
                    reader.result()
                assert client.status()["state"] == "serving"


def test_streams_that_send_nothing_are_bounded_and_keep_no_one_out(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = partial(ConnectionGuard, silent_s=3600)  # on a slow machine, too, they are refused and not ended
    monkeypatch.setattr("tarry.fronts.flight.front.ConnectionGuard", patient)
    with FlightFront.start(broker, "127.0.0.1:0", calls_max=20) as front, Client(front.address) as client:
        raw = Raw(front)
        before = threading.active_count()
        calls = [raw.open_silent() for _ in range(30)]
        errors = [raw.refusal(call) for call in calls[-5:]]
        assert {str(error.details()) for error in errors} == {
            "10 open streams have sent nothing yet; allowed: 10; try again later. Detail: Failed"
        }
        [details] = [v for k, v in errors[0].trailing_metadata() if k == "grpc-status-details-bin"]
        assert decode_error(details).code == "overloaded"
        assert client.status()["state"] == "serving"
        assert threading.active_count() < before + 60
        raw.close()


def test_streams_that_send_nothing_for_long_are_ended_with_their_connection(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.fronts.flight.front.ConnectionGuard", partial(ConnectionGuard, silent_s=0.1))
    with FlightFront.start(broker, "127.0.0.1:0", calls_max=8) as front, Client(front.address) as client:
        raw = Raw(front)
        calls = [raw.open_silent() for _ in range(4)]
        for call in calls:
            assert "overloaded: too many streams that sent nothing" in str(raw.refusal(call).details())
        raw.close()
        wait_until(lambda: _schedules(client))


def _schedules(client: Client) -> bool:
    try:
        client.schedule("t", b"x")
    except (OverloadedError, UnavailableError):  # its connection may have been ended, too: it had no call
        return False
    return True


def test_connections_of_a_peer_are_bounded(broker: TestBroker) -> None:
    limits = ConnectionLimits(in_all=6, per_peer=3)
    with FlightFront.start(broker, "127.0.0.1:0", connections=limits) as front, ExitStack() as stack:
        host, port = front.address.split(":")
        silent = [stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(20)]
        speaking = [stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(5)]
        for connection in speaking:
            connection.sendall(PREFACE)
        with ThreadPoolExecutor(25) as pool:
            endings = [pool.submit(read_all, connection) for connection in [*silent, *speaking]]
            wait_until(lambda: sum(ending.done() for ending in endings) == 22)
            for connection in speaking:  # three of them are there
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            answers = [ending.result() for ending in endings]
        refusal = b"overloaded: more than 3 connections of 127.0.0.1; try again later"
        assert sum(refusal in answer for answer in answers) == 2
        with Client(front.address) as client:
            assert client.status()["state"] == "serving"


def read_all(connection: socket.socket) -> bytes:
    content = b""
    try:
        while part := connection.recv(65536):
            content += part
    except OSError:
        pass
    return content


class Listener:
    """A server that reads nothing, as gRPC looks to the guard while a message comes: bytes arrive, no handler gets
    one. A thread reads and drops them.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = self.listening.getsockname()[1]
        self._stack = stack

    def connect(self) -> tuple[socket.socket, socket.socket]:
        client = self._stack.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=60))
        server = self._stack.enter_context(self.listening.accept()[0])
        threading.Thread(target=read_all, args=[server], daemon=True).start()
        return client, server


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def guarded(stack: ExitStack, **limits: Any) -> tuple[Listener, ConnectionGuard]:
    listener = Listener(stack)
    guard = ConnectionGuard(ConnectionLimits(), CallLimits(10), **limits)
    guard.start(listener.port)
    stack.callback(guard.stop)
    return listener, guard


def send_until_cut(client: socket.socket) -> None:
    with suppress(OSError):
        while True:
            client.sendall(bytes(1 << 16))


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0"])
def test_a_handler_s_peer_is_the_one_that_the_guard_sees(
    broker: TestBroker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    guards: list[ConnectionGuard] = []
    start = ConnectionGuard.start
    monkeypatch.setattr(ConnectionGuard, "start", lambda self, port: (guards.append(self), start(self, port))[1])
    with FlightFront.start(broker, address) as front, Client(front.address) as client:
        [guard] = guards
        for _ in range(2):
            client.schedule("t", b"x" * 100_000)
            looks = guard.looks
            wait_until(lambda looks=looks: guard.looks > looks)
        assert 0 <= guard.waiting_bytes < 100_000


def goaway_text(content: bytes) -> str:
    length, kind = struct.unpack(">I", content[:4])[0] >> 8, content[3]
    assert kind == 7
    return content[17 : 9 + length].decode()


def test_a_message_that_grows_without_end_is_refused_with_a_reason(stack: ExitStack) -> None:
    listener, _ = guarded(stack, peer_bytes_max=1 << 20)
    client, _ = listener.connect()
    send_until_cut(client)
    assert goaway_text(read_all(client)).startswith("message_too_large: ")


@pytest.mark.rest
def test_a_peer_whose_messages_arrive_may_send_as_much_as_it_likes(stack: ExitStack) -> None:
    listener, guard = guarded(stack, peer_bytes_max=1 << 20)
    client, _ = listener.connect()
    peer = "ipv4:{}:{}".format(*client.getsockname())
    for _ in range(3):
        client.sendall(bytes(600_000))
        looks = guard.looks
        guard.on_message(peer)
        wait_until(lambda looks=looks: guard.looks > looks)
    send_until_cut(client)


def test_of_all_that_send_at_once_the_one_with_most_is_refused(stack: ExitStack) -> None:
    listener, _ = guarded(stack, peer_bytes_max=1 << 20, bytes_max=1 << 20)
    small, server = listener.connect()
    small.sendall(bytes(600_000))
    large, _ = listener.connect()
    large.sendall(bytes(700_000))
    assert goaway_text(read_all(large)).startswith("message_too_large: 700000 bytes")
    assert server.fileno() >= 0
    small.sendall(bytes(1000))


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
    ],
    ids=["GetFlightInfo", "GetSchema", "PollFlightInfo", "ListFlights"],
)
def test_calls_that_there_are_not_are_unimplemented_without_a_traceback(
    broker: TestBroker, begin: Callable[[grpc.Channel], Any]
) -> None:
    with FlightFront.start(broker, "127.0.0.1:0") as front:
        raw = Raw(front)
        error = raw.refusal(begin(raw.channel))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        assert "Traceback" not in str(error.details())
        assert "Traceback" not in str(error.trailing_metadata())
        raw.close()


def test_the_client_of_pyarrow_is_told_the_same(broker: TestBroker) -> None:
    with (
        FlightFront.start(broker, "127.0.0.1:0") as front,
        fl.connect(f"grpc://{front.address}") as client,
        pytest.raises(NotImplementedError, match="Tarry has no flights; allowed: DoPut"),
    ):
        list(client.list_flights())


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


def test_who_reads_is_served_beside_streams_that_do_not(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.front._service._unread, "_bytes_max", 64 << 20)  # noqa: SLF001 - a small bound
    with Client(served.address) as client:
        for _ in range(4):
            rows = {"topic": ["t"] * 100, "body": [bytes(100_000)] * 100, "delay_ms": [0] * 100}
            client.schedule_batch(pa.table(rows))
        group = served.broker.subscribe("t", "probe").group
        wait_until(
            lambda: group.queue_ends[1] == 400
        )  # who waits before there is anything gets the first of it unasked
        silent = [Exchange(served.address, group=f"g{number}") for number in range(6)]
        held = served.front._service._unread  # noqa: SLF001
        groups = [f"g{number}" for number in range(6)]
        wait_until(lambda: all(served.broker.group_info("t", group).leased for group in groups))
        assert held._held <= 40 << 20, "those that came later have a message each"  # noqa: SLF001
        for exchange in silent:
            assert exchange.batch().num_rows


def test_receives_that_nobody_reads_are_refused_then_cut(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    unread = served.front._service._unread  # noqa: SLF001 - a small bound
    monkeypatch.setattr(unread, "_bytes_max", 64 << 20)
    receive = {"op": "receive", "topic": "t", "group": "g", "max_messages": 100, "wait_ms": 10_000, "lease_ms": 600_000}
    ticket = fl.Ticket(json.dumps(receive).encode()).serialize()
    rows = {"topic": ["t"] * 100, "body": [bytes(100_000)] * 100, "delay_ms": [0] * 100}
    with Client(served.address) as client, ExitStack() as stack:
        client.set_group("t", "g", tries=3)
        for _ in range(4):
            client.schedule_batch(pa.table(rows))

        def ask() -> Any:
            raw = Raw(served.front)
            stack.callback(raw.close)
            # Of an answer that nobody asks for, its client takes no more than a window.
            return raw.channel.unary_stream(SERVICE + "DoGet")(ticket)

        silent = []
        for count in (100, 200):
            silent.append(ask())
            wait_until(lambda count=count: served.broker.group_info("t", "g").leased == count)
            wait_until(lambda count=count: count * 100_000 <= unread.held < (count + 50) * 100_000)
        with pytest.raises(grpc.RpcError) as refused:
            list(ask())
        [details] = [v for k, v in refused.value.trailing_metadata() if k == "grpc-status-details-bin"]
        error = decode_error(details)
        assert isinstance(error, OverloadedError)
        assert error.retryable
        assert f"allowed before the next: {16 << 20} of one address" in str(error)
        assert served.broker.group_info("t", "g").leased == 200
        # A look comes each second, and finds that nothing more was taken.
        monkeypatch.setattr(served.front._guard, "_stalled_s", 0.1)  # noqa: SLF001
        wait_until(lambda: unread.held == 0)
        wait_until(lambda: served.broker.group_info("t", "g").leased == 0)
        assert client.receive("t", group="g", max_messages=1)
        assert all(not call.is_active() for call in silent)
