"""Receivers that are slow, fail, hang, reset, answer too much, or are where nothing may be connected to."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import tarry.outbound.resolver as resolver
from tarry.api.push import PushInfo
from tarry.broker import Broker
from tests.loopgrpc.certificates import make_certificate
from tests.push.conftest import MakeBroker
from tests.push.receiver import Got, Receiver, Reply, reset
from tests.waiting import wait_until

pytestmark = pytest.mark.rest


def push_one(broker: Broker, url: str, **settings: Any) -> PushInfo:
    """Push one message with one try; how the subscription does when that has failed."""
    broker.set_push("s", topic="t", url=url, retry="fixed 1ms", tries=1, **settings)
    broker.schedule("t", b"x")
    wait_until(lambda: broker.group_info("t", "push-s").dead == 1)
    return broker.push_info("s")


def write(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    handler.wfile.write(content)
    handler.wfile.flush()


def test_a_receiver_that_hangs_is_waited_for_no_longer_than_the_time_out(broker: Broker) -> None:
    with Receiver(lambda _: Reply(body=None)) as receiver:
        info = push_one(broker, receiver.url, timeout_ms=150)
        assert info.error == "no answer within 0.15 s"
        assert broker.push_attempts("s")[0].status is None


def test_a_slow_receiver_holds_up_nobody_else(broker: Broker) -> None:
    with Receiver(lambda _: Reply(body=None)) as slow, Receiver() as quick:
        broker.set_push("slow", topic="t", url=slow.url, concurrency=2, timeout_ms=60_000)
        broker.set_push("quick", topic="t", url=quick.url, concurrency=2)
        for n in range(50):
            broker.schedule("t", str(n).encode())
        wait_until(lambda: len(quick.got) >= 50 and broker.group_info("t", "push-quick").lag == 0)
        assert len(quick.got) == 50
        wait_until(lambda: len(slow.got) == 2)
        assert broker.push_info("slow").in_flight == 2
        assert broker.group_info("t", "push-slow").leased <= 4, "what may be sent soon is leased, and no more"
        slow.ending.set()


def test_a_receiver_that_resets_connections(broker: Broker) -> None:
    with Receiver(lambda _: Reply(act=reset)) as receiver:
        info = push_one(broker, receiver.url)
        assert info.error is not None
        assert "Errno" in info.error or "closed" in info.error
        assert broker.push_attempts("s")[0].status is None
        assert len(receiver.got) == 1, "on a new connection it is no matter of keeping connections"


def test_a_receiver_that_is_not_there(broker: Broker) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        info = push_one(broker, f"http://127.0.0.1:{probe.getsockname()[1]}/?token=hidden")
    assert "cannot connect to 127.0.0.1" in str(info.error)
    assert "hidden" not in str(info.error)


def test_a_connection_that_was_kept_and_is_closed_by_now_is_no_failure(broker: Broker) -> None:
    def behave(got: Got) -> Reply:
        # As servers do that close what has been idle: after the answer, without a word.
        return Reply(act=lambda h: write(h, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))

    with Receiver(behave) as receiver:
        broker.set_push("s", topic="t", url=receiver.url, tries=1)
        for n in range(5):
            broker.schedule("t", str(n).encode())
            wait_until(lambda n=n: len(receiver.got) > n and broker.group_info("t", "push-s").lag == 0)
        assert broker.push_info("s").failed == 0


def test_connections_are_used_again(broker: Broker) -> None:
    with Receiver() as receiver:
        broker.set_push("s", topic="t", url=receiver.url, concurrency=1)
        for n in range(20):
            broker.schedule("t", str(n).encode())
        wait_until(lambda: len(receiver.got) == 20)
        assert len({got.peer for got in receiver.got}) == 1
        assert receiver.bodies == [str(n).encode() for n in range(20)], "one at a time comes in order"


def test_of_a_huge_answer_the_beginning_is_kept(broker: Broker) -> None:
    def flood(handler: BaseHTTPRequestHandler) -> None:
        write(handler, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            write(handler, b"y" * 65536)

    with Receiver(lambda _: Reply(act=flood)) as receiver:
        broker.set_push("s", topic="t", url=receiver.url)
        broker.schedule("t", b"x")
        wait_until(lambda: broker.push_info("s").pushed == 1)
        [attempt] = broker.push_attempts("s")
        assert (attempt.status, attempt.answer) == (200, "y" * 2048)


def test_a_2xx_whose_body_never_ends_is_an_acknowledgement(broker: Broker) -> None:
    ending = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        write(handler, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx")
        ending.wait(60)

    with Receiver(lambda _: Reply(act=drip)) as receiver:
        broker.set_push("s", topic="t", url=receiver.url, timeout_ms=200)
        broker.schedule("t", b"x")
        wait_until(lambda: broker.push_info("s").pushed == 1)
        wait_until(lambda: broker.group_info("t", "push-s").lag == 0)
        assert len(receiver.got) == 1
        ending.set()


@pytest.mark.parametrize(
    "content",
    [
        b"HTTP/1.1 200\x00\r\n\r\n",
        b"\x16\x03\x01 no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"",
    ],
)
def test_an_answer_that_is_no_http_is_none(broker: Broker, content: bytes) -> None:
    with Receiver(lambda _: Reply(act=lambda h: write(h, content))) as receiver:
        info = push_one(broker, receiver.url, timeout_ms=5000)
        assert (info.pushed, info.failed) == (0, 1)


def test_the_circuit_breaker_opens_and_closes(broker: Broker) -> None:
    with Receiver(lambda _: Reply(500)) as receiver:
        broker.set_push("s", topic="t", url=receiver.url, retry="fixed 1ms", tries=0, concurrency=2, breaker_failures=3)
        for n in range(20):
            broker.schedule("t", str(n).encode())
        wait_until(lambda: broker.push_info("s").state == "open")
        info = broker.push_info("s")
        assert (info.breaker_opened, info.until_ms is not None) == (1, True)
        assert len(receiver.got) <= 3 + 2
        receiver.behave = lambda _: Reply()
        wait_until(lambda: len(set(receiver.bodies)) == 20 and broker.group_info("t", "push-s").lag == 0)
        info = broker.push_info("s")
        assert (info.state, info.failures_in_a_row) == ("running", 0)


def test_to_resume_closes_the_circuit_breaker(broker: Broker) -> None:
    with Receiver(lambda _: Reply(500)) as receiver:
        broker.set_push("s", topic="t", url=receiver.url, retry="fixed 1ms", tries=0, breaker_failures=1)
        broker.schedule("t", b"x")
        wait_until(lambda: broker.push_info("s").breaker_opened >= 3)
        receiver.behave = lambda _: Reply()
        broker.pause_push("s")
        broker.resume_push("s")
        wait_until(lambda: broker.group_info("t", "push-s").lag == 0)
        assert broker.push_info("s").state == "running"


def test_no_more_at_a_time_than_is_said(broker: Broker) -> None:
    def behave(_: Got) -> Reply:
        gate.wait(0.02)
        return Reply()

    gate = threading.Event()
    with Receiver(behave) as receiver:
        broker.set_push("s", topic="t", url=receiver.url, concurrency=3)
        for n in range(30):
            broker.schedule("t", str(n).encode())
        wait_until(lambda: len(receiver.got) >= 30 and broker.group_info("t", "push-s").lag == 0)
        assert receiver.most_at_once <= 3


def test_no_more_a_second_than_is_said(broker: Broker) -> None:
    with Receiver() as receiver:
        broker.set_push("s", topic="t", url=receiver.url, per_second=20)
        for n in range(14):
            broker.schedule("t", str(n).encode())
        wait_until(lambda: len(receiver.got) >= 14)
        # The burst is 2; the rest takes 0.6 s at least.
        assert receiver.got[-1].at_ms - receiver.got[0].at_ms >= 500


def test_a_group_that_is_deleted_pauses_its_subscription(broker: Broker) -> None:
    with Receiver() as receiver:
        broker.set_push("s", topic="t", url=receiver.url)
        broker.schedule("t", b"x")
        wait_until(lambda: broker.push_info("s").pushed == 1)
        broker.delete_group("t", "push-s")
        wait_until(lambda: broker.push_info("s").paused)
        assert broker.push_info("s").reason == "its group was deleted"
        broker.resume_push("s")
        wait_until(lambda: broker.push_info("s").pushed == 2)  # a new group begins at the earliest


# -- addresses -------------------------------------------------------------------------------------------------------


def test_private_addresses_are_refused_by_name_and_nothing_is_connected(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(push_private_addresses="off")
    with Receiver() as receiver:
        info = push_one(broker, f"http://localhost:{receiver.port}/")
        assert "is not a public address" in str(info.error)
        assert not receiver.got


def test_odd_forms_of_an_address_are_refused_where_they_are_connected_to(make_broker: MakeBroker) -> None:
    broker = make_broker(push_private_addresses="off")
    with Receiver() as receiver:
        for host in ("0x7f.0.0.1", "0x7f000001", "localhost.", "[::1]", "[::ffff:127.0.0.1]"):
            try:
                made = broker.set_push("s", topic="t", url=f"http://{host}:{receiver.port}/")
            except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
                assert "allowed" in str(error), host
                continue
            attempt = broker.test_push(made.name)
            assert attempt.status is None, host
            assert "not a public address" in str(attempt.error) or "cannot connect" in str(attempt.error), host
        assert not receiver.got


def test_what_was_looked_up_and_judged_is_what_is_connected_to(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is public at the first look and private at each later one (DNS rebinding)."""
    broker = make_broker(push_private_addresses="off")
    looks: list[str] = []

    def look_up(host: str, port: int, **_: object) -> list[Any]:
        looks.append(host)
        address = "203.0.113.7" if len(looks) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    with Receiver() as receiver:
        monkeypatch.setattr(resolver.socket, "getaddrinfo", look_up)
        # The first is taken for public here, so that a connection to it would be tried.
        public = resolver.AddressPolicy.refusal
        monkeypatch.setattr(
            resolver.AddressPolicy,
            "refusal",
            lambda self, address: None if address == "203.0.113.7" else public(self, address),
        )
        connected: list[Any] = []
        gate = resolver.SocketGate.__call__

        def note(self: Any, place: Any) -> socket.socket:
            connected.append(place[4][0])
            gate(self, place).close()
            raise OSError("no connection from a test")

        monkeypatch.setattr(resolver.SocketGate, "__call__", note)
        broker.set_push("s", topic="t", url=f"http://rebind.example:{receiver.port}/", timeout_ms=1000)
        broker.test_push("s")
        assert connected == ["203.0.113.7"]
        assert looks == ["rebind.example"], "it is not looked up again between the check and the connection"
        assert not receiver.got


def test_a_port_that_is_not_allowed(make_broker: MakeBroker) -> None:
    broker = make_broker(push_ports="443 8000-8001")
    with pytest.raises(Exception, match="port 81 is not among those"):
        broker.set_push("s", topic="t", url="http://example.com:81/")
    broker.set_push("s", topic="t", url="http://example.com:8001/")


# -- TLS -------------------------------------------------------------------------------------------------------------


def test_a_certificate_is_verified(make_broker: MakeBroker, tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    with Receiver(tls=made.server_context()) as receiver:
        broker = make_broker()
        broker.set_push("s", topic="t", url=receiver.url)
        assert "CERTIFICATE_VERIFY_FAILED" in str(broker.test_push("s").error)
        broker = make_broker(push_ca_file=str(made.certificate))
        assert broker.test_push("s").status == 204
