"""2,000 connections at a time that do little or nothing, and a client that works beside them."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tarry.broker import Broker
from tarry.fronts.registry import ServerConfig
from tarry.fronts.rocketmq.classic.codes import RequestCode, ResponseCode
from tarry.fronts.rocketmq.classic.front import RemotingFront
from tests.ports import pair_of_ports
from tests.rocketmq_classic.conftest import Place
from tests.rocketmq_classic.remoting import Remoting, messages_of
from tests.waiting import wait_until

COUNT = 2_000
HEADER_CUT = struct.pack(">ii", 1000, 500) + b"{"


@contextmanager
def connected(place: Place, count: int, begin: Callable[[Remoting, int], None]) -> Iterator[list[Remoting]]:
    with ExitStack() as stack:
        clients = []
        for number in range(count):
            client = Remoting(place.front.port, sock=_connect(place.front.port))
            stack.callback(client.close)
            begin(client, number)
            clients.append(client)
        yield clients


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def works(place: Place, topic: str) -> bool:
    client = place.client()
    client.send(topic, b"x")
    client.heartbeat("c", "g", topic)
    return [m["body"] for m in client.pull_until(1, topic, "g")] == [b"x"]


@pytest.mark.parametrize("count", [200, pytest.param(COUNT, marks=pytest.mark.rest)])
@pytest.mark.parametrize("said", [b"", HEADER_CUT[:2], HEADER_CUT])
def test_connections_that_say_nothing_or_half(place: Place, said: bytes, count: int) -> None:
    with connected(place, count, lambda client, _: client.socket.sendall(said)):
        assert works(place, "orders")
    assert works(place, "others")


@pytest.mark.rest
def test_consumers_of_one_group_that_wait(place: Place) -> None:
    def begin(client: Remoting, number: int) -> None:
        client.heartbeat(f"c{number}", "many", "orders")
        client.begin_pull("orders", "many", 0, wait_s=60)

    with connected(place, COUNT, begin) as clients:
        listed = place.client().ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "many"})
        assert len(json.loads(listed.body)["consumerIdList"]) == COUNT
        place.client().send("orders", b"x")
        # Each pull began with its client's first number but one.
        bodies = [[m["body"] for m in messages_of(client.finish(2).body)] for client in clients]
        assert bodies == [[b"x"]] * COUNT
    nobody = {"consumerGroup": "many"}
    observer = place.client()
    wait_until(lambda: observer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, nobody).code == ResponseCode.SYSTEM_ERROR)
    assert works(place, "others")


@pytest.mark.parametrize("vip", ["on", "off"])
def test_the_port_for_old_clients_is_a_setting(tmp_path: Path, vip: str) -> None:
    port = pair_of_ports()
    config = ServerConfig(data=tmp_path, pipeline="off", remoting_vip=vip)
    with Broker.open(config) as broker, RemotingFront.start(broker, f"127.0.0.1:{port}") as front:
        if vip == "on":
            assert front.vip_address == f"127.0.0.1:{port - 2}"
            _connect(port - 2).close()
        else:
            assert front.vip_address is None
            with pytest.raises(ConnectionRefusedError):
                _connect(port - 2)
