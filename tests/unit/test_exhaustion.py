"""A broker whose descriptors, connections, calls or memory somebody uses up: it refuses, says so, and goes on."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from tarry.base import descriptors
from tarry.base.descriptors import ConnectionLimits, lacks_descriptor, when_free
from tarry.base.errors import UnavailableError
from tarry.cli.exits import ExitCode
from tarry.client import Client

IDLE = 2_000


@pytest.mark.parametrize(
    ("files_max", "ports", "in_all", "per_peer"),
    [(256, 1, 128, 64), (256, 2, 64, 32), (1024, 1, 512, 256), (20_000, 2, 9_744, 4_872), (1 << 20, 2, 10_000, 5_000)],
)
def test_connections_leave_a_reserve(files_max: int, ports: int, in_all: int, per_peer: int) -> None:
    assert ConnectionLimits.of(files_max, ports) == ConnectionLimits(in_all, per_peer)


def test_what_means_that_no_descriptor_is_free() -> None:
    assert lacks_descriptor(OSError(errno.EMFILE, "Too many open files"))
    assert lacks_descriptor(OSError(errno.ENFILE, "Too many open files in system"))
    assert lacks_descriptor(RuntimeError("IO error: While open a file: Too many open files"))
    assert not lacks_descriptor(OSError(errno.EIO, "Input/output error"))


@pytest.fixture
def other_limit() -> Iterator[None]:
    """A limit that ``raise_limit`` has not set, though a command in another test of this process may have called it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("other_limit")
def test_a_file_is_opened_as_soon_as_a_descriptor_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(descriptors, "sleep", slept.append)
    outcomes = iter([OSError(errno.EMFILE, "x"), OSError(errno.ENFILE, "x"), 5])

    def open_file() -> int:
        outcome = next(outcomes)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    assert when_free(open_file) == 5
    assert len(slept) == 2


@pytest.mark.usefixtures("other_limit")
def test_other_errors_and_a_lack_that_does_not_end_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(descriptors, "sleep", slept.append)

    def fail_with(number: int) -> Any:
        raise OSError(number, "x")

    with pytest.raises(OSError, match="x"):
        when_free(lambda: fail_with(errno.EIO))
    assert not slept
    with pytest.raises(OSError, match="x"):
        when_free(lambda: fail_with(errno.EMFILE))
    assert sum(slept) >= descriptors.WAIT_S_MAX


class Served:
    """``tarry serve`` with limits of its own on open files."""

    def __init__(self, directory: Path, soft: int, hard: int) -> None:
        self.process = subprocess.Popen(
            [
                *("bash", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "bash", sys.executable, "-c"),
                "import sys; from tarry.cli.main import run; sys.exit(run(sys.argv[1:]))",
                *("serve", "--flight", "127.0.0.1:0", "--rocketmq", "127.0.0.1:0", "--metrics", "127.0.0.1:0"),
                *("--pipeline", "off", "--data", "data", "--set", "checkpoint_interval_ms=50"),
                *("--set", "segment_bytes_max=4096"),
            ],
            cwd=directory,
            env={k: v for k, v in os.environ.items() if not k.startswith("TARRY_")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        words = self.process.stdout.readline().replace(",", "").split()
        self.addresses = [word for word in words if word.startswith("127.0.0.1:")]
        assert len(self.addresses) == 3, self.process.communicate()[1]

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log


def until_served(client: Client) -> None:
    """A new client may be refused while idle connections are being closed, as any is that comes with a flood."""

    def is_served() -> bool:
        try:
            client.ping()
        except UnavailableError:
            return False
        return True

    wait_until(is_served)


@pytest.fixture
def idle() -> Iterator[ExitStack]:
    with ExitStack() as connections:
        yield connections


@pytest.mark.parametrize(("soft", "hard"), [(256, 256), (1024, 20_000), (1024, 1024)])
@pytest.mark.rest
def test_idle_connections_to_every_port_stop_nothing(tmp_path: Path, idle: ExitStack, soft: int, hard: int) -> None:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit < 3 * IDLE:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 20_000), most))
    served = Served(tmp_path, soft, hard)
    try:
        for address in served.addresses:
            host, port = address.split(":")
            for _ in range(IDLE if address != served.addresses[-1] else 300):
                with suppress(OSError):  # refused, or the backlog is full
                    connection = socket.socket()
                    idle.callback(connection.close)
                    connection.settimeout(0.2)
                    connection.connect((host, int(port)))
        with Client(served.addresses[0], timeout=60) as client:
            until_served(client)
            for number in range(40):
                client.schedule("orders", b"x" * 400, id=str(number))  # a segment takes some of them
            ids: set[str | None] = set()
            while len(ids) < 40:
                messages = client.receive("orders", group="g", max_messages=40, wait=30)
                assert messages
                for message in messages:
                    message.ack()
                    ids.add(message.id)
    finally:
        code, log = served.stop()
    assert code == ExitCode.OK, log
    assert "fatal" not in log


