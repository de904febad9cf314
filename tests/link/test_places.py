"""A broker with several addresses, of which its owner has one open: clients find it by connecting."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from loopgrpc import UnreadBytes
from tarry.api.operations import ListConsumers, ListGroups, Ping
from tarry.api.wire import encode_error
from tarry.base.config import Config
from tarry.base.endpoint import are_sockets, split_addresses
from tarry.base.errors import (
    ClosedError,
    InvalidArgumentError,
    OwnershipLostError,
    TarryError,
    UnauthenticatedError,
    UnavailableError,
)
from tarry.broker import Broker
from tarry.cli.exits import ExitCode
from tarry.cli.main import run
from tarry.client import AsyncClient, Client
from tarry.client import connection as connections
from tarry.fronts.link.front import LinkFront
from tarry.link import blocking, places
from tarry.link.frames import FrameKind, encode_batch, error_frame, frame, numbered
from tarry.link.places import FIND_S, BrokerPlaces, NoAnswerError
from tarry.link.tls import ClientTls
from tarry.spark.broker_client import BrokerClient
from tests.link.raw_client import read_frame
from tests.waiting import TIMEOUT_S, wait_until

T = TypeVar("T")

SHORT_S = 0.3


@contextmanager
def standing_still() -> Iterator[str]:
    """The address of one that accepts, and never greets."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


