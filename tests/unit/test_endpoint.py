"""Addresses of a broker: what is one, and what is refused; and a socket that listens there."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry import Client
from tarry.base.endpoint import SOCKET_BYTES_MAX, parse_address, socket_path
from tarry.base.errors import InvalidArgumentError
from tarry.fronts.kit.listening import listen_on


@pytest.mark.parametrize("address", ["localhost:7611", "127.0.0.1:0", "[::1]:65535", "[fe80::1%eth0]:1"])
def test_addresses(address: str) -> None:
    host, port = parse_address(address)
    assert f"{host}:{port}" == address


@pytest.mark.parametrize(
    "address",
    ["", "localhost", ":7611", "localhost:", "localhost:x", "h:65536", "h:-1", "h:٣", "::1:7611", "[::1:1", None, 7],
)
def test_bad_addresses(address: object) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed: HOST:PORT"):
        parse_address(address)  # type: ignore[arg-type]


@given(st.text(max_size=30))
def test_addresses_are_understood_or_refused(text: str) -> None:
    try:
        host, port = parse_address(text)
    except InvalidArgumentError:
        return
    assert host
    assert 0 <= port <= 65535


def test_a_socket_of_this_machine_is_no_host() -> None:
    assert socket_path("unix:/run/tarry.sock") == "/run/tarry.sock"
    assert socket_path("127.0.0.1:7612") is None


@pytest.mark.parametrize(
    "address",
    ["unix:", "unix:/" + "x" * SOCKET_BYTES_MAX, "unix:/a\0b", "unix:/\ud800", "/run/tarry.sock", "localhost", None, 5],
)
def test_a_refusal_of_an_address_of_either_kind_names_both(address: object) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        socket_path(address)  # type: ignore[arg-type]
    assert str(refused.value) == (
        f"address {address!r}; allowed: HOST:PORT, as in 127.0.0.1:7611 or [::1]:7611, "
        f"or unix:PATH with a path of up to {SOCKET_BYTES_MAX} bytes"
    )


def test_a_client_refuses_an_address_that_is_no_text() -> None:
    with pytest.raises(InvalidArgumentError, match=r"address None; allowed: .* or unix:PATH"):
        Client(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("[::1]", socket.AF_INET6), ("localhost", socket.AF_INET)]
)
def test_listening_in_both_families(host: str, family: socket.AddressFamily) -> None:
    with listen_on(host, 0, backlog=1) as listening:
        assert listening.family == family
        port = listening.getsockname()[1]
        with socket.create_connection((host.strip("[]"), port), 5):
            listening.accept()[0].close()
