"""The metrics of a relay: on Tarry's own HTTP server, with its bounds, on this machine alone unless told otherwise."""

from __future__ import annotations

import logging
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tarry.errors import InvalidArgumentError, UnavailableError
from tarry.fronts.metrics.server import CONNECTIONS_MAX, FiguresPort
from tarry_relay.command import serve_metrics
from tarry_relay.status import RelayStatus


@pytest.fixture
def port() -> Iterator[FiguresPort]:
    found = serve_metrics(RelayStatus("r"), "0")
    yield found
    found.stop()


def values(port: FiguresPort) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{port.address}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {s.name: s.value for family in families for s in family.samples}


def test_a_port_alone_is_on_this_machine_alone(port: FiguresPort) -> None:
    assert port.address.startswith("127.0.0.1:")
    assert values(port)["tarry_relay_kafka_up"] == 0


def test_only_its_path_and_methods(port: FiguresPort) -> None:
    with socket.create_connection(("127.0.0.1", int(port.address.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(b"GET /threads HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 404")


def test_half_requests_keep_nobody_out(port: FiguresPort) -> None:
    place = ("127.0.0.1", int(port.address.rpartition(":")[2]))
    half = [socket.create_connection(place, timeout=10) for _ in range(10 * CONNECTIONS_MAX)]
    for connection in half:
        with suppress(OSError):  # closed for a later one
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
    assert values(port)["tarry_relay_kafka_up"] == 0
    for connection in half:
        connection.close()


def test_an_address_that_others_reach_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        serve_metrics(RelayStatus("r"), "0.0.0.0:0").stop()
    assert "metrics: open at 0.0.0.0:0 to whoever reaches it" in caplog.text


def test_addresses_that_are_none(port: FiguresPort) -> None:
    with pytest.raises(InvalidArgumentError, match="address 'here'; allowed: HOST:PORT"):
        serve_metrics(RelayStatus("r"), "here")
    with pytest.raises(UnavailableError, match=f"cannot listen on {port.address}: Address already in use"):
        serve_metrics(RelayStatus("r"), port.address)