class Machines:
    """Two addresses of one directory; a broker is at one of them at a time."""

    def __init__(self, data: Path, ports: tuple[int, int]) -> None:
        self._config = Config(data=data, pipeline="off", lease_ms=20_000, disk_free_bytes_min=0)
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self.list = ",".join(self.addresses)
        self.at: int | None = None
        self._stack = ExitStack()

    def begin(self, at: int) -> None:
        """Serve at one of the addresses."""
        self.broker = self._stack.enter_context(Broker.open(self._config))
        self.front = LinkFront.start(self.broker, self.addresses[at], unread=UnreadBytes(64 << 20))
        self._stack.callback(self.front.stop, 0.0)
        self.at = at

    def end(self) -> None:
        """Stop, with whoever is connected."""
        self._stack.close()
        self.at = None

    def has_group(self, topic: str, group: str) -> bool:
        """Whether somebody has asked for messages of a group."""
        return any((each.topic, each.group) == (topic, group) for each in self.broker.call(ListGroups()))

    def has_consumer(self, topic: str, group: str) -> bool:
        """Whether somebody consumes for a group."""
        return self.has_group(topic, group) and bool(self.broker.call(ListConsumers(topic, group)))

    def move(self) -> None:
        """Go on at the other address."""
        before = self.at
        self.end()
        self.begin(1 - (before or 0))


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = one.getsockname()[1], other.getsockname()[1]
    machines = Machines(tmp_path / "data", ports)
    machines.begin(0)
    yield machines
    machines.end()


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls wait for an owner for a moment."""
    for module in (places, connections, blocking):
        monkeypatch.setattr(module, "FIND_S", SHORT_S)


def test_calls_find_the_owner_and_find_it_again(machines: Machines) -> None:
    with Client(machines.list) as client:
        first = client.schedule("t", b"1", delay=3600)
        assert client.places.in_turn()[0].text == machines.addresses[0]
        machines.move()
        wait_until(lambda: served(client))
        assert client.cancel(first.handle) == "done"
        assert [each.text for each in client.places.in_turn()] == machines.addresses[::-1], "the last first"
        machines.move()
        wait_until(lambda: served(client))
        assert client.places.in_turn()[0].text == machines.addresses[0]


def served(client: Client) -> bool:
    try:
        return bool(client.status()["state"] == "serving")
    except UnavailableError:  # of a call under way when the broker ended
        return False


def test_a_call_waits_for_an_owner(machines: Machines) -> None:
    machines.end()
    with Client(machines.list) as client:
        tried = threading.Event()
        told: list[object] = []
        note = client.places.in_turn

        def in_turn() -> object:
            told.append(None)
            if len(told) == 3:
                tried.set()
            return note()

        client.places.in_turn = in_turn  # type: ignore[method-assign, assignment]

        def begin() -> None:
            assert tried.wait(60)
            machines.begin(1)

        beginning = threading.Thread(target=begin)
        beginning.start()
        assert client.schedule("t", b"x", delay=0).id, "found in a later turn of tries"
        beginning.join()


def test_all_down(machines: Machines, briefly: None) -> None:
    machines.end()
    one, other = machines.addresses
    text = f"no answer from a broker at {one}: Connection refused; {other}: Connection refused; nothing was sent"
    with Client(machines.list) as client:
        with pytest.raises(UnavailableError) as refused:
            client.status()
        assert str(refused.value) == text
        assert refused.value.nothing_sent
        with pytest.raises(UnavailableError) as refused:
            client.schedule("t", b"x", delay=0)
        assert str(refused.value) == text
        with client.consume("t", group="g", timeout=SHORT_S) as consumer, pytest.raises(UnavailableError):
            next(iter(consumer))


def test_one_that_accepts_and_never_greets(machines: Machines, briefly: None) -> None:
    with standing_still() as silent, Client(f"{silent},{machines.addresses[0]}") as client:
        assert client.status()["state"] == "serving"
        assert client.places.in_turn()[0].text == machines.addresses[0]
    with (
        standing_still() as silent,
        Client(f"{silent},{machines.addresses[1]}") as client,
        pytest.raises(UnavailableError, match=f"{silent}: no (greeting within 0.15 s|answer yet)"),
    ):
        client.status()


def test_questions_of_threads_find_the_owner_too(machines: Machines, briefly: None) -> None:
    with standing_still() as silent:
        link = blocking.BlockingLink(f"{silent},{machines.list}")
        assert link.greet()["version"] == 1
        assert link.stay().text == link.address == machines.addresses[0]
        link.close()
        machines.end()
        link = blocking.BlockingLink(f"{silent},{machines.list}")
        with pytest.raises(UnavailableError) as refused:
            link.greet()
    one, other = machines.addresses
    assert f"{silent}: timed out; {one}: Connection refused; {other}: Connection refused" in str(refused.value)


def test_commands_and_spark_take_a_list(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machines.move()  # the first address is closed
    with BrokerClient(machines.list) as client:
        assert client.state().durable_seq == 0
    assert run(["pending", "--endpoint", machines.list]) == ExitCode.OK
    monkeypatch.setenv("TARRY_ENDPOINT", machines.list)
    assert run(["pending"]) == ExitCode.OK
    capsys.readouterr()
    assert run(["pending", "--endpoint", "a:1,b"]) == ExitCode.USAGE
    assert "address 'b'; allowed: HOST:PORT" in capsys.readouterr().err


def test_what_is_wrong_here_is_told_at_once(machines: Machines) -> None:
    machines.broker.set_identity("admin", ["admin"])
    machines.broker.add_credential("admin")
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.setblocking(False)
        addresses = f"{machines.addresses[0]},127.0.0.1:{other.getsockname()[1]}"
        with Client(addresses, token="tarry_wrong") as client, pytest.raises(UnauthenticatedError):
            client.status()
        with pytest.raises(UnauthenticatedError):
            blocking.BlockingLink(addresses).greet()
        with pytest.raises(BlockingIOError):  # nobody came
            other.accept()


def test_tls_that_fails_is_told_at_once(machines: Machines) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("127.0.0.1", 0)) as third:
        third.setblocking(False)

        def answer() -> None:
            for _ in range(2):
                connection, _ = other.accept()
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    connection.recv(1 << 16)

        answering = threading.Thread(target=answer)
        answering.start()
        addresses = ",".join(f"tls://127.0.0.1:{each.getsockname()[1]}" for each in (other, third))
        with Client(addresses) as client, pytest.raises(UnavailableError, match="the port does not speak TLS"):
            client.status()
        with pytest.raises(UnavailableError, match="the port does not speak TLS"):
            blocking.BlockingLink(addresses).greet()
        answering.join()
        with pytest.raises(BlockingIOError):
            third.accept()


def test_a_broker_that_does_not_serve_is_passed_over(machines: Machines) -> None:
    with refusing(OwnershipLostError("another one's")) as lost, refusing(ClosedError("closed")) as closed:
        addresses = f"{lost},{closed},{machines.addresses[0]}"
        with Client(addresses) as client:
            assert client.status()["state"] == "serving"
        link = blocking.BlockingLink(addresses)
        assert link.greet()["version"] == 1
        link.close()


@contextmanager
def refusing(error: TarryError) -> Iterator[str]:
    """The address of a broker that refuses whoever greets it."""
    with playing(lambda connection: connection.sendall(b"".join(error_frame(0, error)))) as address:
        yield address


@contextmanager
def playing(play: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of one that plays this for each connection, when it has got HELLO."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listening.accept()
            with connection:
                if not connection.recv(1 << 16):
                    return
                play(connection)

    serving = threading.Thread(target=serve)
    serving.start()
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    yield address
    with socket.create_connection(listening.getsockname()):
        pass
    serving.join()
    listening.close()


def test_a_call_that_the_owner_cannot_carry_out_any_more(machines: Machines) -> None:
    """Its broker is about to stop: the link counts as lost, and the next call goes to who owns the logs now."""

    def play(connection: socket.socket) -> None:
        connection.sendall(b"".join(frame(FrameKind.WELCOME, 0, b'{"version": 1}')))
        connection.recv(1 << 16)
        connection.sendall(b"".join(error_frame(1, OwnershipLostError("another one's"))))
        assert not connection.recv(1 << 16), "it is left"

    with playing(play) as before, Client(f"{before},{machines.addresses[0]}") as client:
        with pytest.raises(UnavailableError, match="may or may not have been done"):
            client.status()
        assert client.status()["state"] == "serving"


@pytest.mark.parametrize("kind", [FrameKind.REFUSED, FrameKind.POLLED])
def test_a_consumer_leaves_who_lost_the_logs(machines: Machines, kind: FrameKind) -> None:
    """The broker says so of the group that is named, or of the poll."""
    error = OwnershipLostError("another one's")

    def play(connection: socket.socket) -> None:
        connection.sendall(b"".join(frame(FrameKind.WELCOME, 0, b'{"version": 1}')))
        connection.recv(1 << 16)
        if kind == FrameKind.POLLED:
            connection.sendall(b"".join(frame(FrameKind.RESULT, 1, b'{"number": 1, "lease_ms": 1000}')))
            connection.recv(1 << 16)
        connection.sendall(b"".join(frame(kind, 2 if kind == FrameKind.POLLED else 1, encode_error(error))))
        assert not connection.recv(1 << 16), "it is left"

    with Client(machines.addresses[0]) as client:
        client.schedule("t", b"x", delay=0)
    with playing(play) as before, Client(f"{before},{machines.addresses[0]}") as client:
        assert client.places.in_turn()[0].text == before
        with client.consume("t", group="g", timeout=60) as consumer:
            assert next(iter(consumer)).body == b"x"


def test_a_consumer_that_waits_for_a_broker_which_stops_takes_nothing_from_the_others(machines: Machines) -> None:
    """Its acks are under way there, while another consumer of the client has gone on to the next broker.

    Both brokers count from 1: the streams of the two have the same number.
    """
    with Client(machines.addresses[0]) as client:
        client.schedule("slow", b"x", delay=0)
    batch = machines.broker.receive("slow", "another")
    may_end = threading.Event()
    batches = [batch]
    streams = set()

    def play(connection: socket.socket) -> None:
        if streams:
            return  # it is asked once more, before the next
        connection.sendall(b"".join(frame(FrameKind.WELCOME, 0, b'{"version": 1}')))
        ack = 0
        while len(streams) < 2 or not ack:
            kind, number, _ = read_frame(connection)
            if kind == FrameKind.GROUP:
                connection.sendall(b"".join(frame(FrameKind.RESULT, number, b'{"number": 1, "lease_ms": 20000}')))
            elif kind == FrameKind.SETTLE:
                ack = number
            elif kind == FrameKind.POLL:
                streams.add(number)
                if batches:
                    sent = frame(FrameKind.BATCH, number, numbered(1), encode_batch(batches.pop()))
                    connection.sendall(b"".join(sent))
        connection.sendall(b"".join(error_frame(0, UnavailableError("the broker is stopping"))))
        assert may_end.wait(TIMEOUT_S)
        connection.sendall(b"".join(frame(FrameKind.SETTLED, ack)))

    with playing(play) as before, Client(f"{before},{machines.addresses[0]}") as client:
        slow = client.consume("slow", group="g", timeout=TIMEOUT_S)
        message = next(iter(slow))
        with client.consume("quick", group="g", timeout=TIMEOUT_S) as quick:
            message.ack()
            wait_until(lambda: machines.has_consumer("quick", "g"))
            may_end.set()
            wait_until(lambda: machines.has_consumer("slow", "g"))
            client.schedule("quick", b"y", delay=0)
            assert next(iter(quick)).body == b"y"
        slow.close()


def test_what_is_on_its_way_to_a_consumer_that_is_closed_is_given_back(machines: Machines) -> None:
    """As the same try: nobody has begun it. At the end of a consumer the broker counts one for all that it has."""
    with Client(machines.addresses[0]) as client:
        client.schedule("t", b"x", delay=0)
    batch = machines.broker.receive("t", "another")
    polled = threading.Event()
    kinds: list[int] = []

    def play(connection: socket.socket) -> None:
        connection.sendall(b"".join(frame(FrameKind.WELCOME, 0, b'{"version": 1}')))
        while not kinds or kinds[-1] != FrameKind.CLOSE:
            kind, number, _ = read_frame(connection)
            kinds.append(kind)
            if kind == FrameKind.GROUP:
                connection.sendall(b"".join(frame(FrameKind.RESULT, number, b'{"number": 1, "lease_ms": 20000}')))
            elif kind == FrameKind.POLL:
                polled.set()
            elif kind == FrameKind.WITHDRAW:  # it crosses the answer
                connection.sendall(b"".join(frame(FrameKind.BATCH, number, numbered(1), encode_batch(batch))))

    with playing(play) as address, Client(address) as client, client.consume("t", group="g"):
        assert polled.wait(TIMEOUT_S)
    assert kinds == [FrameKind.GROUP, FrameKind.POLL, FrameKind.WITHDRAW, FrameKind.RETURN, FrameKind.CLOSE]


def test_an_ack_at_who_lost_the_logs_is_in_doubt(machines: Machines) -> None:
    with Client(machines.addresses[0]) as client:
        client.schedule("t", b"x", delay=0)
    batch = machines.broker.receive("t", "another")

    def play(connection: socket.socket) -> None:
        batches = [batch]  # what is leased is not handed out again, though it is asked for more
        connection.sendall(b"".join(frame(FrameKind.WELCOME, 0, b'{"version": 1}')))
        while True:
            kind, number, _ = read_frame(connection)
            if kind == FrameKind.GROUP:
                connection.sendall(b"".join(frame(FrameKind.RESULT, number, b'{"number": 1, "lease_ms": 20000}')))
            elif kind == FrameKind.POLL and batches:
                connection.sendall(b"".join(frame(FrameKind.BATCH, number, numbered(1), encode_batch(batches.pop()))))
            elif kind == FrameKind.SETTLE:
                error = OwnershipLostError("another one's")
                connection.sendall(b"".join(frame(FrameKind.REFUSED, number, encode_error(error))))
                with pytest.raises((EOFError, ConnectionError)):
                    while True:
                        read_frame(connection)
                return

    with (
        playing(play) as before,
        Client(f"{before},{machines.addresses[0]}") as client,
        client.consume("t", group="g", timeout=60) as consumer,
    ):
        next(iter(consumer)).ack()
        with pytest.raises(UnavailableError, match="may or may not have been done"):
            consumer.flush()
        next(iter(consumer)).ack()
        consumer.flush()


def test_a_receive_that_waits_is_asked_again(machines: Machines) -> None:
    with Client(machines.list) as client:
        receiving = Later(lambda: client.receive("t", group="g", wait=60))
        wait_until(lambda: machines.has_group("t", "g"))
        machines.move()
        with Client(machines.addresses[1]) as other:
            other.schedule("t", b"x", delay=0)
        [message] = receiving.result()
        assert (message.body, message.attempt) == (b"x", 1)
        message.ack()
        client.flush()


def test_a_receive_whose_link_is_lost(machines: Machines) -> None:
    def play(connection: socket.socket) -> None:
        connection.sendall(b"".join(frame(FrameKind.WELCOME, 0, b'{"version": 1}')))
        connection.recv(1 << 16)  # and ends

    with Client(machines.addresses[0]) as client:
        client.schedule("t", b"x", delay=0)
    with playing(play) as address:
        with Client(address) as client, pytest.raises(UnavailableError, match="the link to the broker is lost"):
            client.receive("t", group="g", wait=60)
        with Client(f"{address},{machines.addresses[0]}") as client:
            receiving = Later(lambda: client.receive("t", group="g", wait=60))
            wait_until(lambda: asked(client, machines))
            assert [message.body for message in receiving.result()] == [b"x"]


def asked(client: Client, machines: Machines) -> bool:
    """Have the broker's own address tried first from now on, and tell whether the group was asked for there."""
    client.places.resume(machines.addresses[0], None)
    return machines.has_group("t", "g")


