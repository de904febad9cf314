"""The port that workers share, and what becomes of those that cannot serve; workers here are commands of the system."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest

from tarry.errors import UnavailableError
from tarry.fronts.gateway.supervisor import Start, WorkerSupervisor
from tests.waiting import wait_until


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def _serves(start: Start) -> Sequence[str]:
    return ["sh", "-c", "echo '[\"serving\"]'; exec sleep 60"]


def _serves_twice(start: Start) -> Sequence[str]:
    return ["sh", "-c", 'echo \'["serving", "a"]\'; echo \'["serving", "b"]\'; exec sleep 60']


def _ends(start: Start) -> Sequence[str]:
    return ["sh", "-c", "exit 3"]


IPV6 = pytest.param("[::1]", marks=pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6"))


@pytest.mark.parametrize("host", ["127.0.0.1", IPV6])
def test_the_port_is_there_while_workers_are(host: str) -> None:
    supervisor = WorkerSupervisor(_serves, f"{host}:0", "front", 2)
    try:
        assert supervisor.address.startswith(f"{host}:")
        supervisor.start()
        assert supervisor.wait_serving(30)
        assert [(w["name"], w["state"], w["restarts"]) for w in supervisor.status()] == [
            ("front-1", "serving", 0),
            ("front-2", "serving", 0),
        ]
        port = int(supervisor.address.rpartition(":")[2])
        socket.create_connection((host.strip("[]"), port), 10).close()
    finally:
        supervisor.stop()


def test_one_that_serves_again_in_its_process_has_begun_again() -> None:
    supervisor = WorkerSupervisor(_serves_twice, "127.0.0.1:0", "front", 1)
    try:
        supervisor.start()
        wait_until(lambda: supervisor.status()[0]["restarts"] == 1)
        [status] = supervisor.status()
        assert (status["state"], status["ended"]) == ("serving", None)
        assert status["pid"] is not None
    finally:
        supervisor.stop()


def test_one_that_cannot_serve_is_told_as_such() -> None:
    supervisor = WorkerSupervisor(_ends, "127.0.0.1:0", "front", 1)
    try:
        supervisor.start()
        assert not supervisor.wait_serving(30)
        [status] = supervisor.status()
        assert (status["ended"], status["state"]) == ("exit code 3", "starting")
    finally:
        supervisor.stop()


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=f"cannot listen on {address}: "):
            WorkerSupervisor(_ends, address, "front", 1)