STRANGERS = """
import os, resource, sys
from pathlib import Path
from tarry.base.config import Config
from tarry.base.descriptors import raise_limit
from tarry.broker import Broker
from tests.waiting import wait_until

resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
raise_limit()
raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
config = Config(data=Path(sys.argv[1]), pipeline="off", disk_free_bytes_min=0, segment_bytes_max=4096,
                checkpoint_interval_ms=50)
with Broker.open(config) as broker:
    def put(count):
        for _ in range(count):
            broker.schedule("orders", b"x" * 400, delay=0)

    def received(count):
        while count:
            batch = broker.receive("orders", "g", max_messages=count, wait_ms=100)
            broker.ack("orders", "g", batch["lease"].to_numpy(), batch["offset"].to_numpy())
            count -= batch.num_rows

    put(20)
    received(20)  # whatever is loaded at the first use is loaded
    strangers = []

    def use_up():
        try:
            while True:
                fd = os.open("/dev/null", os.O_RDONLY)
                if fd < raised:
                    strangers.append(fd)
                else:  # held back for the broker, a thread of which has lifted the limit at this moment
                    os.close(fd)
        except OSError as error:
            return error.strerror

    print("used up:", use_up())
    for turn in range(3):
        use_up()  # also what was freed since
        intake, last = broker.components.intake.position, broker.components.progress.last
        put(40)
        received(40)
        wait_until(lambda: broker.components.intake.position[0] > intake[0])
        # The checkpoint is of the new segment, and of the acknowledgements.
        wait_until(lambda: broker.components.progress.last.intake[0] > intake[0])
        wait_until(lambda: broker.components.progress.last.acks > last.acks)
        wait_until(lambda: broker.components.progress.last.fired_seq >= last.fired_seq + 40)
    print("goes on")
    for fd in strangers:
        os.close(fd)
with Broker.open(config) as broker:
    print("ready:", broker.pending()[0].ready)
"""


@pytest.mark.rest
def test_logs_and_checkpoints_go_on_while_others_have_used_up_all_descriptors(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STRANGERS, str(tmp_path / "data")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.stdout.splitlines() == ["used up: Too many open files", "goes on", "ready: 0"], ended.stderr
    assert ended.returncode == 0


def test_what_is_held_back_is_there_for_files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[int] = []
    limits = [512, 512]
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: tuple(limits))

    def setrlimit(_: int, wanted: tuple[int, int]) -> None:
        limits[:] = wanted
        set_to.append(wanted[0])

    monkeypatch.setattr(descriptors.resource, "setrlimit", setrlimit)
    assert descriptors.raise_limit() == 448
    assert descriptors.number_limit() == 512

    def open_file() -> int:
        if limits[0] < 512:
            raise OSError(errno.EMFILE, "x")
        return 5

    assert when_free(open_file) == 5
    assert set_to == [448, 512, 448]
    with pytest.raises(OSError, match="broken"):
        when_free(lambda: open_file() if limits[0] < 512 else fail("broken"))
    assert limits[0] == 448, "it is not left lifted"


def fail(text: str) -> int:
    raise OSError(errno.EIO, text)


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [(1024, 4096, 4032), (256, 256, 224), (-1, -1, descriptors.LIMIT_MAX), (1024, -1, (1 << 20) - 64),
     (2_000_000, 3_000_000, 2_000_000), (1024, 1 << 21, (1 << 20) - 64)],
)  # fmt: skip
def test_the_limit_is_raised_but_for_what_is_held_back(
    soft: int, hard: int, raised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [soft, hard]
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(descriptors.resource, "setrlimit", lambda _, wanted: limits.__setitem__(slice(None), wanted))
    assert descriptors.raise_limit() == raised