def test_a_consumer_goes_on(machines: Machines) -> None:
    with Client(machines.list) as client, client.consume("t", group="g", timeout=60) as consumer:
        for at in range(3):
            sent_again(client, b"%d" % at)
            message = next(iter(consumer))
            assert message.body == b"%d" % at
            message.ack()
            consumer.flush()
            machines.move()


@pytest.mark.parametrize("is_back", [True, False], ids=["back", "away"])
def test_acks_of_a_stream_that_is_lost_are_told(machines: Machines, is_back: bool) -> None:
    """Once, also when another stream is there, or none."""
    with Client(machines.list) as client, client.consume("t", group="g", timeout=60) as consumer:
        client.schedule("t", b"x", delay=0)
        message = next(iter(consumer))
        machines.end()
        message.ack()
        if is_back:
            machines.begin(1)
            assert next(iter(consumer)).attempt == 2
        with pytest.raises(UnavailableError, match=r"come again|may or may not have been done"):
            consumer.flush()
        consumer.flush()
        if not is_back:
            machines.begin(1)
        next(iter(consumer)).ack()
        consumer.flush()


def test_acks_of_a_stream_that_is_lost_are_told_to_asyncio(machines: Machines) -> None:
    async def go() -> None:
        async with AsyncClient(machines.list) as client, client.consume("t", group="g", timeout=60) as consumer:
            await client.schedule("t", b"x", delay=0)
            message = await anext(aiter(consumer))
            machines.move()
            message.ack()
            assert (await anext(aiter(consumer))).attempt == 2
            with pytest.raises(UnavailableError, match=r"come again|may or may not have been done"):
                await consumer.flush()

    asyncio.run(go())


def test_for_asyncio(machines: Machines) -> None:
    async def go() -> None:
        async with AsyncClient(machines.list) as client:
            await client.schedule("t", b"1", delay=0)
            consumer = client.consume("t", group="g", timeout=60)
            messages = aiter(consumer)
            (await anext(messages)).ack()
            await consumer.flush()
            await asyncio.to_thread(machines.move)
            with suppress(UnavailableError):  # the end of the connection was not noticed yet
                await client.schedule("t", b"2", delay=0, id="2")
            await client.schedule("t", b"2", delay=0, id="2")
            assert (await anext(messages)).body == b"2"
            assert client.address == machines.list

    asyncio.run(go())


def sent_again(client: Client, body: bytes) -> None:
    """Schedule a message, and once more if the broker ended meanwhile: as a program does, with an id."""
    try:
        client.schedule("t", body, delay=0, id=body.decode())
    except UnavailableError:
        client.schedule("t", body, delay=0, id=body.decode())


class Later(Generic[T]):
    """What a function returns or raises, in a thread."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(function)

    def result(self) -> T:
        self._pool.shutdown(wait=False)
        return self._future.result(60)


# -- epochs ------------------------------------------------------------------------------------------------------------


def test_an_owner_of_before_is_passed_over() -> None:
    where = BrokerPlaces.of("a:1,b:1")
    one, other = where.every
    assert where.on_greeted(one, {"epoch": 3}) == 3
    assert where.on_greeted(other, {"epoch": 4}) == 4
    with pytest.raises(NoAnswerError, match="an owner of before: its epoch is 3, and 4 was seen"):
        where.on_greeted(one, {"epoch": 3})
    assert where.in_turn() == (other, one)
    assert [where.is_former(epoch) for epoch in (3, 4, 5, None)] == [True, False, False, False]
    assert where.on_greeted(one, {"epoch": None}) is None, "nobody takes over such a broker"
    assert where.on_greeted(one, {}) is None, "one of an older release"
    where.pass_over(other)
    assert where.in_turn() == (one, other), "it has not worked last"
    where.pass_over(one)
    assert where.in_turn() == (other, one)
    where.resume("b:1", 7)
    assert where.in_turn() == (other, one)
    assert where.is_former(6)


def test_a_link_is_left_when_a_later_owner_was_seen(machines: Machines) -> None:
    def play(connection: socket.socket) -> None:
        connection.sendall(b"".join(frame(FrameKind.WELCOME, 0, b'{"version": 1, "epoch": 3}')))
        connection.recv(1 << 16)
        connection.sendall(b"".join(frame(FrameKind.RESULT, 1, b"{}")))
        assert not connection.recv(1 << 16), "it is left"

    with playing(play) as before, Client(f"{before},{machines.addresses[0]}") as client:
        assert client.call(Ping()) == {}
        client.places.resume(machines.addresses[0], 4)
        assert client.call(Ping())["now_ms"] > 0


# -- lists of addresses ------------------------------------------------------------------------------------------------


def test_duplicates_and_spaces() -> None:
    where = BrokerPlaces.of(" a:7611 , b:7611,a:7611,[::1]:1")
    assert where.text == "a:7611,b:7611,[::1]:1"
    assert [each.text for each in where.every] == ["a:7611", "b:7611", "[::1]:1"]
    assert where.try_s == FIND_S / 3, "all of a turn have one bound"
    assert BrokerPlaces.of("a:1,a:1").text == "a:1"
    assert BrokerPlaces.of("a:1,a:1").try_s == FIND_S
    in_tls = BrokerPlaces.of("tls://a:1?ca=x%2Cy,tls://b:1?ca=x")
    assert [each.tls for each in in_tls.every] == [ClientTls("x,y"), ClientTls("x")]
    assert in_tls.text == "tls://a:1,tls://b:1"


def test_a_socket_with_a_comma_in_its_path() -> None:
    assert split_addresses("unix:/a,b") == ["unix:/a,b"]
    assert split_addresses("unix:/a,b,unix:/c, h:1") == ["unix:/a,b", "unix:/c", "h:1"]


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        ("a:1,b", "address 'b'; allowed: HOST:PORT"),
        ("a:1,b:99999", "address 'b:99999'; allowed: HOST:PORT"),
        ("a:1,", "addresses 'a:1,': one is empty; allowed: A,B"),
        (",", "addresses ',': one is empty; allowed: A,B"),
        ("a:1,tls://b", "address 'tls://b'; allowed: tls://HOST:PORT"),
        (",".join(f"a:{port}" for port in range(1, 18)), "17 of them; allowed: 16"),
    ],
)
def test_bad_lists(addresses: str, words: str) -> None:
    for refuse in (Client, BrokerClient, BrokerPlaces.of, blocking.BlockingLink):
        with pytest.raises(InvalidArgumentError) as refused:
            refuse(addresses)
        assert words in str(refused.value)


def test_gateways_come_by_sockets_or_not() -> None:
    assert are_sockets("unix:/a,unix:/b")
    assert not are_sockets("a:1,b:1")
    with pytest.raises(InvalidArgumentError, match="some are unix:PATH; allowed: all of them, or none"):
        are_sockets("a:1,unix:/b")
    with pytest.raises(InvalidArgumentError, match="address 'tls://b:1'; allowed: HOST:PORT"):
        are_sockets("a:1,tls://b:1")
